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

MEASURED, DATA_SHEET = "measured", "data sheet"
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
        by) or ``given``.
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


def peaks_of(devices: list[str], peaks: Mapping[str, float] | Peaks | None) -> Peaks:
    """Return the peaks that hold for a table's devices.

    Raises
    ------
    PerfmlError
        If none are given, and the devices are several or have none in the table.
    """
    if isinstance(peaks, Peaks):
        return peaks
    if peaks is not None:
        return given_peaks(peaks)
    if len(devices) != 1:
        raise _unknown(", ".join(devices), None)
    return known_peaks(devices[0])


@functools.cache
def _table() -> tuple[dict[str, Any], ...]:
    text = resources.files(__package__).joinpath("peaks.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)["peaks"])


def _unknown(device: str, kind: str | None) -> PerfmlError:
    rows = [row for row in _table() if kind in (None, row["kind"])]
    names = ", ".join(dict.fromkeys(row["device"] for row in rows))
    msg = "the peaks of this device are not known"
    return PerfmlError(
        msg,
        found=device or "no device in the table",
        cure="Measure them (perfml doctor --measure-peaks --out peaks.json) and give them "
        f"(--peaks peaks.json); known are: {names}.",
    )


def _checked(values: Mapping[str, float]) -> dict[str, float]:
    numbers = {str(name): float(value) for name, value in values.items()}
    wrong = {name: value for name, value in numbers.items() if not 0 < value < float("inf")}
    if wrong or not numbers:
        msg = "a peak must be a positive rate"
        raise PerfmlError(msg, found=str(wrong), cure="Give FLOP/s and byte/s, such as 67e12.")
    return numbers
