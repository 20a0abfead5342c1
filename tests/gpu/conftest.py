"""These tests need a GPU and Nsight Compute; they run only with ``-m gpu``."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave this folder's tests out unless they are asked for."""
    if config.getoption("-m") == "gpu":
        return
    chosen = [item for item in items if HERE not in Path(item.path).parents]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """Return a function that compiles one of the programs, with options of nvcc.

    For the GPU itself nvcc keeps no PTX (``native``), for an architecture by name it does.
    """

    def built(name, *options, arch="native"):
        program = tmp_path_factory.mktemp("build") / name
        command = [shutil.which("nvcc"), "-O2", f"-arch={arch}", "-o", program, *options]
        subprocess.run([*command, HERE / "programs" / f"{name}.cu", "-lcuda"], check=True)
        return str(program)

    return built
