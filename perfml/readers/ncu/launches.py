"""From launches under Nsight Compute's names to a Kernels table: shared by both ncu readers."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import InputError
from perfml.metrics import PUBLISHED, StudyNote, load_catalogue
from perfml.metrics.expressions import Array
from perfml.metrics.sets import DURATION
from perfml.readers.frame import CodedRanges, kernels_frame, text_column
from perfml.readers.ncu.findings import SPEED_OF_LIGHT, Rule, most_promising, speed_of_light
from perfml.readers.source import ReadOptions, Source
from perfml.tables import Kernels
from perfml.util.words import count, first_few

DURATIONS = (
    DURATION,
    "gpu__time_duration",
    "gpu__time_duration.avg",
    "gpu__time_duration.max",
    "gpu__time_duration.min",
    "gpu__time_active.sum",
    "gpu__time_active.avg",
)
"""Names under which a report may hold a launch's duration, best first; ncu 2019 has no suffix."""

GRID = ("launch__grid_dim_x", "launch__grid_dim_y", "launch__grid_dim_z")
BLOCK = ("launch__block_dim_x", "launch__block_dim_y", "launch__block_dim_z")
DEVICE_NAME = "device__attribute_display_name"
STREAM = "Stream"
CAPABILITY = (
    "device__attribute_compute_capability_major",
    "device__attribute_compute_capability_minor",
)

DEVICE_FACTS = {
    "multiprocessors": "device__attribute_multiprocessor_count",
    "clock_khz": "device__attribute_clock_rate",
    "memory_clock_khz": "device__attribute_memory_clock_rate",
    "memory_bus_bits": "device__attribute_global_memory_bus_width",
    "l2_bytes": "device__attribute_l2_cache_size",
    "warps": "device__attribute_max_warps_per_multiprocessor",
    "blocks": "device__attribute_max_blocks_per_multiprocessor",
    "registers": "device__attribute_max_registers_per_multiprocessor",
    "shared_bytes": "device__attribute_max_shared_memory_per_multiprocessor",
    "reserved_shared_bytes": "device__attribute_reserved_shared_memory_per_block",
    "schedulers": "device__attribute_num_schedulers_per_multiprocessor",
}
"""What a report says of its device: facts as `perfml.chips` names them."""


@functools.cache
def needed() -> frozenset[str]:
    """Return every ncu metric that the catalogue can make use of."""
    catalogue = load_catalogue()
    names = {*DURATIONS, *GRID, *BLOCK, *CAPABILITY, *DEVICE_FACTS.values()}
    names.update(*SPEED_OF_LIGHT.values())
    for metric in (catalogue[name] for name in catalogue.names):
        for formula in (metric.ncu, metric.guard, *metric.substitutes):
            if formula is not None:
                names.update(formula.names)
    for name in tuple(names):
        base = name.removesuffix(".pct")
        if base != name:
            names |= {f"{base}.ratio", f"{base}.max_rate"}
    return frozenset(names)


@dataclass
class Launches:
    """What an ncu reader found, one entry a launch.

    `identity` has ``kernel``, ``grid``, ``block``, ``device`` and ``compute_capability``;
    `counters` ncu's metrics in base units, and text where `ReadOptions.raw` asks for it; `ranges`
    the NVTX ranges around each launch, outermost first; `rules` results of Nsight Compute's own
    rules; `instances` a number for the range instance of each, where they are known.
    """

    identity: dict[str, Any]
    counters: dict[str, Any]
    ranges: Sequence[Sequence[str]] | CodedRanges
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    rules: Sequence[Rule] = ()
    instances: Sequence[int] | None = None


def streams_of(names: Iterable[str]) -> dict[str, Any]:
    """Return the column ``stream`` where launches are on several; ncu runs them one by one."""
    codes, known = pd.factorize(pd.Series(list(names), dtype=object))
    if len(known) < 2 or "" in known:
        return {}
    return {"stream": codes}


