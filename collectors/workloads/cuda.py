"""CUDA sources of perfml's own: compiled when a session is made, launched through CuPy.

``nvcc`` compiles where there is one (its report has the spills of every kernel), NVRTC elsewhere.
Sources declare kernels ``extern "C"``; variants are made with ``-D``. Data are torch tensors, whose
memory CuPy's launches read and write on torch's current stream.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perfml.errors import PerfmlError
from perfml.util.files import sha256_of
from perfml.util.installed import import_extra

_TIMEOUT_S = 600
_OUT = Path("out")
_KEPT = 4000
"""Characters of a compiler's message that an error shows at most (errors shorten it further)."""


@dataclass(frozen=True)
class Source:
    """A CUDA source with the options of one variant."""

    path: Path  # the `.cu` file; headers beside it are found
    # Macros of the variant, `{"TILE": 32}`
    defines: Mapping[str, int | str] = field(default_factory=dict)
    # Further options that nvcc and NVRTC share (`--use_fast_math`, `-maxrregcount=64`)
    flags: tuple[str, ...] = ()

    def options(self) -> list[str]:
        """Return the options of this variant."""
        macros = [f"-D{name}={value}" for name, value in self.defines.items()]
        return ["-std=c++17", f"-I{self.path.parent}", *macros, *self.flags]


@dataclass(frozen=True)
class Resources:
    """What a kernel needs of a multiprocessor."""

    registers: int  # registers a thread
    shared_bytes: int  # static shared memory a block; dynamic memory is asked for at launch
    local_bytes: int  # local memory a thread: spilled registers and arrays with run-time indices
    # spill_stores, spill_loads: bytes of spills that ptxas reports; None where NVRTC compiled
    spill_stores: int | None = None
    spill_loads: int | None = None


_ENTRY = re.compile(r"Compiling entry function '(\w+)' for")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def read_ptxas(text: str) -> dict[str, Resources]:
    """Read the report of ``ptxas -v``: kernel to what it needs.

    Examples
    --------
    >>> read_ptxas('''ptxas info : Compiling entry function 'copy' for 'sm_90a'
    ... ptxas info : Function properties for copy
    ...     0 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
    ... ptxas info : Used 40 registers, used 1 barriers, 1024 bytes smem''')["copy"].registers
    40
    """
    found: dict[str, Resources] = {}
    name, stack = "", (0, 0, 0)
    for line in text.splitlines():
        if entry := _ENTRY.search(line):
            name, stack = entry[1], (0, 0, 0)
        elif frame := _STACK.search(line):
            stack = (int(frame[1]), int(frame[2]), int(frame[3]))
        elif name and (used := _USED.search(line)):
            shared = _SHARED.search(line)
            found[name] = Resources(
                int(used[1]), int(shared[1]) if shared else 0, stack[0], stack[1], stack[2]
            )
            name = ""
    return found


def find_nvcc() -> str | None:
    """Return nvcc's path, or None."""
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    places = [str(Path(home) / "bin") for home in (*homes, "/usr/local/cuda") if home]
    return shutil.which("nvcc") or shutil.which("nvcc", path=os.pathsep.join(places))


def nvcc_command(nvcc: str, source: Source, architecture: str, out: Path) -> list[str]:
    """Return the command that compiles a source to machine code, its PTX beside it.

    ``perfml prove`` changes the PTX. With an architecture like ``90a``, wgmma and other
    instructions of this one chip are allowed.
    """
    target = f"compute_{architecture}"
    target = f"-gencode=arch={target},code=[sm_{architecture},{target}]"
    return [
        nvcc, "-fatbin", "-O3", target, "-lineinfo", "-Xptxas=-v", *source.options(),
        "-o", str(out), str(source.path),
    ]  # fmt: skip


