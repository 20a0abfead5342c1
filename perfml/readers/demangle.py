"""Readable C++ names, through the C++ runtime that Python's own libraries already load."""

from __future__ import annotations

import ctypes
import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable

_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++.1.dylib", "libc++abi.dylib")
_LONGEST = 20_000
_BACK = re.compile(r"S[0-9A-Z]*_")
_FEW = 12
"""Back references that cannot make a name much longer.

Two back references can double what came before, so a name of 300 characters may stand for one of
many gigabytes. Names with more of them are read in a process of their own, which may fail.
"""
_MEMORY, _SECONDS = 192 << 20, 2


def demangle(name: str) -> str | None:
    """Return a mangled C++ name in readable form; other names as they are.

    None stands for a mangled name that no C++ runtime here can read.

    Examples
    --------
    >>> demangle("volta_sgemm_128x64_nn")
    'volta_sgemm_128x64_nn'
    """
    if not name.startswith("_Z"):
        return name
    if len(_BACK.findall(name)) > _FEW:
        return _apart([name])[0]
    return _directly(name)


def demangled(names: Iterable[str]) -> dict[str, str | None]:
    """Return `demangle` of each name; all that need a process of their own share one."""
    distinct = list(dict.fromkeys(names))
    many = [name for name in distinct if name.startswith("_Z") and len(_BACK.findall(name)) > _FEW]
    found = dict(zip(many, _apart(many), strict=True)) if many else {}
    return {name: found[name] if name in found else demangle(name) for name in distinct}


def _apart(names: list[str]) -> list[str | None]:
    """Demangle in a process with little memory and time; None for what it did not manage."""
    try:
        answer = subprocess.run(  # noqa: S603 - this file, under this interpreter
            [sys.executable, "-I", "-S", __file__],
            input="".join(json.dumps(name) + "\n" for name in names).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=4 * _SECONDS,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired as error:
        answer = error.stdout or b""
    except OSError:
        answer = b""
    lines = answer.split(b"\n")[:-1]
    found = [json.loads(line) for line in lines[: len(names)]]
    return found + [None] * (len(names) - len(found))


def _serve() -> None:
    """Demangle the names on standard input, each a line of JSON."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    for line in sys.stdin:
        try:
            found = _directly(json.loads(line))
        except MemoryError:
            found = None
        short = found if found is not None and len(found) <= 50 * _LONGEST else None
        sys.stdout.write(json.dumps(short) + "\n")
        sys.stdout.flush()


def _directly(name: str) -> str | None:
    # The runtime's demangler recurses, so a name of absurd length is not given to it.
    runtime = _runtime()
    if runtime is None or len(name) > _LONGEST or "\0" in name:
        return None
    return runtime(name)


@functools.cache
def _runtime() -> Callable[[str], str | None] | None:
    for library in _LIBRARIES:
        try:
            function = ctypes.CDLL(library).__cxa_demangle
            release = ctypes.CDLL(None).free
        except (OSError, AttributeError, TypeError):
            continue
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        function.restype = ctypes.c_void_p
        release.argtypes = [ctypes.c_void_p]
        release.restype = None

        def call(
            name: str,
            function: Callable[..., int | None] = function,
            release: Callable[..., None] = release,
        ) -> str | None:
            status = ctypes.c_int(-1)
            address = function(name.encode(), None, None, ctypes.byref(status))
            if not address:
                return None
            try:
                return ctypes.string_at(address).decode("utf-8", errors="replace")
            finally:
                release(address)

        return call
    return None


if __name__ == "__main__":
    _serve()
