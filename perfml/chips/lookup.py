"""One GPU, the numbers that models of its time divide by; and which one a launch ran on.

It is found by its device's name, its capability, and the profile's own facts.
"""

from __future__ import annotations

import csv
import functools
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd


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

    def peak_flops_per_us(self, precision: str) -> float:
        """Return the floating-point operations of a microsecond; a multiply-add is two.

        `precision` is ``fp32`` or ``fp64`` on CUDA cores; on tensor cores, with sums in FP32,
        ``fp16``, ``bf16``, ``tf32``, ``fp8``, ``int8`` or ``tensor_fp64``. The clock is the one of
        the data sheet's number.

        Examples
        --------
        >>> from perfml import chips
        >>> round(chips.chip("Tesla T4").peak_flops_per_us("fp16") / 1e6)  # TFLOP/s
        65
        """
        if precision in ("fp32", "fp64"):
            return self._a_us(2 * getattr(self, precision), _NAN)
        rate = getattr(self, f"tensor_{precision.removeprefix('tensor_')}")
        return self._a_us(2 * rate * self.tensor_share, self.tensor_clock_mhz)

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


DEVICE_FACTS = "device_facts"
"""Attribute of a table: by device, what its profile says of it."""

_VENDORS = {
    "amd": re.compile(r"\b(amd|radeon|instinct|gfx\d|mi\d{3})", re.IGNORECASE),
    "intel": re.compile(r"\bintel\b", re.IGNORECASE),
    "meta": re.compile(r"\bmtia", re.IGNORECASE),
}
"""Words of the names of devices that are no NVIDIA GPU. HIP gives an AMD device a major and a
minor version, too (an MI210 says 9.0), which is no compute capability."""
_VENDOR = {"nvidia", "tesla", "geforce", "gpu"}
"""Words that profilers, drivers and people write or leave out."""


def vendor(name: str | None) -> str:
    """Return who makes a device: ``amd``, ``intel``, ``meta``, or else ``nvidia``.

    NVIDIA's tools count nothing on the others, and no public tool within a kernel of Meta's MTIA.

    Examples
    --------
    >>> vendor("AMD Instinct MI210"), vendor("NVIDIA GeForce RTX 3090"), vendor(None)
    ('amd', 'nvidia', 'nvidia')
    """
    return next((maker for maker, word in _VENDORS.items() if word.search(name or "")), "nvidia")