def to_kernels(found: Launches, source: Source, options: ReadOptions, name: str) -> Kernels:
    """Evaluate the catalogue over launches and make a Kernels table.

    Raises `InputError` if a launch has a negative duration.
    """
    counters, warnings = found.counters, found.warnings
    _without_infinity(counters, warnings)
    rows = len(found.identity["kernel"])
    nanoseconds = _duration(counters, warnings, rows)
    negative = np.flatnonzero(nanoseconds < 0)
    if len(negative):
        row = int(negative[0])
        msg = f"launch {row} has a negative duration"
        raise InputError(
            msg,
            where=str(source.path),
            found=f"{nanoseconds[row]:g} ns ({str(found.identity['kernel'][row])[:60]})",
            cure="Profile it again.",
        )
    result = load_catalogue().evaluate({DURATION: nanoseconds, **counters})
    # columns, not a table: making one out of another costs more than a report's values
    cells = {
        **found.identity,
        "time_us": nanoseconds / 1000.0,
        "ncu_time_us": nanoseconds / 1000.0,
        "time_source": text_column(np.zeros(rows, dtype=np.int64), ["ncu"]),
        "launches": np.ones(rows, dtype=np.int64),
        **result.columns,
    }
    if options.raw:
        # the details page has labels of its own, and some are names of metrics: theirs go first
        taken = {*cells, *load_catalogue().names}
        cells |= {name: col.copy() for name, col in counters.items() if name not in taken}
    ranges = found.ranges
    ranges, joined = (
        ranges if isinstance(ranges, CodedRanges) else CodedRanges.of(ranges)
    ).joined()
    warnings += joined
    table = kernels_frame(cells, ranges, instances=found.instances)
    absent = [metric for metric in PUBLISHED if metric in result.missing]
    if absent:
        was = "was" if len(absent) == 1 else "were"
        warnings.append(
            StudyNote(
                f"{len(absent)} of the published study's {len(PUBLISHED)} metrics {was} not "
                f"collected: {first_few(absent)}."
            )
        )
    for metric in PUBLISHED:
        if metric in result.clipped:
            warnings.append(
                f"{metric} lay outside its limits in "
                f"{count(result.clipped[metric], 'launch', 'launches')} "
                "and was clipped. Threads that share words, or passes that disagree, give "
                "such values."
            )
    provenance: dict[str, Any] = {
        **source.provenance(name, "ncu"),
        "tool_version": None,
        "device": _only(table["device"]),
        "compute_capability": _only(table["compute_capability"]),
        **found.facts,
    }
    facts = _device_facts(counters)
    shapes = pd.DataFrame({name: cells[name] for name in ("kernel", "grid", "block", "time_us")})
    for key, value in (
        ("rules", most_promising(found.rules, shapes)),
        ("speed_of_light", speed_of_light(shapes, counters)),
        ("substituted", result.substituted),
        ("undefined", result.undefined),
        ("device_facts", facts),
    ):
        if value:
            provenance[key] = value
    return Kernels(table, provenance, tuple(warnings))


def _device_facts(counters: Mapping[str, Any]) -> dict[str, float]:
    """Return the facts of the device in which all launches agree."""
    found = {}
    for fact, name in DEVICE_FACTS.items():
        values = np.unique(np.asarray(counters.get(name, ()), dtype=float))
        if len(values) == 1 and values[0] > 0:
            found[fact] = float(values[0])
    return found


def require_times(units: Mapping[str, str], where: str) -> None:
    """Raise `InputError` if a duration comes in a unit that is no time."""
    for name in DURATIONS:
        if name in units and to_base(units[name])[1] != "ns":
            msg = f"column {name} is in a unit that is no time"
            cure = "Export again with: ncu --import FILE.ncu-rep --csv --page raw"
            raise InputError(msg, where=where, found=repr(units[name])[:60], cure=cure)


def measured_as_one(results: int) -> str:
    """Return the warning that some results are no kernels (OptiX builds its trees in a list)."""
    what = "result is a whole range, graph or command list"
    many = "results are whole ranges, graphs or command lists"
    return f"{count(results, what, many)}, measured and read as one launch."


def shape_of(counters: Mapping[str, Array], parts: tuple[str, ...], rows: int) -> pd.Series[str]:
    """Return ``(x, y, z)`` from three metrics; missing where one of them is."""
    return numbers_of(counters, parts, rows, lambda sizes: f"({', '.join(sizes)})")


