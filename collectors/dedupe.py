"""Measure layers that launch the same only once (``--dedupe``).

The timing pass tells what every layer launches. Layers with the same kernels, grids and blocks in
the same order are duplicates if their shapes agree too (built-in workloads), or, where shapes are
not known, if their times lie within 10 %: the same GEMM kernel on the same grid may still have
another inner dimension. The counters of one iteration's first one then stand for all of them, in
every iteration. Repeated launches within a layer are still measured one by one: Nsight Compute can
choose launches by range, but takes one launch number only (``--kernel-id`` cannot be repeated).
"""

from __future__ import annotations

import csv
import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.profilers.timing import BYTES
from perfml.errors import InputError
from perfml.ingest.duplicate_layers import OCCURRENCE

TOLERANCE = 0.10
"""How far the times of layers of unknown shape may differ, as a share of the first one's."""
_NOT_SHAPE = ("layer", "name", "index", "reads")
_UNFIT = re.compile(r"[\[\]@,#\"']")
"""Characters that Nsight Compute's range filters give a meaning."""


@dataclass(frozen=True)
class DuplicateLayers:
    """Which layers are measured, and what they stand for.

    Attributes
    ----------
    iteration
        Name of the range of the iteration that is measured; None without iterations.
    groups
        Measured layer to all layers it stands for, itself first.
    launches
        Launches to measure.
    stands_for
        Timed launches, of all iterations, that they stand for.
    """

    iteration: str | None
    groups: dict[str, tuple[str, ...]]
    launches: int
    stands_for: int

    def filters(self) -> tuple[str, ...]:
        """Return Nsight Compute's range filters for the measured layers."""
        prefix = f"{self.iteration}/" if self.iteration else ""
        return tuple(f"{prefix}{layer}/" for layer in self.groups)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "iteration": self.iteration,
            "groups": {layer: list(members) for layer, members in self.groups.items()},
            "launches": self.launches,
            "stands_for": self.stands_for,
        }


def find_duplicates(
    timing: Path,
    *,
    iteration: str | None,
    layers: str | None = None,
    shapes: Sequence[dict[str, Any]] | None = None,
) -> DuplicateLayers:
    """Group the layers of a timing pass.

    `iteration` is the first one's range, `layers` a regular expression of the layers wanted,
    `shapes` what is known of each layer: name under ``layer``, the rest must agree.

    Raises
    ------
    InputError
        If no launch lies in a wanted layer, or a range's name cannot be filtered for.
    """
    sequences: dict[str, list[tuple[str, str, str]]] = {}
    times: dict[str, dict[str, float]] = {}
    counts: dict[str, int] = {}
    first = None
    with timing.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            layer = OCCURRENCE.sub("", row["layer"])
            wanted = layer and (layers is None or re.fullmatch(layers, layer))
            if not wanted or row.get(BYTES):
                continue
            first = row["iteration"] if first is None else first
            counts[layer] = counts.get(layer, 0) + 1
            spent = times.setdefault(layer, {})
            spent[row["iteration"]] = spent.get(row["iteration"], 0.0) + float(row["time_us"])
            if row["iteration"] == first:
                launch = (row["kernel"], row.get("grid") or "", row.get("block") or "")
                sequences.setdefault(layer, []).append(launch)
    if not sequences:
        msg = "no launch lies in a layer, so there is nothing to measure once"
        raise InputError(msg, where="--dedupe", cure="Set NVTX ranges, or leave --dedupe out.")
    unfit = next((name for name in [iteration or "", *sequences] if _UNFIT.search(name)), None)
    if unfit is not None:
        msg = "Nsight Compute cannot select a range of this name"
        cure = "Leave --dedupe out; every launch is measured then."
        raise InputError(msg, where="--dedupe", found=unfit[:120], cure=cure)
    known = {str(each.get("layer")): _shape(each) for each in shapes or []}
    typical = {layer: statistics.median(each.values()) for layer, each in times.items()}
    groups: dict[str, list[str]] = {}
    for layer in sequences:
        twin = next(
            (
                other
                for other in groups
                if sequences[other] == sequences[layer]
                and known.get(other) == known.get(layer)
                and (layer in known or _near(typical[layer], typical[other]))
            ),
            None,
        )
        groups.setdefault(twin or layer, []).append(layer)
    return DuplicateLayers(
        iteration,
        {layer: tuple(members) for layer, members in groups.items()},
        sum(len(sequences[layer]) for layer in groups),
        sum(counts[layer] for layer in sequences),
    )


def _shape(each: dict[str, Any]) -> str:
    kept = {key: value for key, value in each.items() if key not in _NOT_SHAPE}
    return json.dumps(kept, sort_keys=True, default=str)


def _near(left: float, right: float) -> bool:
    return abs(left - right) <= TOLERANCE * right
