"""Readable C++ names, through the C++ runtime that Python's own libraries already load."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++.1.dylib", "libc++abi.dylib")
_LONGEST = 20_000


def demangle(name: str) -> str | None:
    """Return a mangled C++ name in readable form; other names as they are.

    Returns
    -------
    str or None
        None if the name is mangled and no C++ runtime here can read it.

    Examples
    --------
    >>> demangle("volta_sgemm_128x64_nn")
    'volta_sgemm_128x64_nn'
    """
    if not name.startswith("_Z"):
        return name
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
