"""Peaks of devices: measured ones, those that follow from the chip, and the file with a user's."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfml.chips import Chip, chip, products, reached
from perfml.errors import InputError, PerfmlError
from perfml.tables import replacing, require_file
from perfml.util.json_values import json_object

MEASURED, DATA_SHEET, REPORTED = "measured", "data sheet", "of the report's device attributes"
COUNTER = "counter peak"
_SAME = 0.01  # a number of the report that differs by less from the vendor's is the vendor's
_EXAMPLES = 3  # devices that an error names of those that are known
_LARGEST = 1 << 20  # bytes of a peaks file; it holds a dozen numbers


@dataclass(frozen=True)
class Peaks:
    """What a device reaches, and how that is known.

    Attributes
    ----------
    device
        Its name, as profilers write it.
    values
        FLOP/s by precision (``fp64``, ``fp32``, ``tf32``, ``fp16``, ``bf16``) and byte/s by level
        (``dram``, ``l2``, ``l1``).
    kinds
        The same names: ``measured``, ``data sheet``, ``counter peak`` (what the profiler divides
        by), ``of the report's device attributes`` or ``given``.
    sources
        Where the numbers come from, one sentence a source.
    """

    device: str | None
    values: dict[str, float]
    kinds: dict[str, str]
    sources: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Say every peak with its kind."""
        said = []
        for kind in dict.fromkeys(self.kinds.values()):
            names = [
                f"{name} {value / 1e12:.3g} {'TB/s' if name in LEVELS else 'TFLOP/s'}"
                for name, value in self.values.items()
                if self.kinds[name] == kind
            ]
            said.append(f"{kind}: {', '.join(names)}")
        return "; ".join(said)

    to_dict = json_object


LEVELS = ("dram", "l2", "l1")  # peaks in byte/s; all others are in FLOP/s


PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16")
"""Peaks in FLOP/s that follow from a chip's rates and clock; the last three of tensor cores."""


def known_peaks(
    device: str, kind: str | None = None, facts: Mapping[str, Any] | None = None
) -> Peaks:
    """Return the peaks of a device: measured ones, then the vendor's, then the profiler's.

    Parameters
    ----------
    device
        Its name, as profilers write it.
    kind
        One kind alone; by default measured ones, completed by the others.
    facts
        What its profile says of it (`perfml.chips.Chip.with_facts`, and ``compute_capability``);
        goes before the vendor's numbers.

    Raises
    ------
    PerfmlError
        If there are none.

    Examples
    --------
    >>> known_peaks("NVIDIA H200").values["dram"]
    4220000000000.0
    >>> known_peaks("NVIDIA H200", "data sheet").values["dram"]
    4800000000000.0
    """
    of_chip = _of_chip(device, facts or {})
    rows = [
        *_reached(device, MEASURED),
        *(row for row in of_chip if REPORTED in row.kinds.values()),
        *_reached(device, DATA_SHEET),
        *(row for row in of_chip if REPORTED not in row.kinds.values()),
        *_reached(device, COUNTER),
    ]
    values: dict[str, float] = {}
    kinds: dict[str, str] = {}
    sources: list[str] = []
    for row in rows:
        new = {name: value for name, value in row.values.items() if name not in values}
        if new and kind in (None, *row.kinds.values()):
            values |= new
            kinds |= {name: row.kinds[name] for name in new}
            sources += row.sources
    if not values:
        raise _unknown(device, kind)
    return Peaks(device, values, kinds, tuple(sources))


def _of_kind(device: str | None, values: Mapping[str, float], kind: str, *sources: str) -> Peaks:
    return Peaks(device, dict(values), dict.fromkeys(values, kind), sources)


def _reached(device: str, kind: str) -> list[Peaks]:
    """Return what was measured of a device, or what its profiler divides by."""
    rows = (row for row in reached(device) if row["kind"] == kind)
    return [_of_kind(device, row["values"], kind, row["source"]) for row in rows]


