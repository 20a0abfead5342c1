"""Two datasets, compared: which of their measurements answer to each other, and how they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from perfml.errors import PerfmlError
from perfml.report._grids import Cell, Grid, amount, share
from perfml.report._labels import clean, count, listed, micros, number
from perfml.report._times import named_layers
from perfml.report._why import Pair
from perfml.report.summary import Sentence, Sure
from perfml.tables import metric_columns

if TYPE_CHECKING:
    from perfml.explain.sides import Side

_KEYS = ("workload", "device", "backend", "precision", "batch")
"""What tells the measurements of one dataset apart."""

_MOST = 12
"""Comparisons on a page; --where chooses others."""

_MOST_METRICS = 60


@dataclass(frozen=True)
class Comparison:
    """One measurement of either dataset, compared.

    Attributes
    ----------
    pair
        Label, explanation (baseline the first dataset, target the second), rows of both.
    moved
        One row a layer and metric that moved beyond its noise: ``layer, metric, baseline,
        target, difference, noise``.
    tested
        Metrics whose noise is known, in any layer.
    alone
        Side to the metrics that it alone has; they are not compared.
    """

    pair: Pair
    moved: pd.DataFrame
    tested: int
    alone: dict[str, tuple[str, ...]]


def compare_tables(
    left: tuple[str, pd.DataFrame, pd.DataFrame | None],
    right: tuple[str, pd.DataFrame, pd.DataFrame | None],
    *,
    top: int = 2,
    model: str | None = "gbr",
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> tuple[list[Comparison], list[str]]:
    """Compare two datasets, measurement by measurement.

    Measurements that agree in workload, device, backend, precision and batch are compared with
    each other, as far as both tables know these. Where none agree and both hold only one, these
    two are.

    Parameters
    ----------
    left, right
        Name, Layers (or Kernels) table, and the Kernels table behind it or None: baseline and
        target.
    top
        Layers explained in detail in each comparison.
    model, seed
        As for `perfml.explain.explain`.
    progress
        Called as ``progress(done, total, label)``.

    Returns
    -------
    tuple
        The comparisons, and sentences on what was left out.

    Raises
    ------
    PerfmlError
        If no measurement of one answers to one of the other.
    """
    from perfml.explain import explain, make_side
    from perfml.explain.sides import Side

    names = _names(left[0], right[0])
    sides = [
        make_side(name, table, kernels)
        for name, (_, table, kernels) in zip(names, (left, right), strict=True)
    ]
    parts, left_out = _answering(sides[0], sides[1])
    if len(parts) > _MOST:
        left_out.append(f"{len(parts) - _MOST} more measurements: choose them with --where.")
    found = []
    for done, (label, before, after) in enumerate(parts[:_MOST]):
        if progress is not None:
            progress(done, len(parts), label)
        explanation = explain(
            Side(names[0], before[0], before[1], sides[0].warnings),
            Side(names[1], after[0], after[1], sides[1].warnings),
            top=top,
            model=model,
            seed=seed,
        )
        rows = pd.concat(
            [
                named_layers(rows).assign(backend=name)
                for name, rows in zip(names, (before[0], after[0]), strict=True)
            ],
            ignore_index=True,
        )
        alone = _alone(names, before[0], after[0])
        ignored = {metric for each in alone.values() for metric in each}
        moved, tested = _moved(explanation, before[0], after[0], ignored)
        found.append(Comparison(Pair(label, explanation, rows), moved, tested, alone))
    return found, left_out


def _alone(
    names: tuple[str, str], before: pd.DataFrame, after: pd.DataFrame
) -> dict[str, tuple[str, ...]]:
    """Return the metrics that only one side was measured with."""
    has = [
        {name for name in metric_columns(rows) if rows[name].notna().any()}
        for rows in (before, after)
    ]
    only = (sorted(has[0] - has[1]), sorted(has[1] - has[0]))
    return {name: tuple(each) for name, each in zip(names, only, strict=True) if each}


def _names(left: str, right: str) -> tuple[str, str]:
    left, right = clean(left, 80), clean(right, 80)
    return (left, right) if left != right else (f"{left} (first)", f"{right} (second)")


Rows = tuple[pd.DataFrame, pd.DataFrame | None]


def _answering(left: Side, right: Side) -> tuple[list[tuple[str, Rows, Rows]], list[str]]:
    """Return the measurements that both sides have, with their rows, and what only one has."""
    keys = [
        name
        for name in _KEYS
        if all(
            name in side.layers.columns and bool(side.layers[name].notna().any())
            for side in (left, right)
        )
    ]
    before, after = _measurements(left.layers, keys), _measurements(right.layers, keys)
    common = [key for key in before if key in after]
    if not common and len(before) == len(after) == 1:
        (one,), (other,) = before, after
        both = (_rows(left, before[one]), _rows(right, after[other]))
        return [(_told(one, keys, [one]), *both)], []
    if not common:
        msg = "no measurement of one dataset answers to one of the other"
        raise PerfmlError(
            msg,
            found=f"{_listed(before)} against {_listed(after)}",
            cure="Keep one of each with --where, or compare two sides of one table: perfml explain",
        )
    among = list(dict.fromkeys([*before, *after]))
    left_out = [
        f"Only in {side.name}: {listed([_told(key, keys, among) for key in only], 6)}."
        for side, mine, others in ((left, before, after), (right, after, before))
        if (only := [key for key in mine if key not in others])
    ]
    return [
        (_told(key, keys, common), _rows(left, before[key]), _rows(right, after[key]))
        for key in common
    ], left_out


def _measurements(table: pd.DataFrame, keys: list[str]) -> dict[tuple[str, ...], pd.DataFrame]:
    if not keys:
        return {(): table}
    texts = [table[name].astype("string").fillna("–") for name in keys]
    return {tuple(map(str, key)): part for key, part in table.groupby(texts, sort=False)}


def _rows(side: Side, rows: pd.DataFrame) -> Rows:
    if side.kernels is None:
        return rows, None
    kernels = side.kernels
    for name in ("run_id", *_KEYS):
        if name in rows.columns and name in kernels.columns and rows[name].notna().any():
            kernels = kernels[kernels[name].isin(rows[name].dropna().unique())]
    return rows, (None if kernels.empty else kernels)


def _told(key: tuple[str, ...], keys: list[str], among: list[tuple[str, ...]]) -> str:
    """Name a measurement by what tells it from the others, or at least by its backend."""
    shown = [
        place
        for place, name in enumerate(keys)
        if name == "backend" or len({each[place] for each in among}) > 1
    ]
    parts = [f"batch {key[at]}" if keys[at] == "batch" else key[at] for at in shown]
    return clean(", ".join(parts), 120) or "all layers"


def _listed(found: Mapping[tuple[str, ...], Any]) -> str:
    return listed([clean("/".join(key), 80) for key in found], 4)


def _moved(
    explanation: Any, before: pd.DataFrame, after: pd.DataFrame, ignored: set[str]
) -> tuple[pd.DataFrame, int]:
    from perfml.explain.moved import moved_metrics

    parts, tested = [], set()
    for layer, partner in zip(
        explanation.layers["layer"], explanation.layers["target_layer"], strict=True
    ):
        table = moved_metrics(before[before["layer"] == layer], after[after["layer"] == partner])
        table = table[~table["metric"].isin(ignored)]
        tested |= set(table.loc[table["moved"].notna(), "metric"])
        kept = table[table["moved"].fillna(False).astype(bool)].drop(columns="moved")
        if len(kept):
            parts.append(kept.assign(layer=layer))
    columns = ["layer", "metric", "baseline", "target", "difference", "noise"]
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
    return whole[columns], len(tested)


def verdicts(comparison: Comparison) -> dict[str, int]:
    """Count the layers by verdict: slower, faster, no difference, undecided."""
    found = comparison.pair.explanation.layers["verdict"].value_counts()
    words = ("slower", "faster", "no difference", "undecided")
    return {word: int(found.get(word, 0)) for word in words}


def comparison_sentences(found: list[Comparison]) -> list[Sentence]:
    """Say of every comparison which dataset is faster, on how many layers, and what moved."""
    said = []
    for each in found:
        explanation, label = each.pair.explanation, each.pair.label
        total, counts = explanation.total, verdicts(each)
        target, baseline = clean(explanation.target, 80), clean(explanation.baseline, 80)
        layers = len(explanation.layers)
        if total.verdict in ("slower", "faster"):
            text = (
                f"{label}: {target} is {total.verdict} than {baseline}, {micros(total.target_us)} "
                f"against {micros(total.baseline_us)} ({total.ratio:.3f}×{_interval(total)}) over "
                f"{count(layers, 'aligned layer')}"
            )
        elif total.verdict == "no difference":
            text = (
                f"{label}: no difference between {target} and {baseline} over "
                f"{count(layers, 'aligned layer')} ({total.ratio:.3f}×{_interval(total)})"
            )
        else:
            text = (
                f"{label}: undecided, the repeats of {target} and {baseline} scatter too much "
                f"({total.ratio:.3f}×{_interval(total)})"
            )
        told = [f"{amount} {word}" for word, amount in counts.items() if amount]
        sure: Sure = "open" if total.verdict == "undecided" or total.interval is None else "firm"
        said.append(Sentence("time", sure, f"{text}. Layer by layer: {listed(told)}."))
        said += _largest(each)
    return said


def _interval(ratio: Any) -> str:
    where = ratio.interval
    return f", 95 % interval {where[0]:.3f} to {where[1]:.3f}" if where else ", without an interval"


def _largest(each: Comparison) -> list[Sentence]:
    from perfml.report._why import why_sentence

    found = []
    reason = why_sentence(each.pair)
    if reason is not None:
        found.append(Sentence("why", "likely" if reason[1] else "open", reason[0]))
    layers = len(each.pair.explanation.layers)
    if each.tested and each.moved.empty:
        text = f"{each.pair.label}: no metric moved beyond its noise on any layer."
        found.append(Sentence("metric", "firm", text))
    elif len(each.moved):
        most = each.moved["metric"].value_counts().head(3)
        told = [f"{clean(name, 80)} ({amount} of {layers} layers)" for name, amount in most.items()]
        many = len(each.moved["metric"].unique())
        text = (
            f"{each.pair.label}: {count(many, 'metric')} moved beyond noise, most often "
            f"{listed(told)}."
        )
        found.append(Sentence("metric", "likely", text))
    return found


def layers_grid(comparison: Comparison) -> Grid:
    """Return the aligned layers: both times, ratio with interval, verdict, metrics that moved."""
    explanation = comparison.pair.explanation
    moved = comparison.moved
    rows = []
    for row in explanation.layers.to_dict("records"):
        names = [clean(name, 60) for name in moved.loc[moved["layer"] == row["layer"], "metric"]]
        layer = clean(row["layer"], 120)
        partner = clean(row["target_layer"], 120)
        note = f"{partner}, aligned by {row['aligned_by']}" if partner != layer else ""
        known = row["low"] == row["low"]
        bounds = f"{number(row['low'], 4)}–{number(row['high'], 4)}" if known else "no interval"
        rows.append(
            [
                Cell(layer, note),
                amount(float(row["baseline_us"])),
                amount(float(row["target_us"])),
                Cell(f"{row['ratio']:.3f}×", bounds, float(row["ratio"])),
                Cell(str(row["verdict"]), strong=row["verdict"] in ("slower", "faster")),
                share(float(row["share"]), bar=min(max(float(row["share"]), 0.0), 1.0)),
                Cell(
                    str(len(names)),
                    value=float(len(names)),
                    fold=", ".join(names) if names else "",
                ),
            ]
        )
    columns = (
        ("layer", False),
        (f"{clean(explanation.baseline, 60)}, µs", True),
        (f"{clean(explanation.target, 60)}, µs", True),
        ("ratio", True),
        ("verdict", False),
        ("of the difference", True),
        ("metrics moved", True),
    )
    said = f"{explanation.target} against {explanation.baseline}, {comparison.pair.label}"
    return Grid(f"Times of both datasets: {clean(said, 300)}", columns, rows)


def moved_grid(comparison: Comparison) -> Grid | None:
    """Return the metrics that moved, with the layer where each moved most; None without any."""
    moved = comparison.moved
    if moved.empty:
        return None
    scale = moved[["baseline", "target"]].abs().max(axis=1)
    size = moved.assign(size=moved["difference"].abs() / scale.where(scale > 0))
    rows = []
    for name, part in size.groupby("metric", sort=False):
        most = part.sort_values("size", ascending=False, kind="stable").iloc[0]
        up, down = int((part["difference"] > 0).sum()), int((part["difference"] < 0).sum())
        rows.append(
            [
                Cell(clean(name, 120)),
                Cell(str(len(part)), note=f"{up} up, {down} down", value=float(len(part))),
                Cell(clean(most["layer"], 120)),
                amount(float(most["baseline"])),
                amount(float(most["target"])),
                amount(float(most["difference"]), note=f"noise {number(float(most['noise']), 2)}"),
            ]
        )
    rows.sort(key=lambda row: -(row[1].value or 0.0))
    explanation = comparison.pair.explanation
    columns = (
        ("metric", False),
        ("layers", True),
        ("most on", False),
        (clean(explanation.baseline, 60), True),
        (clean(explanation.target, 60), True),
        ("difference", True),
    )
    caption = f"Metrics that moved beyond their noise, {comparison.pair.label}"
    return Grid(caption, columns, rows[:_MOST_METRICS])
