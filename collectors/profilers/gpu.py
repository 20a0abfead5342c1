"""What the NVIDIA driver says about this machine, without CUDA and without torch."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from collectors.profilers.process import ProfilerError, ask
from perfml.errors import PerfmlError

_FIELDS = "name,driver_version,compute_cap,memory.total,memory.free,clocks.sm"
_PATIENCE_S = 30.0
NVPROF_LAST = (7, 2)
"""The newest compute capability that nvprof supports."""
NCU_FIRST = (7, 0)
"""The oldest compute capability that Nsight Compute supports."""


class NoGpuError(PerfmlError):
    """No usable NVIDIA GPU on this machine."""


@dataclass(frozen=True)
class Gpu:
    """One GPU."""

    # name, driver: as `nvidia-smi` writes them
    name: str
    driver: str
    compute_capability: str  # like `"9.0"`
    # memory_mib, free_mib: device memory in MiB; None where the driver does not say
    memory_mib: float | None = None
    free_mib: float | None = None
    sm_clock_mhz: float | None = None  # clock of the multiprocessors at this moment

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability as numbers that compare."""
        major, _, minor = self.compute_capability.partition(".")
        return int(major), int(minor or 0)


def gpus() -> list[Gpu]:
    """Return the GPUs of this machine.

    Raises `NoGpuError` if there is no driver, it does not answer, or it knows no GPU.
    """
    found = shutil.which("nvidia-smi")
    if found is None:
        msg = "no NVIDIA driver on this machine: nvidia-smi is not on the PATH"
        raise NoGpuError(msg, cure="Run this where the GPU is, or install the NVIDIA driver.")
    command = [found, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"]
    try:
        answer = ask(command, timeout_s=_PATIENCE_S)
    except ProfilerError as error:
        msg = "nvidia-smi cannot be started"
        raise NoGpuError(msg, found=error.found, cure="Check the driver.") from error
    if answer.timed_out or answer.flooded:
        msg = "nvidia-smi does not answer"
        found = f"nothing within {_PATIENCE_S:.0f} s" if answer.timed_out else "endless output"
        raise NoGpuError(msg, found=found, cure="Check the driver; a GPU may have failed.")
    rows = [row for line in answer.output.splitlines() if (row := _gpu(line)) is not None]
    if answer.returncode != 0 or not rows:
        said = answer.output.strip().splitlines()
        msg = "the NVIDIA driver shows no GPU"
        raise NoGpuError(
            msg,
            where="nvidia-smi",
            found=said[0][:200] if said else "no output",
            cure="Check that the driver is loaded and, in a container, that it was given a GPU.",
        )
    return rows


def _gpu(line: str) -> Gpu | None:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) < 3 or not cells[2].replace(".", "", 1).isdigit():
        return None
    numbers = [_number(cell) for cell in [*cells[3:6], "", "", ""][:3]]
    return Gpu(cells[0], cells[1], cells[2], *numbers)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