def chip(
    name: str | None = None,
    capability: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Chip:
    """Return what is known of a GPU; NaN for what nobody knows.

    Its name is as profilers write it, or the product's alone (``NVIDIA A100-SXM4-80GB``, ``T4``).
    Of a name that several products share (``H100``) what they agree in is returned. A name that is
    not tabulated leaves what its capability (``8.9``) says; a device that is no NVIDIA GPU,
    nothing. `facts` of its profile go before the tables, see `Chip.with_facts`.

    Examples
    --------
    >>> from perfml import chips
    >>> chips.chip("Tesla T4").warps, chips.chip(capability="8.9").warps
    (32.0, 48.0)
    >>> chips.chip("AMD Instinct MI210", capability="9.0").capability is None
    True
    """
    if name and vendor(name) != "nvidia":
        return replace(UNKNOWN, name=name)
    found = _tabulated(name or None, capability or None)
    return found.with_facts(facts) if facts else found


def of_launch(row: Mapping[str, Any], facts: Mapping[str, Mapping[str, Any]] | None = None) -> Chip:
    """Return the chip of a launch.

    The row has ``device`` and ``compute_capability``, as far as they are known; `facts` are what
    the profiles say, by device: the attribute ``device_facts`` of its table.
    """
    device, capability = (_text(row.get(name)) for name in ("device", "compute_capability"))
    return chip(device, capability, (facts or {}).get(device or ""))


def of_table(table: pd.DataFrame) -> Chip:
    """Return the chip of a Kernels or Layers table; what they agree in, where there are several."""
    found = list(dict.fromkeys(of_rows(table)))
    return agreement(found) if found else UNKNOWN


def of_rows(table: pd.DataFrame) -> npt.NDArray[np.object_]:
    """Return the chip of each row of a Kernels or Layers table."""
    import numpy as np

    columns = [name for name in ("device", "compute_capability") if name in table.columns]
    found = np.full(len(table), UNKNOWN, dtype=object)
    if not columns:
        return found
    facts = table.attrs.get(DEVICE_FACTS)
    texts = (table[name].astype("string").fillna("") for name in columns)
    keys = list(zip(*texts, strict=True))
    known = {key: of_launch(dict(zip(columns, key, strict=True)), facts) for key in set(keys)}
    found[:] = [known[key] for key in keys]
    return found


def reached(name: str | None = None) -> list[dict[str, Any]]:
    """Return what devices reach beyond what follows from their numbers: of one, or of all.

    A row has ``name``, ``kind``, ``source`` and ``values`` (FLOP/s, and byte/s by level). Its kind
    is ``measured``, ``data sheet`` (as printed) or ``counter peak`` (what the profiler divides by).
    """
    rows: list[dict[str, Any]] = _sources()["reached"]
    return [row for row in rows if name is None or _words(row["name"]) == _words(name)]


@functools.cache
def _tabulated(name: str | None, capability: str | None) -> Chip:
    of_all = capabilities().get(capability or "", replace(UNKNOWN, capability=capability))
    if name is None:
        return of_all
    found = [item for item in _named(name) if capability in (None, item.capability)]
    if found:
        return replace(agreement(found), name=name)
    of_name = replace(UNKNOWN, name=name, tensor_share=_tensor_share(name))
    return replace(of_all, name=name).filled_from(of_name)


def _named(name: str) -> list[Chip]:
    """Return the products that a name may mean; of one longer name alone, only its generation."""
    words = _words(name)
    known = [(_words(title), product) for title, product in products().items()]
    same = [product for title, product in known if title == words]
    longer = [product for title, product in known if title[: len(words)] == words]
    if same or len(longer) > 1:
        return same or longer
    return [capabilities()[product.capability or ""] for product in longer]


def _tensor_share(name: str) -> float:
    """Return the part of its tensor cores' rate that a card has where its sums are in FP32.

    GeForce cards add at half the rate, and those called GTX have no tensor cores (NVIDIA's white
    papers on Turing, GA102 and Ada).
    """
    if "geforce" not in name.lower():
        return math.nan
    return 0.0 if "gtx" in name.lower() else 0.5


def _words(name: str) -> list[str]:
    """Return the words of a device's name that tell products apart."""
    return [word for word in re.split(r"[\s_-]+", name.lower()) if word and word not in _VENDOR]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


_UNITS = {"dram_gb_per_s": ("dram_bytes_per_us", 1e3), "l2_mib": ("l2_bytes", 2.0**20)}
"""Columns of products in the units of data sheets: the number of a chip, and its factor."""
_TEXTS = ("name", "capability", "source")


@functools.cache
def capabilities() -> dict[str, Chip]:
    """Return what is known of each compute capability, whatever the product."""
    of_column = {name: key for key, names in _sources()["columns"].items() for name in names}
    texts, of_rows = _sources()["texts"], _sources()["rows"]
    found = {}
    for row in _rows("multiprocessors.csv"):
        capability = row.pop("capability")
        numbers = {name: float(text) for name, text in row.items() if text}
        keys = {**of_column, **of_rows.get(capability, {})}
        sources = {name: texts[keys[name]] for name in numbers}
        found[capability] = _chip(UNKNOWN, {"capability": capability}, numbers, sources)
    return found


@functools.cache
def products() -> dict[str, Chip]:
    """Return every product that is tabulated, by its name without the vendor's."""
    texts = _sources()["texts"]
    found = {}
    for row in _rows("gpus.csv"):
        numbers = {}
        for column, text in row.items():
            if text and column not in _TEXTS:
                name, factor = _UNITS.get(column, (column, 1.0))
                numbers[name] = float(text) * factor
        sources = dict.fromkeys(numbers, texts[row["source"]])
        of_all = capabilities()[row["capability"]]
        found[row["name"]] = _chip(of_all, {"name": row["name"]}, numbers, sources)
    return found


def _chip(
    begun: Chip, texts: Mapping[str, str], numbers: Mapping[str, float], sources: Mapping[str, str]
) -> Chip:
    known: dict[str, Any] = {**vars(begun), **texts, **numbers}
    known["sources"] = {**begun.sources, **sources}
    return Chip(**known)


def agreement(chips: list[Chip]) -> Chip:
    """Return what several chips have in common; NaN where they differ."""
    first, *others = chips
    shared: dict[str, Any] = {
        name: value if all(_same(value, getattr(other, name)) for other in others) else unknown
        for (name, value), unknown in zip(vars(first).items(), vars(UNKNOWN).values(), strict=True)
    }
    shared["sources"] = {
        name: text for name, text in first.sources.items() if not math.isnan(shared[name])
    }
    return Chip(**shared)


def _same(left: object, right: object) -> bool:
    return left == right or (left != left and right != right)


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@functools.cache
def _sources() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("sources.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


REFERENCE = chip(capability="9.0")
"""What stands in for numbers of a chip that nobody knows: the generation on which the methods of
`perfml.explain` were tried, and whose latencies were measured here."""


AMD_GPU = "AMD GPU"
"""What a device of AMD's is called where a recording has no name of it."""
