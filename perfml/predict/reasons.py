"""Why a layer is slow: what it counts beside its peers, and what advice finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError
from perfml.kernel_names import short_kernel
from perfml.metrics import load_catalogue
from perfml.modeling.features import BOUND
from perfml.predict.describe import shape_columns
from perfml.predict.results import Peer, Reason, SlowestKernel, Unusual

PEERS = 8
"""Layers of the reference that one is compared with."""

_ALIKE = (
    *("log bound_us", "log flops", "log input_bytes", "log output_bytes", "log weight_bytes"),
    *("log width", "log height", "log reduction", "window", "depthwise"),
)
"""Features that peers resemble a layer in."""

_MUCH = 1.5
"""Factor from which on a count is unusual."""

_SHOWN = 3
_REASONS = 2


def peers_of(row: pd.DataFrame, reference: pd.DataFrame) -> pd.DataFrame:
    """Return the `PEERS` rows of the reference that a layer resembles most.

    They are of the same family and, as far as there are enough of them, of the same precision,
    backend and kind; the nearest by amounts of work and shape first. The layer is a prepared table
    of one row.
    """
    pool: pd.DataFrame = reference[reference["family"].isin([row["family"].iloc[0]])]
    for column in ("precision", "backend", "usual_kind"):
        same = pool[pool[column].isin([row[column].iloc[0]])]
        if len(same) >= PEERS:
            pool = same
    if pool.empty:
        return pool
    own = shape_columns(row)[list(_ALIKE)].fillna(0.0).to_numpy()
    others = shape_columns(pool)[list(_ALIKE)].fillna(0.0).to_numpy()
    distance = np.abs(others - own).sum(axis=1)
    return pool.iloc[np.argsort(distance, kind="stable")[:PEERS]]


def named_peers(peers: pd.DataFrame) -> tuple[Peer, ...]:
    """Return the nearest peers by name."""
    return tuple(
        Peer(
            str(each["workload"]),
            str(each["layer"]),
            str(each["kind"]),
            float(each["time_us"]),
            float(each[BOUND]),
        )
        for each in peers.head(_SHOWN).to_dict("records")
    )


def unusual_counts(
    row: pd.Series[Any], peers: pd.DataFrame, metrics: Sequence[str]
) -> tuple[Unusual, ...]:
    """Return the counts in which a layer differs most from its peers, and that make it slower.

    More of what costs time, or less of what saves it (``better`` in the catalogue). Amounts are
    taken for the layer's own bound: a peer of twice the work may count twice as much.
    """
    catalogue = load_catalogue()
    found = []
    for name in ("kernels", *metrics):
        summed = name == "kernels" or catalogue[name].merge == "sum"
        value = float(row[name]) if pd.notna(row[name]) else np.nan
        theirs = peers[name].to_numpy(dtype=float, na_value=np.nan)
        if summed and name != "kernels":
            theirs = theirs / peers[BOUND].to_numpy(dtype=float) * float(row[BOUND])
        theirs = theirs[np.isfinite(theirs)]
        usual = float(np.median(theirs)) if len(theirs) else np.nan
        if not (value > 0 and usual > 0):
            continue
        factor = value / usual
        helps = name != "kernels" and catalogue[name].better == "higher"
        # outside what all the peers have, not only off their middle
        if (1 / factor if helps else factor) >= _MUCH and not theirs.min() <= value <= theirs.max():
            found.append(Unusual(name, value, usual, factor))
    found.sort(key=lambda each: -abs(np.log(each.factor)))
    return tuple(found[:_SHOWN])


def findings_of(
    layers: pd.DataFrame, kernels: pd.DataFrame | None, chosen: Sequence[tuple[Any, ...]]
) -> dict[tuple[Any, ...], tuple[Reason, ...]]:
    """Return what advice finds in some layers.

    Chosen are layer, backend, precision and batch of each; by these the findings are returned that
    promise most, none for a layer without counters.
    """
    from perfml.explain import advise

    names = list(dict.fromkeys(str(key[0]) for key in chosen))
    try:
        table = advise(layers, kernels=kernels, layers=names).table
    except PerfmlError:
        return {}  # a table without what any rule reads: there is nothing to find
    found: dict[tuple[Any, ...], list[Reason]] = {}
    for each in table.to_dict("records"):
        key = condition(each)
        reasons = found.setdefault(key, [])
        if len(reasons) < _REASONS:
            reasons.append(
                Reason(
                    rules=tuple(map(str, each["rules"])),
                    hazard=str(each["hazard"]),
                    evidence=str(each["evidence"]),
                    mitigation=str(each["mitigation"]),
                    kernel=None if pd.isna(each["kernel"]) else short_kernel(str(each["kernel"])),
                )
            )
    return {key: tuple(reasons) for key, reasons in found.items()}


def slowest_kernel(kernels: pd.DataFrame | None, chosen: tuple[Any, ...]) -> SlowestKernel | None:
    """Return the kernel in which a layer spends most of its time; None without launches.

    Chosen are layer, backend, precision and batch, as `condition` returns them.
    """
    if kernels is None:
        return None
    own = kernels[kernels["layer"].isin([chosen[0]])]
    for column, value in zip(("backend", "precision", "batch"), chosen[1:], strict=True):
        if value is not None and own[column].notna().any():
            own = own[own[column].isin([value])]
    repeats = own[[name for name in ("run_id", "process", "iteration") if name in own]]
    count = max(1, len(repeats.drop_duplicates()))
    if own.empty:
        return None
    sums = own.groupby("kernel")["time_us"].sum()
    name = str(sums.idxmax())
    launches = int((own["kernel"] == name).sum())
    return SlowestKernel(short_kernel(name), round(launches / count), float(sums.max()) / count)


def condition(row: Any) -> tuple[Any, ...]:
    """Return layer, backend, precision and batch of a row; missing ones are None."""
    values = (row["layer"], row["backend"], row["precision"], row["batch"])
    return tuple(None if pd.isna(value) else value for value in values)
