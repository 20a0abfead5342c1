"""The PTX in a program, and the mutations by their ids.

A fat binary is a header and entries, of which some are PTX, mostly compressed (LZ4 until CUDA 12.7,
zstd since). The layout was read from what ``nvcc -fatbin`` 13.0 writes.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
import os
import re
import struct
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from perfml.experiments.mutation import addresses, operations
from perfml.experiments.mutation.ptx import Kernel, counting_blocks, kernel, kernels_in

_FAT_BINARY = b"\x50\xed\x55\xba"
_ENTRY = struct.Struct("<HHIQI")
_DECOMPRESSED = 56
_PTX, _LZ4, _ZSTD = 1, 0x2000, 0x8000
_LARGEST = 1 << 28  # bytes of PTX that an entry may hold: a damaged file must not take the memory
_GLOBAL = re.compile(
    r"^\s*(?:\.(?:visible|weak|common)\s+)?\.global\s[^;{=]*?([A-Za-z_$][\w$]*)\s*[\[;=]", re.M
)
_TARGET = re.compile(r"\.target\s+sm_(\d+)")


def kernels_of(paths: Iterable[Path]) -> dict[str, str]:
    """Return the PTX module of each kernel that these files of code hold.

    Parameters
    ----------
    paths
        PTX, fat binaries, executables, libraries, or machine code of Triton. Others hold none.

    Returns
    -------
    dict
        Mangled name of a kernel to its module; that for the newest GPU where there are several.
    """
    modules = [module for path in paths for module in _modules(path)]
    modules.sort(key=lambda text: int(found[1]) if (found := _TARGET.search(text)) else 0)
    return {name: module for module in modules for name in kernels_in(module)}


def global_variables(modules: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the variables in global memory of each kernel's module, by the kernel's mangled name.

    `modules` are what `kernels_of` returns; kernels whose module has none are left out. Variables
    that no instruction names, and the compiler's own (texts, tables of functions), are none.
    """
    names = {text: tuple(_used_variables(text)) for text in set(modules.values())}
    return {name: names[text] for name, text in modules.items() if names[text]}


def _used_variables(ptx: str) -> Iterator[str]:
    for name in dict.fromkeys(_GLOBAL.findall(ptx)):
        used = re.findall(rf"(?<![\w$]){re.escape(name)}(?![\w$])", ptx)
        if len(used) > 1 and not name.startswith(("$", "__")):
            yield name


def _modules(path: Path) -> Iterator[str]:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if b".version" in data[:4096] and data[:4] != b"\x7fELF":
                yield data[:].decode("utf-8", "replace").rstrip("\0")
                return
            start = data.find(_FAT_BINARY)
            if start < 0:
                yield from _beside(data[:])
            while start >= 0:
                yield from _entries(data, start)
                start = data.find(_FAT_BINARY, start + 4)
    except (OSError, ValueError):  # it is gone, or empty
        return


def _entries(data: mmap.mmap, start: int) -> Iterator[str]:
    """Return the PTX of a fat binary that begins at `start`."""
    head, size = struct.unpack_from("<HQ", data, start + 6)
    place, end = start + head, start + head + size
    while head == 16 and place + _ENTRY.size <= min(end, len(data)):
        kind, _, header, length, compressed = _ENTRY.unpack_from(data, place)
        if header < 64 or length == 0:
            return
        if kind == _PTX:
            flags = struct.unpack_from("<Q", data, place + 40)[0]
            whole = struct.unpack_from("<Q", data, place + _DECOMPRESSED)[0]
            packed = data[place + header : place + header + length]
            text = _unpacked(packed[: compressed or length], flags, whole)
            if text is not None:
                yield text.decode("utf-8", "replace").rstrip("\0")
        place += header + length


def _unpacked(packed: bytes, flags: int, size: int) -> bytes | None:
    """Return what the system's library makes of it; None where there is none, or it refuses."""
    if size > _LARGEST:
        return None
    made = ctypes.create_string_buffer(size)
    if flags & _ZSTD and (library := _library("zstd")):
        library.ZSTD_decompress.restype = ctypes.c_size_t
        sizes = (ctypes.c_size_t(size), packed, ctypes.c_size_t(len(packed)))
        length = library.ZSTD_decompress(made, *sizes)
    elif flags & _LZ4 and (library := _library("lz4")):
        length = library.LZ4_decompress_safe(packed, made, len(packed), size)
    else:
        return None if flags & (_ZSTD | _LZ4) else packed
    return made.raw[:length] if 0 <= length <= size else None