def numbers_of(
    counters: Mapping[str, Array],
    parts: tuple[str, ...],
    rows: int,
    written: Callable[[Sequence[str]], str],
) -> pd.Series[str]:
    """Return a text made of some whole numbers; missing where one of them is."""
    if not counters.keys() >= set(parts):
        return text_column(np.zeros(rows, dtype=np.int64), [None])
    codes: dict[tuple[float, ...], int] = {}
    columns = [counters[name].tolist() for name in parts]
    places = [codes.setdefault(sizes, len(codes)) for sizes in zip(*columns, strict=True)]
    texts = [
        None if any(map(math.isnan, sizes)) else written([f"{size:.0f}" for size in sizes])
        for sizes in codes
    ]
    return text_column(np.array(places, dtype=np.int64), texts)


def _duration(counters: Mapping[str, Array], warnings: list[str], rows: int) -> Array:
    """Return nanoseconds a launch, NaN where the file has none."""
    for name in DURATIONS:
        if name in counters:
            values = np.asarray(counters[name], dtype=float)
            # no kernel takes no time: a 0 stands where the measurement failed
            values = np.where(values == 0, np.nan, values)
            lacking = int(np.isnan(values).sum())
            if lacking:
                warnings.append(
                    f"{count(lacking, 'launch has', 'launches have')} no duration ({name} is "
                    "empty or 0)."
                )
            return values
    warnings.append(
        f"No durations: the export lacks {DURATION}, so a timing pass is needed to merge it."
    )
    return np.full(rows, np.nan)


def _without_infinity(counters: dict[str, Any], warnings: list[str]) -> None:
    """Make infinities missing, which ncu prints for a division by zero."""
    for name, values in counters.items():
        if not isinstance(values, np.ndarray) or not (endless := np.isinf(values)).any():
            continue
        counters[name] = np.where(endless, np.nan, values)
        where = count(int(endless.sum()), "launch", "launches")
        warnings.append(f"{name} is infinite in {where}, where it now has no value.")


def _only(column: pd.Series[Any]) -> str | None:
    """Return the one value of a column; several are joined."""
    values = [str(value) for value in column.unique() if not pd.isna(value)]
    return ", ".join(values) if values else None


_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}

_NANOSECONDS = {
    "ps": 1e-3,
    "ns": 1.0,
    "us": 1e3,
    "µs": 1e3,
    "μs": 1e3,
    "ms": 1e6,
    "s": 1e9,
    "psecond": 1e-3,
    "nsecond": 1.0,
    "usecond": 1e3,
    "msecond": 1e6,
    "second": 1e9,
    "sec": 1e9,
    "minute": 60e9,
    "min": 60e9,
    "hour": 3600e9,
    "h": 3600e9,
}

_PREFIXED = re.compile(r"([kKMGTPE])([a-z][a-z_ ]+)")
"""An upper-case prefix before a lower-case word of two letters or more: ``Mbyte``, not ``SM``."""

_PEAK = re.compile(r"[gG][hH]z|[mM][hH]z|[kK][hH]z")


@functools.lru_cache(maxsize=4096)
def to_base(unit: str) -> tuple[float, str]:
    """Return the factor from a unit to its base unit, and the base unit's name.

    A time is a number of nanoseconds; a rate is a number a second. A unit that is no multiple of
    another one (``%``, ``warp``, ``register/thread``) is its own base.

    Examples
    --------
    >>> to_base("us")
    (1000.0, 'ns')
    >>> to_base("Kbyte/block")
    (1000.0, 'byte/block')
    >>> to_base("sector/ns")
    (1000000000.0, 'sector/s')
    >>> to_base("Ghz")
    (1000000000.0, 'hz')
    """
    unit = unit.strip()
    if not unit:
        return 1.0, ""
    above, slash, below = unit.partition("/")
    factor, name = _part(above.strip())
    if not slash:
        return factor, name
    below = below.strip()
    if below in _NANOSECONDS:
        # A rate counts per second, although a time counts in nanoseconds.
        factor = factor * (1e9 / _NANOSECONDS[below])
        return (factor, "hz") if name == "cycle" else (factor, f"{name}/s")
    divisor, base = _part(below)
    return factor / divisor, f"{name}/{base}"


def _part(word: str) -> tuple[float, str]:
    if word in _NANOSECONDS:
        return _NANOSECONDS[word], "ns"
    if _PEAK.fullmatch(word):
        return _PREFIXES[word[0].lower()], "hz"
    if word.lower() == "hz":
        return 1.0, "hz"
    match = _PREFIXED.fullmatch(word)
    if match is not None:
        return _PREFIXES[match.group(1).lower()], match.group(2)
    return 1.0, word
