"""Claims about all layers and about kernels: judged on a recording, which is another GPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from perfml.reproduce.claims import (
    CARRIES,
    DOES_NOT_CARRY,
    NOT_REPRODUCED,
    NOT_TESTABLE,
    REPRODUCED,
    USUAL,
    Claim,
)
from perfml.reproduce.published import KEY_METRIC
from perfml.reproduce.splits import Runs
from perfml.reproduce.summary import ordered_top
from perfml.util.words import percent
from studies.reproduction.network import COPY, MULTIPLY, UNITS, judged_on
from studies.reproduction.public_runs import tensorrt_claims
from studies.reproduction.published import SHAPES, layer_number


def layer_claims(data: str, facts: dict[str, Any] | None, reason: str = "") -> list[Claim]:
    """Judge the claims about layers and kernels.

    `facts` are those of `studies.reproduction.network.network_facts`, or None for some `reason`;
    `data` is what is named for claims that nothing at hand can judge.
    """
    found = [Claim(claim, NOT_TESTABLE, why, "Figure 2-4", data) for claim, why in _NOWHERE]
    found += tensorrt_claims()
    if facts is None:
        absent = "No recording of the 21 layers is at hand" + (f": {reason}." if reason else ".")
        return found + [
            Claim(claim, NOT_TESTABLE, absent, where, data) for claim, where, _ in _RECORDED
        ]
    name = judged_on(facts)
    return found + [Claim(claim, *judge(facts), where, name) for claim, where, judge in _RECORDED]


_NOWHERE = (
    (
        "TensorRT is fastest along all layers, cuDNN in the middle, cuBLAS slowest",
        (
            "The published file has two of 21 layers, and the recording has no TensorRT: the "
            "build that could be installed refuses compute capability 9.0."
        ),
    ),
    (
        "TensorRT with INT8 is fastest, with a significant loss of accuracy",
        "No data holds INT8 runs or detection accuracies.",
    ),
)

_Judged = tuple[str, str]


def key_metric_claim(name: str, runs: Runs) -> Claim:
    """Judge on a recording whether the key metric matters when whole layers are held out."""
    claim = f"{KEY_METRIC} is one of the most important metrics, on {len(runs.layers)} layers"
    names = runs.problem.design.names
    if KEY_METRIC not in names:
        return Claim(claim, NOT_TESTABLE, f"{KEY_METRIC} is no feature of it.", "2.4.2", name)
    column = names.index(KEY_METRIC)
    told, shares = [], []
    for model, each in runs.unseen.items():
        if each.importance is None:
            continue
        top = ordered_top(each.importance)
        shares.append(float((top == column).any(axis=1).mean()))
        usual = np.bincount(top[:, 0], minlength=len(names)).argmax()
        told.append(f"{model} {percent(shares[-1])} (usually first: {names[usual]})")
    scores = ", ".join(f"{model} {each.score.mean():.2f}" for model, each in runs.unseen.items())
    return Claim(
        claim,
        _verdict(min(shares) >= USUAL),
        f"Among the first three (share of folds, one layer held out each): {', '.join(told)}. "
        f"Mean MAPE on the held-out layers: {scores}.",
        "2.4.2",
        name,
    )


def _verdict(right: bool) -> str:
    """Return the verdict on a claim about one GPU and its library from another's recording."""
    return CARRIES if right else DOES_NOT_CARRY


def _all_layers(facts: dict[str, Any]) -> _Judged:
    times: pd.DataFrame = facts["times"]
    if not {"cublas", "cudnn"} <= set(times.columns):
        return NOT_TESTABLE, "The recording does not hold both libraries."
    both = times[["cublas", "cudnn"]].dropna()
    wins = int((both["cudnn"] < both["cublas"]).sum())
    total = both.sum()
    told = (
        f"cuDNN is faster in {wins} of {len(both)} layers; all together {total['cudnn']:.0f} µs "
        f"against {total['cublas']:.0f} µs of cuBLAS (medians, batch 1, another GPU and cuDNN)."
    )
    return _verdict(wins == len(both)), told


def _slowest(facts: dict[str, Any]) -> _Judged:
    times: pd.DataFrame = facts["times"]
    slowest = {
        str(name): [layer_number(layer) for layer in times[name].nlargest(3).index]
        for name in times.columns
    }
    told = ", ".join(
        f"under {name} {' > '.join(map(str, layers))}" for name, layers in slowest.items()
    )
    first = set(slowest[facts["filters_backend"]][:2])
    return _verdict(first == {3, 20}), f"The slowest are {told}."


def _filters(facts: dict[str, Any]) -> _Judged:
    count, slow, layers = _with_filter(facts, "slow", "3x3")
    return _verdict(count == slow), f"{count} of {slow} slow layers ({layers}) have 3x3."


def _fast(facts: dict[str, Any]) -> _Judged:
    count, fast, layers = _with_filter(facts, "fast", "1x1")
    return _verdict(count * 2 > fast), f"{count} of {fast} fast layers ({layers}) have 1x1."


MANY_FILTERS = 128


def _many_filters(facts: dict[str, Any]) -> _Judged:
    counts = {}
    for speed in ("fast", "slow"):
        numbers = [int(each) for each in facts["filters"].query("speed == @speed")["layer"]]
        many = sum(SHAPES[number].filters > MANY_FILTERS for number in numbers)
        counts[speed] = (many, len(numbers))
    (fast, of_fast), (slow, of_slow) = counts["fast"], counts["slow"]
    told = (
        f"{fast} of {of_fast} fast layers and {slow} of {of_slow} slow ones have more than "
        f"{MANY_FILTERS} filters."
    )
    return _verdict(fast * 2 > of_fast and 0 < slow < of_slow), told


