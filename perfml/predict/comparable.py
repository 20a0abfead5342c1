"""Which layers can be compared with a reference, and why a layer is slow.

Here to change: what is refused, and in which words, in `why_not`; what a slow layer counts beside
its peers, in `unusual_counts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfml.datasets.loading import UNKNOWN
from perfml.errors import PerfmlError
from perfml.kernel_names import short_kernel
from perfml.metrics import load_catalogue
from perfml.modeling.features import BOUND
from perfml.predict.describe import OTHER, shape_columns, with_bounds
from perfml.predict.results import Peer, Reason, SlowestKernel, Unusual

_RANGE = 4.0
"""Factor beyond the reference's smallest and largest bound of a family that is still compared."""

AXES = ("device", "backend", "precision", "usual_kind")
"""What a reference may never have seen of a layer, the gravest first."""

_COLLECT = "Layers, shapes and counters come with: perfml collect torch:LIBRARY/MODEL --out run/"
_PEAKS = "There: perfml doctor --measure-peaks --out peaks.json; then add --peaks peaks.json."
_INGEST = (
    "Name it: perfml ingest RUN --precision fp32 --out named.parquet; then perfml predict "
    "named.parquet"
)

_COUNTED = {
    "flops": ("flop_count_sp", "flop_count_dp", "flop_count_hp"),
    "input_bytes": ("dram_read_bytes",),
    "output_bytes": ("dram_write_bytes",),
}


def by_counters(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows whose work is what counters counted instead of what shapes say.

    For profiles without shapes. All rows are of one family then, since kinds are not known;
    operations of tensor cores have no counter and count nothing.
    """
    counted = rows.copy()
    for name, metrics in _COUNTED.items():
        counted[name] = counted.reindex(columns=list(metrics)).sum(axis=1, min_count=1)
    counted["flops"] = counted["flops"].fillna(0.0)
    for name in ("weight_bytes", "parameters"):
        counted[name] = 0.0
    moved = counted["input_bytes"] + counted["output_bytes"]
    counted["arithmetic_intensity"] = counted["flops"] / moved.where(moved > 0)
    for name in ("kind", "usual_kind", "input", "output", "size", "stride"):
        counted[name] = pd.array([pd.NA] * len(rows), dtype="string")
    counted["family"] = pd.array([OTHER] * len(rows), dtype="string")
    return with_bounds(counted)


def _refused(why: str, cure: str = _COLLECT) -> PerfmlError:
    return PerfmlError(why, cure=cure)


def why_not(rows: pd.DataFrame, known: pd.DataFrame, *, by_shape: bool) -> list[PerfmlError | None]:
    """Return why each row cannot be compared; None for those that can.

    Rows are prepared; `by_shape` compares shapes, else counted work.
    """
    ranges = {
        str(family): (float(part.min()), float(part.max()))
        for family, part in known.groupby("family")[BOUND]
    }
    lone = {
        name: known[name].iloc[0] for name in ("backend", "precision") if len(set(known[name])) == 1
    }
    notes = []
    for row in rows.to_dict("records"):
        unnamed = _refused("the run does not name its GPU") if pd.isna(row["device"]) else None
        note = unnamed or _unknown_work(row, by_shape=by_shape)
        notes.append(note or _unlike_all(row, ranges, lone))
    return notes


def _unknown_work(row: Mapping[Any, Any], *, by_shape: bool) -> PerfmlError | None:
    """Say what is missing of a row's work or of its machine's peaks."""
    if by_shape and (pd.isna(row["kind"]) or pd.isna(row["input_bytes"] + row["output_bytes"])):
        return _refused("the run does not say what this layer computes")
    if not by_shape and pd.isna(row["input_bytes"] + row["output_bytes"]):
        return _refused("neither shapes nor dram_read_bytes and dram_write_bytes are known")
    if pd.isna(row[BOUND]):
        device = "of a GPU that is not named" if pd.isna(row["device"]) else f"of {row['device']}"
        return _refused(f"the peaks {device} are not known", _PEAKS)
    if row["flops"] > 0 and pd.isna(row["compute_us"]):
        if pd.isna(row["precision"]) or row["precision"] == UNKNOWN:
            why = (
                "the run does not name the precision of its layers (fp32, tf32, fp16, ...). "
                "Peaks depend on it"
            )
            return _refused(why, _INGEST)
        return _refused(f"no peak of {row['precision']} is known for {row['device']}", _PEAKS)
    return None


def _unlike_all(
    row: Mapping[Any, Any], ranges: Mapping[str, tuple[float, float]], lone: Mapping[str, object]
) -> PerfmlError | None:
    """Say in what a row lies outside everything that the reference holds."""
    for name, only in lone.items():
        if row[name] != only:
            return _refused(f"the reference has no {name} but {only}, and this is {row[name]}")
    family, bound = str(row["family"]), float(row[BOUND])
    if family not in ranges:
        return _refused(f"the reference has no layer of this family ({family})")
    smallest, largest = ranges[family]
    if smallest / _RANGE <= bound <= largest * _RANGE:
        return None
    size = "smaller" if bound < smallest else "larger"
    return _refused(f"much {size} than every layer of its family ({family}) in the reference")


def unseen_axes(rows: pd.DataFrame, known: pd.DataFrame, *, by_shape: bool) -> list[str | None]:
    """Return which of `AXES` has a value that the reference never saw, for each row, or None.

    A backend counts as unseen, too, where none of its rows has the precision.
    """
    names = AXES if by_shape else AXES[:-1]
    unseen = {name: ~rows[name].isin(known[name]).to_numpy(dtype=bool) for name in names}
    pairs, seen = (pd.MultiIndex.from_frame(each[list(AXES[1:3])]) for each in (rows, known))
    unseen["backend"] |= ~pairs.isin(seen) & ~unseen["precision"]
    return [next((name for name in names if unseen[name][at]), None) for at in range(len(rows))]


def weaker(axis: str, row: Mapping[Any, Any]) -> str:
    """Say what a comparison is worth where the reference never saw a value of a row."""
    if axis == "device":
        return (
            f"{row[axis]} is not in the reference: its usual time is shifted by what the layers "
            "here have in common. Few layers make the interval wider"
        )
    within = f" in {row['precision']}" if axis == "backend" else ""
    what = f"{axis.removeprefix('usual_')} {row[axis]}{within}"
    return f"{what} is not in the reference: the interval is as wide as for one left out"


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
            str(peer["workload"]),
            str(peer["layer"]),
            str(peer["kind"]),
            float(peer["time_us"]),
            float(peer[BOUND]),
        )
        for peer in peers.head(_SHOWN).to_dict("records")
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
    from perfml.explain.advice.finding import rank

    names = list(dict.fromkeys(str(key[0]) for key in chosen))
    try:
        found = sorted(advise(layers, kernels=kernels, layers=names).of_layers, key=rank)
    except PerfmlError:
        return {}  # a table without what any rule reads: there is nothing to find
    by_layer: dict[tuple[Any, ...], list[Reason]] = {}
    for one in found:
        reasons = by_layer.setdefault(condition({"layer": one.layer, **vars(one.where)}), [])
        if len(reasons) < _REASONS:
            kernel = short_kernel(one.where.kernel) if one.where.kernel else None
            reasons.append(Reason(one.rules, one.hazard, one.evidence, one.mitigation, kernel))
    return {key: tuple(reasons) for key, reasons in by_layer.items()}


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
