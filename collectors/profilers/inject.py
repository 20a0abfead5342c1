"""Build the small library that the CUDA driver loads into a program (``injected/*.cpp``).

It is compiled where it runs, against the CUDA toolkit that is there, and kept in the user's
cache under the hash of its source and of the toolkit's CUPTI.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collectors.profilers.process import Finished, ProfilerError, last_lines, run
from perfml.util.files import temporary_folder

COUNTERS = "range_profiler"
EXPERIMENTS = "launch_experiments"
SAMPLES = "pc_samples"
BARE = "PERFML_BARE_DIR"
"""Variable with the folder for the times of a program that runs without a profiler."""


@dataclass(frozen=True)
class Toolkit:
    """Where CUPTI's headers and its library lie."""

    include: tuple[Path, ...]
    library: Path


def toolkit() -> Toolkit:
    """Find CUPTI: in CUDA_HOME, beside nvcc, in /usr/local/cuda, or in NVIDIA's wheels.

    Raises `ProfilerError` if there is none.
    """
    for root in _roots():
        headers = [root / "include", root / "extras" / "CUPTI" / "include"]
        found = [header for header in headers if header.is_dir()]
        if not any((each / "cupti.h").is_file() for each in found):
            continue
        for place in ("lib64", "lib", "extras/CUPTI/lib64", "targets/x86_64-linux/lib"):
            libraries = sorted((root / place).glob("libcupti.so*"))
            if libraries:
                return Toolkit(tuple(found), libraries[0])
    msg = "CUPTI is not installed: cupti.h and libcupti.so were not found together"
    raise ProfilerError(
        msg,
        found="looked in CUDA_HOME, beside nvcc, in /usr/local/cuda and in NVIDIA's wheels",
        cure="Install the CUDA Toolkit, or set CUDA_HOME to where it is.",
    )


def library(name: str) -> Path:
    """Return a compiled library (`COUNTERS`, `EXPERIMENTS`, `SAMPLES`), building it on first use.

    Raises `ProfilerError` if there is no compiler or no CUPTI, or the source does not compile.
    """
    source = Path(__file__).parent / "injected" / f"{name}.cpp"
    cupti = toolkit()
    headers = sorted(source.parent.glob("*.h"))
    text = b"".join(path.read_bytes() for path in [source, *headers])
    identity = text + str(cupti.library.resolve()).encode()
    target = _cache() / f"{name}-{hashlib.sha256(identity).hexdigest()[:16]}.so"
    if target.is_file():
        return target
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if not compiler:
        msg = "no C++ compiler on the PATH"
        raise ProfilerError(msg, cure="Install g++ (Debian: build-essential), or set CXX.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder("build", target.parent) as folder:
        made, log = folder / target.name, folder / "log.txt"
        command = [compiler, "-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden"]
        command += [f"-I{each}" for each in cupti.include]
        # the program may bring another libstdc++ than the compiler's
        command += ["-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL"]
        command += [str(source), "-o", str(made), str(cupti.library)]
        command += [f"-Wl,-rpath,{cupti.library.parent}"]
        ended = run(command, log=log, timeout_s=300)
        if ended.returncode != 0 or not made.is_file():
            msg = f"{source.name} does not compile here"
            raise ProfilerError(
                msg,
                where=compiler,
                found=last_lines(ended.output, 2)[:300],
                cure="It needs C++17 and the headers of CUDA 12 or newer with NVTX 3.",
            )
        os.replace(made, target)
    return target


def loading(injected: Path) -> dict[str, str]:
    """Return the variables with which the CUDA driver and NVTX load a library into a program."""
    return dict.fromkeys(("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"), str(injected))


def run_injected(
    injected: Path | None,  # the library, from `library`; None for none
    # command, log, timeout_s, env, meanwhile, cwd: as of `collectors.profilers.process.run`
    command: Sequence[str],
    *,
    log: Path,
    timeout_s: float,
    env: Mapping[str, str],
    meanwhile: Callable[[], None] | None = None,
    cwd: Path | None = None,
) -> Finished:
    """Run a program into which the CUDA driver and NVTX load a library.

    Raises `ProfilerError` if the program cannot be started.
    """
    variables = {**env, **(loading(injected) if injected else {})}
    return run(command, log=log, timeout_s=timeout_s, env=variables, cwd=cwd, meanwhile=meanwhile)


def _roots() -> list[Path]:
    roots = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    compiler = shutil.which("nvcc")
    if compiler:
        roots.append(Path(compiler).resolve().parent.parent)
    roots.append(Path("/usr/local/cuda"))
    wheels = importlib.util.find_spec("nvidia")
    for base in (wheels.submodule_search_locations or []) if wheels else []:
        roots += [Path(base) / "cu13", Path(base) / "cuda_cupti"]
    return roots


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "perfml"
