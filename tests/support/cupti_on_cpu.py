"""The injected range profiler over a stand-in for CUPTI, and a program that it follows."""

import shutil
import subprocess
from pathlib import Path

from collectors.profilers import inject
from tests.support.compiling import made_once
from tests.support.paths import ROOT

FOLDER = ROOT / "tests" / "cupti_on_cpu"
INJECTED = ROOT / "collectors" / "profilers" / "injected"
LIBRARY = INJECTED / "range_profiler.cpp"
EXPERIMENTS = INJECTED / "launch_experiments.cpp"
NAME = "libcupti_stand_in.so"
"""Not CUPTI's own: a process that has loaded the real one would take that."""
COMPILER = shutil.which("g++") or shutil.which("c++")


def compiled() -> tuple[Path, Path]:
    """Return the range profiler and the program."""
    return _compiled("fake_cuda.cpp", LIBRARY, "program.cpp")


def compiled_experiments() -> tuple[Path, Path]:
    """Return the library of experiments and a program with a GPU."""
    return _compiled("fake_gpu.cpp", EXPERIMENTS, "examined.cpp")


def _compiled(driver: str, source: Path, made_of: str) -> tuple[Path, Path]:
    folder = made_once(source.stem, lambda folder: _compile(folder, driver, source, made_of))
    return folder / "library.so", folder / "program"


def _compile(folder: Path, driver: str, source: Path, made_of: str) -> None:
    cupti, library, program = folder / NAME, folder / "library.so", folder / "program"
    cuda = folder / "libcuda.so.1"
    headers = [f"-I{path}" for path in inject.toolkit().include]
    shared = [COMPILER, "-std=c++17", "-fPIC", "-shared", *headers]
    linked = [str(cupti), str(cuda), "-Wl,-rpath,$ORIGIN", "-ldl", "-lpthread"]
    for command in (
        [*shared, FOLDER / driver, "-Wl,-soname,libcuda.so.1", "-o", cuda],
        [*shared, FOLDER / "fake_cupti.cpp", f"-Wl,-soname,{NAME}", "-o", cupti],
        [*shared, "-fvisibility=hidden", source, *linked, "-o", library],
        [COMPILER, "-std=c++17", *headers, FOLDER / made_of, *linked, "-o", program],
    ):
        subprocess.run(command, check=True)
