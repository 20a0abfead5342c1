"""Peaks of devices: tabulated ones, measured ones, and the file that carries them."""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from perfml.errors import InputError, PerfmlError
from perfml.tables import replacing, require_file

MEASURED, DATA_SHEET, REPORTED = "measured", "data sheet", "of the report's device attributes"
_LARGEST = 1 << 20
"""Bytes of a peaks file; it holds a dozen numbers."""


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

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "device": self.device,
            "values": dict(self.values),
            "kinds": dict(self.kinds),
            "sources": list(self.sources),
        }


LEVELS = ("dram", "l2", "l1")
"""Peaks in byte/s; all others are in FLOP/s."""


def known_peaks(device: str, kind: str | None = None) -> Peaks:
    """Return the tabulated peaks of a device.

    Parameters
    ----------
    device
        Its name, as profilers write it.
    kind
        One kind alone; by default measured ones, completed by the vendor's and the profiler's.

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
    values: dict[str, float] = {}
    kinds: dict[str, str] = {}
    sources: list[str] = []
    for row in _table():
        if row["device"] != device or kind not in (None, row["kind"]):
            continue
        new = {name: float(value) for name, value in row["values"].items() if name not in values}
        if new:
            values |= new
            kinds |= dict.fromkeys(new, row["kind"])
            sources.append(row["source"])
    if not values:
        raise _unknown(device, kind)
    return Peaks(device, values, kinds, tuple(sources))


def given_peaks(values: Mapping[str, float]) -> Peaks:
    """Return peaks from plain numbers.

    Raises
    ------
    PerfmlError
        If there is none, or one is not a positive rate.
    """
    return Peaks(None, _checked(values), dict.fromkeys(values, "given"))


def load_peaks(path: str | Path) -> Peaks:
    """Read the peaks that ``perfml doctor --measure-peaks --out`` wrote.

    Raises
    ------
    InputError
        If it is no such file.
    PerfmlError
        If a peak is not a positive rate.
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
    return Peaks(
        None if device is None else str(device),
        _checked(numbers),
        dict.fromkeys(numbers, kind),
        (source,),
    )


def save_peaks(document: Mapping[str, Any], path: str | Path) -> None:
    """Write the document of ``collectors.peaks``, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", "utf-8")


def reported_peaks(device: str, facts: Mapping[str, Any]) -> Peaks | None:
    """Return the peaks that follow from what a report says of its device; None where none does.

    Parameters
    ----------
    device
        Its name.
    facts
        Those of ``multiprocessors``, ``clock_khz``, ``memory_clock_khz``, ``memory_bus_bits`` and
        ``compute_capability`` that are known. The clocks are the highest of the device, and a
        memory moves two values a cycle (CUDA Runtime API, ``cudaDeviceProp``).

    Examples
    --------
    >>> laptop = {"memory_clock_khz": 8001000.0, "memory_bus_bits": 128.0}
    >>> reported_peaks("NVIDIA GeForce RTX 4060 Laptop GPU", laptop).values
    {'dram': 256032000000.0}
    """
    values: dict[str, float] = {}
    said: list[str] = []
    lanes = lanes_of(str(facts.get("compute_capability")))
    count, clock = facts.get("multiprocessors"), facts.get("clock_khz")
    if count and clock and lanes:
        # a multiply-add is two operations
        values = {name: 2e3 * count * clock * lane for name, lane in lanes.items()}
        said.append(f"{count:.0f} multiprocessors at {clock / 1e6:.3g} GHz")
    clock, bits = facts.get("memory_clock_khz"), facts.get("memory_bus_bits")
    if clock and bits:
        values["dram"] = 2e3 * clock * bits / 8
        said.append(f"a memory of {bits:.0f} bit at {clock / 1e6:.3g} GHz")
    if not values:
        return None
    source = f"what the report says of its device: {', '.join(said)}"
    return Peaks(device, values, dict.fromkeys(values, REPORTED), (source,))


def peaks_of(
    devices: list[str],
    peaks: Mapping[str, float] | Peaks | None,
    facts: Mapping[str, Mapping[str, Any]] | None = None,
) -> Peaks:
    """Return the peaks that hold for a table's devices.

    Parameters
    ----------
    devices
        Their names.
    peaks
        Those that the user gave.
    facts
        What the profiles say of each device, for one that is not tabulated.

    Raises
    ------
    PerfmlError
        If none are given, and the devices are several or nothing is known of the one.
    """
    if isinstance(peaks, Peaks):
        return peaks
    if peaks is not None:
        return given_peaks(peaks)
    if len(devices) != 1:
        raise _unknown(", ".join(devices), None)
    device = devices[0]
    if not any(row["device"] == device for row in _table()):
        reported = reported_peaks(device, (facts or {}).get(device, {}))
        if reported is not None:
            return reported
    return known_peaks(device)


@functools.cache
def _file() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("peaks.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _table() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _file()["peaks"]
    return rows


def lanes_of(capability: str) -> dict[str, int]:
    """Return multiply-adds a cycle of a multiprocessor by precision; none of an unknown one.

    Examples
    --------
    >>> lanes_of("9.0")["fp64"], lanes_of("8.9")["fp64"]
    (64, 2)
    """
    lanes: dict[str, dict[str, int]] = _file()["lanes"]
    return lanes.get(capability, {})


def _unknown(device: str, kind: str | None) -> PerfmlError:
    rows = [row for row in _table() if kind in (None, row["kind"])]
    names = ", ".join(dict.fromkeys(row["device"] for row in rows))
    msg = "the peaks of this device are not known"
    if kind is None:
        msg += ", and the profile does not say its clocks and widths (device__attribute_...)"
    return PerfmlError(
        msg,
        found=device or "no device in the table",
        cure="Give the .ncu-rep itself or its raw page (ncu --import FILE.ncu-rep --csv --page "
        "raw), or measure them (perfml doctor --measure-peaks --out peaks.json) and give them "
        f"(--peaks peaks.json); known are: {names}.",
    )


def _checked(values: Mapping[str, float]) -> dict[str, float]:
    numbers = {str(name): float(value) for name, value in values.items()}
    wrong = {name: value for name, value in numbers.items() if not 0 < value < float("inf")}
    if wrong or not numbers:
        msg = "a peak must be a positive rate"
        raise PerfmlError(msg, found=str(wrong), cure="Give FLOP/s and byte/s, such as 67e12.")
    return numbers
