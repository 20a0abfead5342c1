"""Compile CUDA sources for the CPU, each once: tests and programs that they start share it."""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.processes import PATIENCE_S

ON_CPU = ROOT / "tests" / "cuda_on_cpu"
_KEPT = "PERFML_TESTS_COMPILED"
"""Variable with the folder of what was compiled, for the programs that a test starts."""
_STANDARD = """\
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
"""
"""Headers of the standard library, a fifth of what a source takes: compiled before all sources."""


def host_compiler() -> str:
    """Return a C++ compiler; like torch, it is an extra that these tests may lack."""
    found = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    return found or pytest.skip("no C++ compiler")


def compile_once(out: Path, source: Path, flags: Iterable[str], folders: Iterable[Path]) -> None:
    """Compile a source of tests/cuda_on_cpu, or copy what the same sources gave before.

    Parameters
    ----------
    out
        What to make.
    source
        What is compiled.
    flags
        Options that change the result.
    folders
        Where the sources lie that it includes; all in them count.
    """
    flags, folders = list(flags), [*folders, ON_CPU]
    key = hashlib.sha256(repr([source.name, flags]).encode())
    for path in (path for folder in folders for path in sorted(folder.iterdir())):
        if path.suffix in (".cu", ".cuh", ".h", ".cpp"):
            key.update(path.read_bytes())

    def make(made: Path) -> None:
        include = ["-include", str(_standard(flags)), *(f"-I{folder}" for folder in folders)]
        _compile(*include, *flags, "-o", str(made / "made"), str(source))

    shutil.copy(made_once(key.hexdigest(), make) / "made", out)


def _compile(*words: str) -> None:
    subprocess.run([host_compiler(), "-O1", "-w", *words], check=True, timeout=PATIENCE_S)


def _standard(flags: Iterable[str]) -> Path:
    """Return a header of the standard library's, compiled with these flags."""
    flags = [flag for flag in flags if not flag.startswith("-D")]

    def make(made: Path) -> None:
        name = str(made / "standard.h")
        Path(name).write_text(_STANDARD)
        _compile(*flags, "-x", "c++-header", "-o", f"{name}.gch", name)

    return made_once(f"standard{'-'.join(flags)}", make) / "standard.h"


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return the shared folder of a name; the first process that asks makes it, others wait."""
    folder = shared_folder() / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            made = Path(tempfile.mkdtemp(dir=folder.parent))
            make(made)
            made.rename(folder)
    return folder


@functools.cache
def shared_folder() -> Path:
    """Return the folder of what was compiled; made by the process that starts the tests."""
    if _KEPT not in os.environ:
        os.environ[_KEPT] = tempfile.mkdtemp(prefix="perfml-compiled-")
        atexit.register(shutil.rmtree, os.environ[_KEPT], ignore_errors=True)
    return Path(os.environ[_KEPT])
