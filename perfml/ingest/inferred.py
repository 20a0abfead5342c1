"""What a program did not state, from the names of its kernels: its layers and its precision."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from perfml.account.phases import STEP, Launches, Phase, class_layers, find_phases
from perfml.kernel_names import KernelTraits, kernel_class, kernel_traits
from perfml.util.typing import Floats

NAMED_BY_CLASS = (
    "The profile names no layers. Steps were found by what repeats, and layers by the names of "
    "kernels. decode/attention is the attention of a decode step."
)
_FEW = 3.0
"""Ranges that hold a step's time as evenly as fewer than this many would are no layers."""
_CLASSED = 0.7
"""Part of the time whose kernels have to tell what they do."""
_OCCURRENCE = re.compile(r"#\d+\Z")
"""What tells the second pass through a layer from the first (`perfml.readers.frame`)."""
_OPERATOR = re.compile(r"\w+::\w|nccl:|Torch-Compiled Region|CompiledF|## Call|\w+Backward\d*$")
"""What PyTorch calls the operators that stand for ranges where a program has none."""


def with_phases(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return a run's Kernels table with steps and classes, where it has no better layers.

    It has them of a program that decodes token by token: one whose steps end in sampling, or whose
    kernels of attention are made for decoding. What the user calls a range says nothing of that.
    The column ``phase`` says what the step of each launch is for. Returned with the table is what
    a user has to know; nothing where the table stays as it is.
    """
    if "process" in frame:
        return frame, []
    # rows are in launch order; iterations need not be, where they count the turns of a layer
    named = frame.reset_index(drop=True)
    devices = named["device_id"] if "device_id" in named else pd.Series(0, index=named.index)
    for rows in named.groupby(devices, sort=False).groups.values():
        launches = _launches(named.loc[rows])
        phases = find_phases(launches) if _classed(launches) else ()
        generates = any(phase.kind != STEP for phase in phases)
        if not generates or _told(named.loc[rows], phases) >= _FEW:
            return frame, []
        named.loc[rows, "layer"] = class_layers(launches, phases)
        sizes = [phase.end - phase.first for phase in phases]
        named.loc[rows, "iteration"] = np.repeat(np.arange(len(phases)), sizes)
        named.loc[rows, "phase"] = np.repeat([phase.kind for phase in phases], sizes)
    named["kernel_index"] = named.groupby("iteration").cumcount()
    return named, [NAMED_BY_CLASS]


def _told(rows: pd.DataFrame, phases: Sequence[Phase]) -> float:
    """Return as how many ranges of equal time the ranges in a step tell its time apart."""
    classes = {kernel_class(name).layer for name in rows["kernel"].astype(str).unique()}
    known = {str(layer): _range(str(layer), classes) for layer in rows["layer"].dropna().unique()}
    ranges = [known.get(str(layer), "") for layer in rows["layer"]]
    steps = np.repeat(np.arange(len(phases)), [phase.end - phase.first for phase in phases])
    held = pd.Series(_times(rows)).groupby([steps, ranges]).sum()
    shares = held[held > 0] / held.groupby(level=0).transform("sum")
    return float(np.exp(-(shares * np.log(shares)).groupby(level=0).sum()).mean())


def _range(layer: str, classes: Collection[str]) -> str:
    """Return the range of a layer, without operators and the class of a replayed kernel."""
    path = _OCCURRENCE.sub("", layer).split("/")
    path = path[:-1] if path[-1] in classes else path
    return "/".join(itertools.takewhile(lambda name: not _OPERATOR.match(name), path))


def _classed(launches: Launches) -> bool:
    """Return whether most of the time is of kernels whose names tell what they do."""
    told = np.array([bool(kernel_class(name).id) for name in launches.names])
    times = np.nan_to_num(launches.times, nan=1.0)
    return bool(times[told].sum() >= _CLASSED * times.sum())


def _launches(rows: pd.DataFrame) -> Launches:
    def column(name: str) -> Floats:
        if name not in rows:
            return np.full(len(rows), np.nan)
        return np.asarray(rows[name].to_numpy(dtype=float, na_value=np.nan))

    threads = column("threads")
    if np.isnan(threads).all():
        threads = _sizes(rows["grid"]) * _sizes(rows["block"])
    return Launches(
        rows["kernel"].astype(str).tolist(),
        column("gap_us"),
        threads,
        _times(rows),
        np.nan_to_num(column("replay"), nan=-1).astype(np.int64),
    )


def _times(frame: pd.DataFrame) -> Floats:
    return np.asarray(np.nan_to_num(frame["time_us"].to_numpy(dtype=float), nan=0.0))


def _sizes(column: pd.Series) -> Floats:
    """Return the products of sizes such as ``(16, 1, 1)``; NaN where there are none."""
    known = {
        text: math.prod(map(float, re.findall(r"\d+", text) or ["nan"]))
        for text in column.dropna().astype(str).unique()
    }
    return np.asarray(column.map(known).to_numpy(dtype=float, na_value=np.nan))


MIXED = "mixed"
_ARITHMETIC = ("product", "convolution", "attention")
_PRECISIONS: Mapping[str, str] = {
    "double": "fp64",
    "float": "fp32",
    "tf32": "tf32",
    "half": "fp16",
    "bf16": "bf16",
    "fp8": "fp8",
    "int8": "int8",
}
"""By the types of `perfml.kernel_names.KernelTraits`."""
_TOLD = 0.5
"""Of the time that decides, of at least so much a name has to tell the type."""
_ONE = 0.9
"""A type with so much of what is told is the program's; with less it is mixed."""


def precision_of(kernels: pd.DataFrame) -> str | None:
    """Return the precision of a program, ``mixed``, or None where names do not tell it.

    Parameters
    ----------
    kernels
        Launches with ``kernel`` and ``time_us``, all of one program.

    Examples
    --------
    >>> precision_of(pd.DataFrame({"kernel": ["ampere_sgemm_128x64_nn"], "time_us": [7.0]}))
    'fp32'
    """
    named = kernels[kernels["kernel"].notna()]
    times = named.groupby(named["kernel"].astype(str))["time_us"].sum()
    traits = {name: kernel_traits(name) for name in times.index}
    decides = times[[_decides(traits[name]) for name in times.index]]
    decides = decides if decides.sum() > 0 else times
    told = decides.groupby([_PRECISIONS.get(traits[name].type, "") for name in decides.index]).sum()
    known = told.drop("", errors="ignore")
    if not known.sum() >= _TOLD * decides.sum() > 0:
        return None
    return str(known.idxmax()) if known.max() >= _ONE * known.sum() else MIXED


def _decides(traits: KernelTraits) -> bool:
    return traits.does in _ARITHMETIC and traits.tensor_cores is not None