def compile_cubin(nvcc: str, source: Source, architecture: str, cache: Path) -> tuple[Path, str]:
    """Compile a source unless `cache` has it; return the machine code's file and ptxas's report.

    Raises a `PerfmlError` if nvcc refuses the source.
    """
    texts = [path.read_bytes() for path in _sources(source.path)]
    # the folder's name is no part of it: a cache may travel to another machine
    words = nvcc_command("nvcc", replace(source, path=Path(source.path.name)), architecture, _OUT)
    name = sha256_of(b"\0".join([*texts, *(word.encode() for word in (_version(nvcc), *words))]))
    cubin, report = cache / f"{name[:32]}.cubin", cache / f"{name[:32]}.txt"
    if cubin.is_file() and report.is_file():
        return cubin, report.read_text(encoding="utf-8")
    cache.mkdir(parents=True, exist_ok=True)
    part = cache / f"part-{os.getpid()}-{cubin.name}"
    command = nvcc_command(nvcc, source, architecture, part)
    done = subprocess.run(  # noqa: S603 - a fixed command
        command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        msg = "nvcc refuses a source of perfml"
        cure = "Check that nvcc knows this GPU. Without nvcc on the PATH, NVRTC is used."
        raise PerfmlError(msg, where=source.path.name, found=done.stderr[-_KEPT:], cure=cure)
    report.write_text(done.stderr, encoding="utf-8")
    os.replace(part, cubin)
    return cubin, done.stderr


def _sources(path: Path) -> list[Path]:
    """Return the source and the headers beside it: a change of any of them is another binary."""
    return [path, *sorted(path.parent.glob("*.cuh")), *sorted(path.parent.glob("*.h"))]


@functools.cache
def _version(nvcc: str) -> str:
    done = subprocess.run(  # noqa: S603 - an argument list of our own, no shell
        [nvcc, "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout


def cache_folder() -> Path:
    """Return where machine code is kept from one process to the next."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "perfml" / "cubins"


def import_cupy() -> Any:
    """Import CuPy, or raise a `MissingExtraError`."""
    return import_extra("cupy", "gpu", "this workload")


class Kernel:
    """One kernel of a compiled source.

    `report` is what ptxas said of it, if nvcc compiled.
    """

    def __init__(self, raw: Any, name: str, report: Resources | None) -> None:
        self._raw, self.name, self._report = raw, name, report
        self._allowed = 0

    def resources(self) -> Resources:
        """Return registers, shared and local memory as the driver sees them, spills from ptxas."""
        report = self._report
        return Resources(
            self._raw.num_regs,
            self._raw.shared_size_bytes,
            self._raw.local_size_bytes,
            report.spill_stores if report else None,
            report.spill_loads if report else None,
        )

    def __call__(
        self,
        # grid, block: extents, one to three
        grid: int | Sequence[int],
        block: int | Sequence[int],
        # torch tensors (their address is passed), `int` (passed as a C `int`), `float` (C `float`),
        # numpy scalars of any other type, or a numpy array of bytes for a structure passed by
        # value. None is a null pointer.
        *arguments: Any,
        # Dynamic shared memory in bytes; the kernel is allowed more than 48 KiB when needed
        shared: int = 0,
        stream: Any = None,  # a torch stream; torch's current one by default
    ) -> None:
        """Launch."""
        cupy = import_cupy()
        import torch

        if shared > max(self._allowed, 48 * 1024 - 1):
            self._raw.max_dynamic_shared_size_bytes = shared
            self._allowed = shared
        chosen = torch.cuda.current_stream() if stream is None else stream
        with cupy.cuda.ExternalStream(chosen.cuda_stream):
            self._raw(
                _extents(grid),
                _extents(block),
                tuple(_argument(argument) for argument in arguments),
                shared_mem=shared,
            )


def _extents(given: int | Sequence[int]) -> tuple[int, ...]:
    return (given,) if isinstance(given, int) else tuple(given)


def _argument(value: Any) -> Any:
    import numpy as np

    if value is None:
        return np.uint64(0)
    if hasattr(value, "data_ptr"):
        return np.uint64(value.data_ptr())
    if isinstance(value, int) and not isinstance(value, bool):
        return np.int32(value)
    if isinstance(value, float) and not isinstance(value, np.generic):
        return np.float32(value)
    return value


class Module:
    """A compiled source; `kernel` gives its kernels.

    The architecture, such as ``90a``, is the current GPU's by default.
    """

    def __init__(self, source: Source, architecture: str | None = None) -> None:
        cupy = import_cupy()
        self.architecture = architecture or own_architecture()
        nvcc = find_nvcc()
        self.compiler = "nvrtc" if nvcc is None else "nvcc"
        self.source = source
        self._report: dict[str, Resources] = {}
        if nvcc is None:
            self._raw = cupy.RawModule(
                code=source.path.read_text(encoding="utf-8"),
                backend="nvrtc",
                options=tuple(source.options()),
            )
        else:
            cubin, report = compile_cubin(nvcc, source, self.architecture, cache_folder())
            self._report = read_ptxas(report)
            self._raw = cupy.RawModule(path=str(cubin))

    def kernel(self, name: str) -> Kernel:
        """Return a kernel by its name in the source."""
        return Kernel(self._raw.get_function(name), name, self._report.get(name))

    def address(self, name: str) -> int:
        """Return the device address of a global variable (``__constant__``, ``__device__``)."""
        return int(self._raw.get_global(name).ptr)


def build(sources: Mapping[str, Source], architecture: str | None = None) -> dict[str, Module]:
    """Compile sources by name, several at a time; a workload passes only what its options need."""
    nvcc, chosen = find_nvcc(), architecture or own_architecture()
    if nvcc is not None and len(sources) > 1:
        with ThreadPoolExecutor(min(os.cpu_count() or 1, 16)) as pool:
            jobs = [
                pool.submit(compile_cubin, nvcc, source, chosen, cache_folder())
                for source in sources.values()
            ]
            for job in jobs:
                job.result()
    return {name: Module(source, chosen) for name, source in sources.items()}


def own_architecture() -> str:
    """Return the current GPU's architecture, ``90a`` where it has instructions of its own."""
    import torch

    if not torch.cuda.is_available():
        msg = "torch finds no GPU"
        cure = "Run this workload on a machine with an NVIDIA GPU (perfml doctor)."
        raise PerfmlError(msg, where="--device cuda", cure=cure)
    major, minor = torch.cuda.get_device_capability()
    return f"{major}{minor}{'a' if major >= 9 else ''}"