def _library(name: str) -> ctypes.CDLL | None:
    path = ctypes.util.find_library(name)
    try:
        return None if path is None else ctypes.CDLL(path)
    except OSError:
        return None


def lacking() -> str:
    """Name the system's libraries that compressed PTX needs and that are not there."""
    return " and ".join(f"lib{name}" for name in ("zstd", "lz4") if _library(name) is None)


def _beside(machine_code: bytes) -> Iterator[str]:
    """Return the PTX that Triton keeps beside the same machine code."""
    for folder in _triton_folders():
        for path in folder.glob("*/*.cubin"):
            ptx = path.with_suffix(".ptx")
            same = path.stat().st_size == len(machine_code) and path.read_bytes() == machine_code
            if same and ptx.is_file():
                yield ptx.read_text(encoding="utf-8")
                return


def _triton_folders() -> list[Path]:
    places = [Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache")]
    places += sorted(Path(tempfile.gettempdir()).glob("torchinductor_*/triton/*"))
    return places


RECOMPILED = "recompiled"
"""The kernel's PTX as it is, compiled by the driver: what mutants are compared with."""
OFF = "off"
"""Behind the id of a mutant: its control, the same machine code with the switch off."""
MUTATIONS: dict[str, Callable[[Kernel], str | None]] = {
    "dense_loads": addresses.dense_loads,
    "dense_stores": addresses.dense_stores,
    "dense_accesses": addresses.dense_accesses,
    "read_only_loads": addresses.read_only_loads,
    "no_conflicts": addresses.no_conflicts,
    "alike_constants": addresses.alike_constants,
    "no_global_atomics": operations.no_global_atomics,
    "no_barriers": operations.no_barriers,
    "no_fences": operations.no_fences,
    "no_local_arrays": operations.no_local_arrays,
    "more_registers": operations.more_registers,
    "registers_64": operations.registers_64,
    "single_precision": operations.single_precision,
    "fast_math": operations.fast_math,
    "cheap_functions": operations.cheap_functions,
    "cheap_division": operations.cheap_division,
    "smaller_blocks": operations.smaller_blocks,
    "larger_blocks": operations.larger_blocks,
    "unrolled_loops": operations.unrolled_loops,
    "batched_loads": operations.batched_loads,
}
"""Id of a mutation to what makes its module; it returns None where a kernel has no such habit."""


SPLITS: dict[str, int] = {
    "smaller_blocks": operations.BLOCKS,
    "larger_blocks": -operations.BLOCKS,
}
"""Mutations that change the launch: parts of a block, or, negative, blocks that become one."""


@dataclass(frozen=True)
class Mutant:
    """A module with one kernel, changed."""

    kernel: str  # as the compiler mangled its name
    mutation: str  # its id, or `RECOMPILED`
    ptx: str
    variables: tuple[str, ...]  # of it, whose values it takes over from the program's module
    switched: bool  # whether it carries the switch, so that it is its own control

    @property
    def counted(self) -> str | None:
        """Its PTX with a count of each basic block; None where these cannot be counted."""
        return counting_blocks(kernel(self.ptx, self.kernel))


def mutants(ptx: str, name: str) -> list[Mutant]:
    """Return the mutants of a kernel, the unchanged one first; none where it cannot be read.

    Parameters
    ----------
    ptx
        A module.
    name
        Of a kernel in it, as the compiler mangled it.
    """
    try:
        unchanged = kernel(ptx, name)
    except ValueError:
        return []
    made = [Mutant(name, RECOMPILED, unchanged.text, unchanged.variables, switched=False)]
    for mutation, make in MUTATIONS.items():
        text = make(unchanged)
        if text is not None:
            switched = addresses.DECLARED in text
            made.append(Mutant(name, mutation, text, unchanged.variables, switched))
    return made


_FILE = tomllib.loads(files(__package__).joinpath("mutations.toml").read_text("utf-8"))

WORDS: dict[str, str] = _FILE["words"]
"""Id of a mutation to its words."""
LINES: dict[str, str] = _FILE["lines"]
"""Id of a mutation to what does the same in the source, or to an option of the compiler."""


@cache
def mutations_of() -> dict[str, dict[str, tuple[str, ...]]]:
    """Return ``habits`` and ``bounds``: the mutations of each cause (``mutations.toml``)."""
    return {
        kind: {cause: tuple(names) for cause, names in _FILE[kind].items()}
        for kind in ("habits", "bounds")
    }


@cache
def cause_of(mutation: str) -> str:
    """Return the first cause of which a mutation takes the habit away, or a part; empty if none."""
    kinds = mutations_of().values()
    return next((c for kind in kinds for c, names in kind.items() if mutation in names), "")
