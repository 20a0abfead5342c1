"""From what a reader found to the Kernels table: ranges become iterations and layers."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from perfml.tables import KERNEL_COLUMNS, KERNEL_OPTIONAL, validate_kernels

ITERATION = re.compile(r"(?:iter|iteration|step)[_\- ]?(\d+)", re.IGNORECASE)
"""A range of this name counts repeats of the workload; it is no layer."""


def split_range(path: Sequence[str]) -> tuple[int | None, tuple[str, ...]]:
    """Split nested range names, outermost first, into an iteration and a layer name.

    Returns
    -------
    iteration
        From the first range called like ``iter_3``; None without one.
    layer
        The other names.

    Examples
    --------
    >>> split_range(["iter_3", "conv_01"])
    (3, ('conv_01',))
    >>> split_range(["model", "block", "conv"])
    (None, ('model', 'block', 'conv'))
    """
    iteration: int | None = None
    layer: list[str] = []
    for name in path:
        match = ITERATION.fullmatch(name.strip()) if iteration is None else None
        if match:
            iteration = int(match.group(1))
        else:
            layer.append(name)
    return iteration, tuple(layer)


def kernels_frame(
    launches: pd.DataFrame,
    ranges: Sequence[Sequence[str]],
    *,
    instances: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Make a Kernels table of launches in launch order.

    A layer is a range path and its occurrence, so the same path entered again is another
    occurrence: the n-th one within an iteration is called ``path#n`` (from the second on). Without
    iteration ranges the occurrences *are* the iterations.

    Parameters
    ----------
    launches
        One row a launch, in launch order: ``kernel`` and ``time_us`` at least, any other column of
        the Kernels table, and metrics.
    ranges
        Names of the ranges around each launch, outermost first; empty outside every range.
    instances
        Where the source tells them apart, a number for the range instance each launch ran in.
        Without it, consecutive launches in one path count as one occurrence.

    Returns
    -------
    DataFrame
        A valid Kernels table; run columns that are not in `launches` are missing values.
    """
    frame = launches.reset_index(drop=True).copy()
    found = [split_range(path) for path in ranges]
    paths = [layer for _, layer in found]
    numbered = any(iteration is not None for iteration, _ in found)
    iterations = [iteration if iteration is not None else 0 for iteration, _ in found]
    occurrence = _occurrences(iterations, paths, instances)
    layers = ["/".join(path) or None for path in paths]
    if numbered:
        layers = [
            f"{layer}#{n + 1}" if layer is not None and n else layer
            for layer, n in zip(layers, occurrence, strict=True)
        ]
    else:
        iterations = occurrence
    frame["iteration"] = np.asarray(iterations, dtype="int64")
    frame["layer"] = pd.Series(layers, dtype="object", index=frame.index)
    frame["kernel_index"] = frame.groupby("iteration").cumcount()
    for name in KERNEL_COLUMNS:
        if name not in frame.columns:
            frame[name] = np.nan if name == "time_us" else None
    strings = {*KERNEL_COLUMNS, "time_source"} - {"batch", "iteration", "kernel_index", "time_us"}
    for name in strings & set(frame.columns):
        frame[name] = frame[name].astype("string")
    frame["batch"] = pd.to_numeric(frame["batch"]).astype("Int64")
    for name in ("time_us", *KERNEL_OPTIONAL):
        if name in frame.columns and name != "time_source":
            frame[name] = pd.to_numeric(frame[name])
    return validate_kernels(frame)


def _occurrences(
    iterations: list[int], layers: list[tuple[str, ...]], instances: Sequence[int] | None
) -> list[int]:
    """Return each launch's occurrence of its layer within its iteration, from 0.

    A range stays open while launches run in it or in a range inside it, so coming back from
    ``block/conv`` to ``block`` is the same ``block``.
    """
    count: dict[tuple[int, tuple[str, ...]], int] = {}
    opened: dict[tuple[str, ...], int] = {}
    last: tuple[int, tuple[str, ...], int | None] = (0, (), None)
    found: list[int] = []
    for row, (iteration, path) in enumerate(zip(iterations, layers, strict=True)):
        instance = instances[row] if instances is not None else None
        again = path == last[1] and instance != last[2]
        if iteration != last[0]:
            opened = {}
        opened = {
            known: number
            for known, number in opened.items()
            if path[: len(known)] == known and not (again and known == path)
        }
        for depth in range(1, len(path) + 1):
            prefix = path[:depth]
            if prefix not in opened:
                key = (iteration, prefix)
                count[key] = opened[prefix] = count.get(key, -1) + 1
        found.append(opened[path] if path else 0)
        last = (iteration, path, instance)
    return found