def _of_chip(device: str, facts: Mapping[str, Any]) -> list[Peaks]:
    """Return the peaks that follow from what the report and the vendor say of a chip."""
    capability = facts.get("compute_capability")
    vendor = chip(device, str(capability) if capability else None)
    said = vendor.with_facts(facts)
    reported: dict[str, float] = {}
    printed: dict[str, float] = {}
    for name in (*PRECISIONS, "dram"):
        ours, theirs = _peak(said, name), _peak(vendor, name)
        if ours > 0:  # a card without tensor cores has no peak of them
            same = math.isclose(ours, theirs, rel_tol=_SAME)
            (printed if same else reported)[name] = theirs if same else ours
    found = []
    if reported:
        found.append(_of_kind(device, reported, REPORTED, _sentence(said, list(reported))))
    if printed:
        source = vendor.sources.get("multiprocessors", "")
        found.append(_of_kind(device, printed, DATA_SHEET, source))
    return found


def _peak(known: Chip, name: str) -> float:
    """Return a peak of a chip in FLOP/s or byte/s."""
    a_us = known.peak_dram_bytes_per_us() if name == "dram" else known.peak_flops_per_us(name)
    return a_us * 1e6


def _sentence(said: Chip, names: list[str]) -> str:
    parts = []
    if set(names) & set(PRECISIONS):
        clock = said.clock_mhz / 1e3
        parts.append(f"{said.multiprocessors:.0f} multiprocessors at {clock:.3g} GHz")
    if "dram" in names:
        parts.append(f"a memory of {said.dram_bytes_per_us / 1e6:.3g} TB/s")
    return f"what the report says of its device: {', '.join(parts)}"


def given_peaks(values: Mapping[str, float]) -> Peaks:
    """Return peaks from plain numbers.

    Raises `PerfmlError` if there is none, or one is not a positive rate.
    """
    return _of_kind(None, _checked(values), "given")


def load_peaks(path: str | Path) -> Peaks:
    """Read the peaks that ``perfml doctor --measure-peaks --out`` wrote.

    Raises `InputError` if it is no such file, `PerfmlError` if a peak is not a positive rate.
    """
    path = Path(path)
    require_file(path)
    cure = "Make it with: perfml doctor --measure-peaks --out peaks.json"
    msg = "not a file of measured peaks"
    try:
        if path.stat().st_size > _LARGEST:
            raise InputError(msg, where=str(path), found="a large file", cure=cure)
        document = json.loads(path.read_bytes())
        values = document["peaks"]
        numbers = {str(name): float(value) for name, value in values.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(msg, where=str(path), cure=cure) from error
    kind = str(document.get("kind", "given"))
    device = document.get("device")
    date = f", {document['date']}" if document.get("date") else ""
    source = f"{document.get('source', path.name)}{date}"
    return _of_kind(None if device is None else str(device), _checked(numbers), kind, source)


def save_peaks(document: Mapping[str, Any], path: str | Path) -> None:
    """Write the document of ``collectors.peaks``, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", "utf-8")


def peaks_of(
    devices: list[str],
    peaks: Mapping[str, float] | Peaks | None,
    facts: Mapping[str, Mapping[str, Any]] | None = None,
) -> Peaks:
    """Return the peaks that hold for a table's devices.

    `peaks` are those that the user gave, `facts` what the profiles say of each device. Raises
    `PerfmlError` if none are given, and the devices are several or nothing is known of the one.
    """
    if isinstance(peaks, Peaks):
        return peaks
    if peaks is not None:
        return given_peaks(peaks)
    if len(devices) != 1:
        raise _unknown(", ".join(devices), None)
    return known_peaks(devices[0], None, (facts or {}).get(devices[0]))


def _unknown(device: str, kind: str | None) -> PerfmlError:
    names = [row["name"] for row in reached()] if kind == MEASURED else list(products())
    examples = ", ".join(dict.fromkeys(names[-_EXAMPLES:]))
    msg = "the peaks of this device are not known"
    if kind is None:
        msg += ", and the profile does not say its clocks and widths (device__attribute_...)"
    return PerfmlError(
        msg,
        found=device or "no device in the table",
        cure="Give the .ncu-rep itself, or its raw page (ncu --import FILE.ncu-rep --csv --page "
        "raw). Or measure them: perfml doctor --measure-peaks --out peaks.json, then "
        f"--peaks peaks.json. {len(set(names))} are known, such as {examples}.",
    )


def _checked(values: Mapping[str, float]) -> dict[str, float]:
    numbers = {str(name): float(value) for name, value in values.items()}
    wrong = {name: value for name, value in numbers.items() if not 0 < value < float("inf")}
    if wrong or not numbers:
        msg = "a peak must be a positive rate"
        raise PerfmlError(msg, found=str(wrong), cure="Give FLOP/s and byte/s, such as 67e12.")
    return numbers
