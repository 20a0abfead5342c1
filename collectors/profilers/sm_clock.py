"""The clock of the multiprocessors after a timing pass, measured without permissions.

One thread waits until the GPU's nanosecond timer has advanced and counts the cycles of its
multiprocessor meanwhile (PTX ISA, special registers %globaltimer and %clock64). It runs in a
process of its own right after the timed one, with nothing beside it: a locked clock or another
power mode shows, a clock that fell under the program's own load only while it lasts.

Run as a program it prints the clock in MHz; it needs the standard library and the driver alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import subprocess
import sys
from collections.abc import Mapping

WARM_NS = 200_000_000
"""Nanoseconds of waiting before the measured ones: a GPU that idled raises its clock first."""

MEASURED_NS = 20_000_000
"""Long against the timer's steps of up to a microsecond."""

_LIMIT_S = 60.0
_LEAST, _MOST = 50.0, 10_000.0
"""MHz; no multiprocessor has a clock beyond."""

PTX = b"""
.version 6.0
.target sm_50
.address_size 64

.visible .entry count_cycles(.param .u64 out, .param .u64 wanted)
{
  .reg .pred %waiting;
  .reg .b64 %out, %wanted, %before, %start, %now, %elapsed, %first, %last, %cycles;

  ld.param.u64 %out, [out];
  ld.param.u64 %wanted, [wanted];
  cvta.to.global.u64 %out, %out;
  mov.u64 %before, %globaltimer;
edge:
  mov.u64 %start, %globaltimer;
  setp.eq.u64 %waiting, %start, %before;
  @%waiting bra edge;
  mov.u64 %first, %clock64;
wait:
  mov.u64 %now, %globaltimer;
  sub.u64 %elapsed, %now, %start;
  setp.lt.u64 %waiting, %elapsed, %wanted;
  @%waiting bra wait;
  mov.u64 %last, %clock64;
  sub.u64 %cycles, %last, %first;
  st.global.u64 [%out], %cycles;
  st.global.u64 [%out+8], %elapsed;
  ret;
}
"""
"""Begins at a step of the timer, and so ends at one."""


def measured(env: Mapping[str, str]) -> float | None:
    """Return the SM clock in MHz of the first GPU that a program sees; None if it cannot be told.

    `env` are variables of the timed program on top of this one's.
    """
    command = [sys.executable, "-I", __file__]
    variables = {**os.environ, **env}
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        ended = subprocess.run(  # noqa: S603 - this file
            command, env=variables, capture_output=True, check=True, timeout=_LIMIT_S, text=True
        )
        clock = float(ended.stdout)
        return clock if _LEAST < clock < _MOST else None
    return None


def read_clock() -> float:
    """Return the SM clock of the first GPU in MHz, from this process, or raise an `OSError`."""
    driver = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: object) -> None:
        code = getattr(driver, name)(*arguments)
        if code:
            msg = f"{name} failed with {code}"
            raise OSError(msg)

    device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    function, memory = ctypes.c_void_p(), ctypes.c_uint64()
    counts = (ctypes.c_uint64 * 2)()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), PTX)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"count_cycles")
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(ctypes.sizeof(counts)))
    for wanted in (WARM_NS, MEASURED_NS):
        parameters = [memory, ctypes.c_uint64(wanted)]
        pointers = (ctypes.c_void_p * 2)(*map(ctypes.addressof, parameters))
        call("cuLaunchKernel", function, *[1] * 6, 0, None, pointers, None)
        call("cuCtxSynchronize")
    call("cuMemcpyDtoH_v2", counts, memory, ctypes.c_size_t(ctypes.sizeof(counts)))
    cycles, nanoseconds = counts
    return 1e3 * cycles / nanoseconds if nanoseconds else math.nan


if __name__ == "__main__":
    sys.stdout.write(f"{read_clock():.1f}\n")
