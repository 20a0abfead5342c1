"""Which time a layer is entered: the n-th occurrence of a range path within its iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from perfml.util.typing import Ints


def occurrences(
    iterations: Ints,
    codes: Ints,
    layers: Sequence[tuple[str, ...]],
    instances: Sequence[int] | Ints | None,
) -> Ints:
    """Return each launch's occurrence of its layer within its iteration, from 0.

    A range stays open while launches run in it or in a range inside it, so coming back from
    ``block/conv`` to ``block`` is the same ``block``. Iteration and layer of each launch, and its
    range instance where that is known, have shape (n,); a code stands for range names, outermost
    first.
    """
    found = np.zeros(len(codes), dtype=np.int64)
    depths = np.array([len(layer) for layer in layers], dtype=np.int64)
    iteration = np.asarray(pd.factorize(iterations)[0], dtype=np.int64)
    if instances is not None:
        return _ranked(iteration, codes, np.asarray(instances))
    nodes = _nodes(layers)
    rows = np.arange(len(codes), dtype=np.int64)
    for depth in range(1, int(depths.max(initial=0)) + 1):
        # the work is that of the names in the file: a deep path is looked at only where it is
        rows = rows[depths[codes[rows]] >= depth]
        node_of = np.array([path[depth - 1] if len(path) >= depth else -1 for path in nodes])
        before = np.maximum(rows - 1, 0)
        node = node_of[codes[rows]]
        entered = (node != node_of[codes[before]]) | (iteration[rows] != iteration[before])
        entered |= rows == 0
        deepest = depths[codes[rows]] == depth
        key = iteration[rows][entered] * (int(node_of.max()) + 1) + node[entered]
        count = count_within(key)
        found[rows[deepest]] = count[np.cumsum(entered) - 1][deepest]
    return found


def _ranked(iterations: Ints, codes: Ints, instances: Ints) -> Ints:
    """Return how many other instances of its path came before each launch's in its iteration.

    Launches of one instance need not follow each other: backward runs through a module with what
    others wait for in between.
    """
    keys = pd.DataFrame({"iteration": iterations, "code": codes, "instance": instances})
    first = keys.drop_duplicates()
    rank = first.groupby(["iteration", "code"], sort=False).cumcount()
    return np.asarray(
        keys.merge(first.assign(rank=rank), how="left")["rank"].to_numpy(), dtype=np.int64
    )


def count_within(keys: Ints) -> Ints:
    """Return how often each key came before, shape as `keys`."""
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]]) if len(keys) else order
    lengths = np.diff(np.r_[starts, len(keys)])
    count = np.empty(len(keys), dtype=np.int64)
    count[order] = np.arange(len(keys)) - np.repeat(starts, lengths)
    return count


def _nodes(layers: Sequence[tuple[str, ...]]) -> list[list[int]]:
    """Return paths as numbers: one for each range within the ranges around it."""
    numbers: dict[tuple[int, str], int] = {}
    paths = []
    for layer in layers:
        path: list[int] = []
        for name in layer:
            around = path[-1] if path else -1
            path.append(numbers.setdefault((around, name), len(numbers)))
        paths.append(path)
    return paths


def layer_column(
    codes: Ints, layers: Sequence[tuple[str, ...]], occurrence: Ints
) -> pd.Series[str]:
    """Return layer names, ``path#n`` from the second occurrence on; missing without a path."""
    most = int(occurrence.max(initial=0)) + 1
    places, pairs = pd.factorize(codes * most + occurrence)
    texts = []
    for pair in pairs.tolist():
        name = "/".join(layers[pair // most]) or None
        turn = pair % most
        texts.append(f"{name}#{turn + 1}" if name is not None and turn else name)
    return text_column(np.asarray(places, dtype=np.int64), texts)


def text_column(codes: npt.NDArray[np.integer[Any]], texts: Sequence[str | None]) -> pd.Series[str]:
    """Return a column of text from numbers and what they stand for."""
    cells = pa.array(texts, pa.large_string()).take(pa.array(codes))
    dtype: Any = pd.StringDtype()
    return pd.Series(dtype.__from_arrow__(cells))
