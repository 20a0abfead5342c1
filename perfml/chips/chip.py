"""One GPU: the numbers that models of its time divide by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

_NAN = math.nan
SECTOR_BYTES = 32

FACTS: dict[str, str] = {
    "warps": "warps",
    "blocks": "blocks",
    "registers": "registers",
    "shared_bytes": "shared_bytes",
    "reserved_shared_bytes": "reserved_shared_bytes",
    "schedulers": "schedulers",
    "multiprocessors": "multiprocessors",
    "l2_bytes": "l2_bytes",
}
"""Facts that a profile may hold of its device, and the numbers of a chip that they are.

The clocks and the width of the memory (``clock_khz``, ``memory_clock_khz``, ``memory_bus_bits``)
are facts, too: two numbers follow from them.
"""


@dataclass(frozen=True)
class Chip:
    """A GPU, as far as it is known; every number that is not is NaN."""

    name: str | None = None  # as profilers write it; None where only a capability is known
    # compute capability, such as ``9.0``; None of what is no NVIDIA GPU
    capability: str | None = None
    warps: float = _NAN  # what a multiprocessor holds at once
    blocks: float = _NAN
    registers: float = _NAN
    shared_bytes: float = _NAN
    reserved_shared_bytes: float = _NAN  # shared memory that a block takes beside its own
    schedulers: float = _NAN  # issue slots of a multiprocessor in a cycle
    # results a cycle and multiprocessor: multiply-adds of floats and doubles, additions of
    # integers, special functions
    fp32: float = _NAN
    fp64: float = _NAN
    int32: float = _NAN
    sfu: float = _NAN
    # multiply-adds a cycle and multiprocessor of dense matrices on tensor cores
    tensor_fp16: float = _NAN
    tensor_bf16: float = _NAN
    tensor_tf32: float = _NAN
    tensor_fp64: float = _NAN
    tensor_int8: float = _NAN
    tensor_fp8: float = _NAN
    l1_requests: float = _NAN  # loads and stores of warps that enter L1 a cycle and multiprocessor
    l1_bytes: float = _NAN  # bytes that L1 gives a cycle and multiprocessor
    shared_latency: float = _NAN  # cycles until a load has its value, nothing else being under way
    l1_latency: float = _NAN
    l2_latency: float = _NAN
    dram_latency: float = _NAN
    multiprocessors: float = _NAN  # of the device; the clock is the highest that the vendor states
    clock_mhz: float = _NAN
    # the clock at which its tensor cores reach the data sheet's FLOP/s
    tensor_clock_mhz: float = _NAN
    # part of the tensor cores' rate that sums in FP32 leave: 0.5 of GeForce cards, 1 of others; NaN
    # where a generation has both and the name tells nothing
    tensor_share: float = _NAN
    l2_bytes: float = _NAN
    dram_bytes_per_us: float = _NAN  # what the pins of its memory carry, bytes a microsecond
    # where each number comes from, by its name
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def known(self, name: str, otherwise: float) -> float:
        """Return a number by its name, or another one where it is not known."""
        value: float = getattr(self, name)
        return otherwise if math.isnan(value) else value

    def filled_from(self, other: Chip) -> Chip:
        """Return the same chip with another's numbers where its own are not known."""
        missing = {
            name: value
            for name in NUMBERS
            if math.isnan(getattr(self, name)) and not math.isnan(value := getattr(other, name))
        }
        return replace(self, **missing) if missing else self

    def with_facts(self, facts: Mapping[str, Any]) -> Chip:
        """Return the same chip with what a profile says of it in place of the table's numbers.

        Known are `FACTS`, ``clock_khz``, ``memory_clock_khz`` and ``memory_bus_bits``. A memory
        moves two values a cycle (CUDA Runtime API, ``cudaDeviceProp``).
        """
        found = {
            number: value
            for fact, number in FACTS.items()
            if not math.isnan(value := _positive(facts.get(fact)))
        }
        clock = _positive(facts.get("clock_khz")) / 1e3
        if not math.isnan(clock):
            found["clock_mhz"] = clock
        memory = _positive(facts.get("memory_clock_khz"))
        bits = _positive(facts.get("memory_bus_bits"))
        if not math.isnan(memory * bits):
            found["dram_bytes_per_us"] = 2 * memory / 1e3 * bits / 8
        if not found:
            return self
        sources = {**self.sources, **dict.fromkeys(found, "the profile's device attributes")}
        return replace(self, **found, sources=sources)  # type: ignore[arg-type]

    def cycles_per_us(self, clock_mhz: float = _NAN) -> float:
        """Return the cycles of a microsecond: at the launch's own clock, or the highest."""
        return self.clock_mhz if math.isnan(clock_mhz) else clock_mhz

    def peak_flops_per_us(self, precision: str, clock_mhz: float = _NAN) -> float:
        """Return the floating-point operations of a microsecond; a multiply-add is two.

        `precision` is ``fp32`` or ``fp64`` on CUDA cores; on tensor cores, with sums in FP32,
        ``fp16``, ``bf16``, ``tf32``, ``fp8``, ``int8`` or ``tensor_fp64``. The clock is by default
        the one of the data sheet's number.

        Examples
        --------
        >>> from perfml import chips
        >>> round(chips.chip("Tesla T4").peak_flops_per_us("fp16") / 1e6)  # TFLOP/s
        65
        """
        if precision in ("fp32", "fp64"):
            return self._a_us(2 * getattr(self, precision), clock_mhz)
        rate = getattr(self, f"tensor_{precision.removeprefix('tensor_')}")
        if math.isnan(clock_mhz):
            clock_mhz = self.tensor_clock_mhz
        return self._a_us(2 * rate * self.tensor_share, clock_mhz)

    def peak_dram_bytes_per_us(self) -> float:
        """Return what DRAM moves in a microsecond at most, bytes."""
        return self.dram_bytes_per_us

    def load_latency(self, from_l2: float, from_dram: float) -> float:
        """Return the cycles until a load has its value, nothing else being in its way.

        The parts are of its sectors: those that L1 does not have, and those that L2 does not have
        either; what DRAM gives passed L2.
        """
        from_l2 = max(from_l2, from_dram)
        return (
            self.l1_latency
            + from_l2 * (self.l2_latency - self.l1_latency)
            + from_dram * (self.dram_latency - self.l2_latency)
        )

    def _a_us(self, rate: float, clock_mhz: float) -> float:
        return rate * self.multiprocessors * self.cycles_per_us(clock_mhz)


UNKNOWN = Chip()
"""A device of which nothing is known, or that is no NVIDIA GPU."""

NUMBERS = tuple(item.name for item in fields(Chip) if item.type == "float")
"""Names of all numbers of a chip."""


def _positive(value: Any) -> float:
    """Return a number above 0; NaN for what is none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return _NAN
    return number if 0 < number < math.inf else _NAN