BOUND, IDLE, NEAR = 0.6, 0.2, 2.0
"""A unit that busy bounds a kernel (Nsight Compute's own line), that idle does not; two units
within this factor of each other are in balance."""


def _copy_bound(facts: dict[str, Any]) -> _Judged:
    table = facts["units"].query("part == 'copy'")
    if table.empty:
        return NOT_TESTABLE, "The recording has no counters of im2col under cuBLAS."
    bound = all(
        max(row.dram_utilization, row.l2_utilization) >= BOUND
        and row.single_precision_fu_utilization <= IDLE
        for row in table.itertuples()
    )
    return _verdict(bound), f"im2col, {_busy(table)}. Bound means a memory busy {percent(BOUND)}."


def _product_balanced(facts: dict[str, Any]) -> _Judged:
    table = facts["units"].query("part == 'multiply'")
    if table.empty:
        return NOT_TESTABLE, "The recording has no counters of the product under cuBLAS."
    ratios = [
        row.single_precision_fu_utilization / max(row.dram_utilization, row.l2_utilization, 1e-9)
        for row in table.itertuples()
    ]
    balanced = all(1 / NEAR <= ratio <= NEAR for ratio in ratios)
    return _verdict(balanced), f"The product, {_busy(table)}. Balanced means within a factor of 2."


def _busy(table: pd.DataFrame) -> str:
    names = dict(zip(UNITS, ("DRAM", "L2", "FP32 units"), strict=True))
    return "; ".join(
        f"layer {layer_number(row['layer'])}: "
        + ", ".join(f"{names[unit]} busy {percent(row[unit])}" for unit in UNITS)
        for _, row in table.iterrows()
    )


def _with_filter(facts: dict[str, Any], speed: str, size: str) -> tuple[int, int, str]:
    """Return how many layers of a speed have a filter, how many there are, and which."""
    some = facts["filters"].query("speed == @speed")
    return int((some["filter"] == size).sum()), len(some), ", ".join(map(str, some["layer"]))


def _cells(facts: dict[str, Any]) -> _Judged:
    table: pd.DataFrame = facts["filters"]
    right = int(table["published_cell"].sum())
    told = (
        f"{right} of {len(table)} layers stand in the published cell. Which of them were marked "
        "fast or slow is not in the stored text."
    )
    # of the network, whatever it runs on
    return REPRODUCED if right == len(table) else NOT_REPRODUCED, told


def _structures(facts: dict[str, Any]) -> _Judged:
    table: pd.DataFrame = facts["structures"]
    right = int(table["match"].sum())
    # of the network, whatever it runs on
    return REPRODUCED if right == len(
        table
    ) else NOT_REPRODUCED, f"{right} of {len(table)} entries equal the network's."


def _cublas_kernels(facts: dict[str, Any]) -> _Judged:
    names = _kernels(facts, "cublas")
    if not names:
        return NOT_TESTABLE, "The recording does not hold layer 3 under cuBLAS."
    copies = [name for name in names if COPY.search(name)]
    products = [name for name in names if MULTIPLY.search(name)]
    filled = any("fill" in name.lower() for name in names)
    told = (
        f"{len(names)} different kernels: {len(copies)} that copy or fill (im2col), "
        f"{len(products)} that multiply matrices, {len(names) - len(copies) - len(products)} other"
    )
    exact = filled and bool(copies) and bool(products) and len(names) == 3
    tail = (
        ""
        if exact
        else "; the division into im2col and a matrix product is the same, "
        "the exact set of kernels is not"
        if copies and products
        else ""
    )
    return _verdict(exact), f"{told}{tail}."


def _cudnn_kernels(facts: dict[str, Any]) -> _Judged:
    names = _kernels(facts, "cudnn")
    if not names:
        return NOT_TESTABLE, "The recording does not hold layer 3 under cuDNN."
    winograd = [name for name in names if "wino" in name.lower()]
    shown = "; ".join(name[:60] for name in names[:3])
    return (
        _verdict(bool(winograd) and len(names) == 1),
        f"{len(names)} different kernels, {len(winograd)} with Winograd in the name: {shown}.",
    )


def _kernels(facts: dict[str, Any], backend: str) -> list[str]:
    table: pd.DataFrame = facts["kernels"]
    mine = table[(table["backend"] == backend) & np.isfinite(table["time_us"])]
    return [str(name) for name in mine["kernel"].unique()]


_RECORDED: tuple[tuple[str, str, Callable[[dict[str, Any]], _Judged]], ...] = (
    ("cuDNN is faster than cuBLAS in every layer", "Figure 2-4", _all_layers),
    ("Layers 3 and 20 are the slowest (under cuBLAS)", "2.4.2", _slowest),
    ("All slow layers (the slowest five under cuBLAS) have 3x3 filters", "Table 2.3", _filters),
    ("Fast layers mostly have 1x1 filters", "Table 2.3", _fast),
    (
        "Which layers have which filter size and at least 128 input channels",
        "Table 2.3",
        _cells,
    ),
    ("Structures of layers 3 and 20", "Table 2.4", _structures),
    ("Layer 3 under cuBLAS: fill, im2col and sgemm kernels", "Figure 2-5", _cublas_kernels),
    ("Layer 3 under cuDNN: a single Winograd kernel", "Figure 2-5", _cudnn_kernels),
    ("Fast layers tend to have more than 128 filters, slow ones both", "Table 2.3", _many_filters),
    ("im2col is bound by memory bandwidth alone", "2.4.2", _copy_bound),
    ("SGEMM uses memory and compute units in balance", "2.4.2", _product_balanced),
)
