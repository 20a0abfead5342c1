"""The files of this room, read once: capabilities, products, and what devices reach."""

from __future__ import annotations

import csv
import functools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from perfml.chips.chip import UNKNOWN, Chip

_UNITS = {"dram_gb_per_s": ("dram_bytes_per_us", 1e3), "l2_mib": ("l2_bytes", 2.0**20)}
"""Columns of products in the units of data sheets: the number of a chip, and its factor."""
_TEXTS = ("name", "capability", "source")


@dataclass(frozen=True)
class Reached:
    """What a device reaches beyond what follows from its numbers: FLOP/s, and byte/s by level.

    `kind` is ``measured``, ``data sheet`` (as printed), or ``counter peak`` (what the profiler
    divides by).
    """

    name: str
    kind: str
    source: str
    values: Mapping[str, float]


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


@functools.cache
def all_reached() -> tuple[Reached, ...]:
    """Return what was measured of devices, and the peaks that profilers divide by."""
    return tuple(
        Reached(row["name"], row["kind"], row["source"], row["values"])
        for row in _sources()["reached"]
    )


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
