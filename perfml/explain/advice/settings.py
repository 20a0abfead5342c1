"""What another setting of PyTorch gives a whole network: precision, layout, library, batch.

Measured, where the same network was recorded under that setting too; otherwise a bound: no layer is
faster than its operations at the rate of the chip's tensor cores, or its bytes at that of DRAM.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from perfml import chips

Kind = Literal["precision", "batch"]
WORTH = 0.05  # what gives less of the time is not told

_NETWORK = ("workload", "device")
_AMOUNTS = ["weight_bytes", "input_bytes", "output_bytes"]


@dataclass(frozen=True)
class Precision:
    """A type of number to compute in."""

    id: str  # as the column ``precision`` has it
    line: str  # PyTorch's line that asks for it
    # its numerical cost: mantissa bits of the operands, and so a relative rounding error of
    # 2^-(bits + 1) at most (IEEE 754; NVIDIA, TensorFloat-32)
    cost: str


PRECISIONS = {
    each.id: each
    for each in (
        Precision(
            "tf32",
            'torch.set_float32_matmul_precision("high"); torch.backends.cudnn.allow_tf32 = True',
            "operands of products keep 10 bits (relative error 5e-4), sums stay FP32",
        ),
        Precision(
            "fp16",
            'with torch.autocast("cuda", torch.float16): ...',
            "10 bits (5e-4) and nothing above 65,504; training needs torch.amp.GradScaler",
        ),
        Precision(
            "bf16",
            'with torch.autocast("cuda", torch.bfloat16): ...',
            "7 bits (4e-3), with the range of FP32",
        ),
    )
}
"""Narrower types than FP32, the most exact first."""

BACKENDS = {
    "cublas": "torch.backends.cudnn.enabled = False  # convolutions become products of cuBLAS",
    "cudnn": "torch.backends.cudnn.enabled = True",
    "inductor": "model = torch.compile(model)",
}
"""How to take a library of this project's recordings (``collectors/workloads``)."""

LAYOUT = "model = model.to(memory_format=torch.channels_last)  # and the input"
BENCHMARK = "torch.backends.cudnn.benchmark = True  # where shapes repeat"


@dataclass(frozen=True)
class Gain:
    """What a setting gives."""

    kind: Kind
    value: str  # the precision, or the batch size
    backend: str  # under which it was measured; empty of a bound
    # what the network takes then (of a bound, at least) and now; of a batch for each item
    time_us: float
    now_us: float
    line: str  # what to type
    measured: bool
    cost: str

    @property
    def share(self) -> float:
        """The part of the time that it saves."""
        return 1 - self.time_us / self.now_us


def setting_gains(
    layers: pd.DataFrame, recorded: pd.DataFrame, runs: Sequence[Mapping[str, Any]] = ()
) -> tuple[Gain, ...]:
    """Return what other settings give a network, those of each kind that give most first.

    `layers` are the rows of one workload, device, precision and batch, `recorded` all that there
    are, and `runs` their manifests, for the layout of a run (``settings``).
    """
    names = (*_NETWORK, "precision", "batch")
    known = {*names, "iteration"} <= set(layers.columns)
    if not known or len(layers[list(names)].drop_duplicates()) != 1:
        return ()
    for name in _NETWORK:
        recorded = recorded[recorded[name] == layers[name].iloc[0]]
    times = _times(recorded, set(layers["layer"]))
    key = (layers["precision"].iloc[0], layers["batch"].iloc[0])
    same = times[(times["precision"] == key[0]) & (times["batch"] == key[1])]
    mine = same[same["backend"].isin(layers["backend"])]
    if mine.empty:
        return ()
    best = float(mine["time_us"].min())
    found = [
        _measured(row, "precision", best, runs)
        for row in _fastest(times[times["batch"] == key[1]], "precision")
        if row["precision"] in PRECISIONS and row["precision"] != key[0]
    ]
    if not found and key[0] == "fp32":
        found = _bounds(layers, best)
    each = times.assign(time_us=times["time_us"] / times["batch"])
    each = each[(each["precision"] == key[0]) & (each["batch"] > key[1])]
    found += [
        _measured(row, "batch", best / float(key[1]), runs) for row in _fastest(each, "batch")
    ]
    return tuple(gain for gain in found if gain.share >= WORTH)


def _times(rows: pd.DataFrame, wanted: set[Any]) -> pd.DataFrame:
    """Return the time of all of some layers, a row a setting that has all of them."""
    rows = rows[rows["layer"].isin(wanted)]
    keys = ["run_id", "backend", "precision", "batch"]
    sums = rows.groupby([*keys, "iteration"], sort=False)["time_us"].agg(["sum", "count"])
    whole = sums.loc[sums["count"] == len(wanted), "sum"].rename("time_us")
    medians: pd.DataFrame = whole.groupby(level=keys, sort=False).median().reset_index()
    return medians


def _fastest(times: pd.DataFrame, by: str) -> list[dict[Any, Any]]:
    return times.sort_values("time_us", kind="stable").drop_duplicates(by).to_dict("records")


def _measured(
    row: Mapping[Any, Any], kind: Kind, now_us: float, runs: Sequence[Mapping[str, Any]]
) -> Gain:
    manifest = next((each for each in runs if each.get("run_id") == row["run_id"]), {})
    layout = (manifest.get("settings") or {}).get("memory_format")
    precision = PRECISIONS.get(row["precision"]) if kind == "precision" else None
    lines = [precision.line if precision else "", LAYOUT if layout == "channels_last" else ""]
    lines.append(BACKENDS.get(row["backend"], ""))
    cost = precision.cost if precision else f"{row['batch']} items wait for each other"
    line, time = "\n".join(filter(None, lines)), float(row["time_us"])
    return Gain(kind, str(row[kind]), str(row["backend"]), time, now_us, line, True, cost)


def _bounds(layers: pd.DataFrame, now_us: float) -> list[Gain]:
    """Return what narrower types give at most, where the work of each layer is known."""
    chip = chips.of_table(layers)
    if not {"flops", *_AMOUNTS} <= set(layers.columns):
        return []
    work = layers.groupby("layer")[["time_us", "flops", *_AMOUNTS]].median()
    moved = work[_AMOUNTS].sum(axis=1) / chip.peak_dram_bytes_per_us()
    found = []
    for each in PRECISIONS.values():
        least = work["flops"] / chip.peak_flops_per_us(each.id)
        time = float(pd.concat([least, moved], axis=1).max(axis=1, skipna=False).sum(skipna=False))
        if not math.isnan(time):
            found.append(Gain("precision", each.id, "", time, now_us, each.line, False, each.cost))
    return found
