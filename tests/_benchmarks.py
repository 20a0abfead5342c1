"""Import a program of benchmarks/, which is no package."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import contextmanager


@contextmanager
def program(root, name, *beside):
    """Give ``benchmarks/NAME.py`` as a module; it and those `beside` it are forgotten after."""
    folder = root / "benchmarks"
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(folder))
        for each in (name, *beside):
            sys.modules.pop(each, None)
