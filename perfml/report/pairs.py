"""What a report computes for every condition: why backends are slower, and what could be done."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from perfml.errors import PerfmlError
from perfml.report.conditions import EVERY_RUN, UNNAMED, Condition, conditions, named_layers
from perfml.report.kernels import printable
from perfml.report.labels import clean
from perfml.report.results import Pair
from perfml.tables import metric_columns
from perfml.util.words import listed

if TYPE_CHECKING:
    from perfml.account.account import Account
    from perfml.explain import Advice
    from perfml.explain.compared import Side
    from perfml.explain.model import Explainer
    from perfml.explain.results import Explanation, LayerDiff

MOST_PAIRS = 6
"""Pairs of backends explained in a report; the verb explain takes any other."""


def explain_pairs(
    layers: pd.DataFrame | Sequence[Condition],
    kernels: pd.DataFrame | None = None,
    *,
    model: str | None = "gbr",
    seed: int = 0,
    most: int = MOST_PAIRS,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Pair]:
    """Explain, under every condition, why the other backends are slower than the fastest.

    Of each pair the layer with the largest time difference is explained in detail; of more pairs
    than `most`, those with the largest. `layers` may be conditions, `kernels` is the table behind
    them. Conditions are in order, in each the largest difference first. Pairs that cannot be
    explained (no kernel names, no layer in common) are left out.
    """
    from perfml.explain import explain, sides_of

    candidates = _largest(conditions(layers), most)
    named = None if kernels is None else printable(kernels)
    learned: dict[str, Explainer | None] = {}
    pairs = []
    for done, (condition, baseline, target, _) in enumerate(candidates):
        if progress is not None:
            progress(done, len(candidates), f"{target} against {baseline}")
        launches = None if named is None else condition.select(named)
        if condition.label not in learned:
            learned[condition.label] = _learned(condition.rows, model, seed)
        try:
            sides = sides_of(condition.rows, baseline, target, kernels=launches)
            training = learned[condition.label] or condition.rows
            explanation = explain(*sides, top=1, model=model, training=training, seed=seed)
        except PerfmlError:
            continue
        rows = condition.rows[condition.rows["backend"].isin([baseline, target])]
        pairs.append(Pair(condition.label, explanation, rows))
    return pairs


def _learned(rows: pd.DataFrame, model: str | None, seed: int) -> Explainer | None:
    """Return what the model learned from all backends of a condition, or None where it cannot."""
    if model is None:
        return None
    from perfml.explain.model import Explainer

    try:
        return Explainer(rows, model=model, seed=seed)
    except PerfmlError:
        # explain says why
        return None


_Candidate = tuple[Condition, str, str, float]
"""A pair that may be explained: baseline, target, its largest difference of a layer in us."""


def explained(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """Return the pairs whose first layer differs most, in their order; one a layer and condition.

    Backends that lose on the same layer most often share its kernel: the page shows which.
    """
    first = {}
    for pair in reversed(pairs):
        details = [each for each in pair.explanation.details if each.time.slower is not None]
        if details:
            first[pair.label, details[0].layer] = (abs(_lost(details[0])), pair)
    largest = sorted(first.values(), key=lambda each: -each[0])[:most]
    kept = [pair for _, pair in largest]
    return [pair for pair in pairs if any(pair is each for each in kept)]


def losses(pairs: Sequence[Pair]) -> list[tuple[float, Pair, LayerDiff]]:
    """Return what the first layer of each pair loses where it is slower, the largest loss first."""
    found = [
        (_lost(detail), pair, detail)
        for pair in pairs
        for detail in pair.explanation.details[:1]
        if detail.time.verdict == "slower"
    ]
    return sorted(found, key=lambda each: -each[0])


def _lost(detail: LayerDiff) -> float:
    return float(detail.time.target_us - detail.time.baseline_us)


def _largest(shown: Sequence[Condition], most: int) -> list[_Candidate]:
    """Return the pairs with the largest differences: conditions in order, the largest first."""
    candidates = [each for condition in shown for each in _candidates(condition)]
    by_size = sorted(candidates, key=lambda each: -each[-1])
    kept = by_size[:most]
    return [each for condition in shown for each in kept if each[0] is condition]


def _candidates(condition: Condition) -> Iterator[_Candidate]:
    totals = condition.totals[condition.totals["total"].notna()]
    wide = condition.times.pivot_table(index="layer", columns="backend", values="median")
    fastest, *others = [str(name) for name in totals["backend"]] or [""]
    for target in others:
        largest = float((wide[target] - wide[fastest]).abs().max())
        if math.isfinite(largest):
            yield condition, fastest, target, largest


def advise_conditions(
    layers: pd.DataFrame | Sequence[Condition],
    kernels: pd.DataFrame | None = None,
    sources: Sequence[Mapping[str, Any]] = (),
    account: Account | None = None,
) -> dict[str, Advice]:
    """Say what the layers of every condition lose, and what helps.

    Rules about single launches need `kernels`; `sources` are the provenance of its files, for the
    rules of Nsight Compute that stand in them, and `account` says what a step takes. Advice is by
    the label of the condition; those that cannot be checked (a table without the columns of
    launches) are left out.
    """
    from perfml.explain import advise

    advice = {}
    named = None if kernels is None else printable(kernels)
    for condition in conditions(layers):
        launches = None if named is None else condition.select(named)
        if launches is not None and launches.empty:
            launches = None
        try:
            advice[condition.label] = advise(
                condition.rows, kernels=launches, sources=sources, account=account
            )
        except PerfmlError:
            continue
    return advice


_KEYS = ("workload", "device", "backend", "precision", "batch")
"""What tells the measurements of one dataset apart."""

_MOST = 12
"""Comparisons on a page; --where chooses others."""


@dataclass(frozen=True)
class Comparison:
    """One measurement of either dataset, compared."""

    pair: Pair  # Label, explanation (baseline the first dataset, target the second), rows of both
    # one row a layer and metric that changed beyond its noise: ``layer, metric, baseline, target,
    # difference, noise``
    changed: pd.DataFrame
    tested: int  # metrics whose noise is known, in any layer
    # side to the metrics that it alone has; they are not compared
    alone: dict[str, tuple[str, ...]]

    @property
    def verdicts(self) -> dict[str, int]:
        """Layers by verdict: slower, faster, no difference, undecided."""
        counts = self.pair.explanation.layers["verdict"].value_counts()
        words = ("slower", "faster", "no difference", "undecided")
        return {word: int(counts.get(word, 0)) for word in words}

    @cached_property
    def confirmed(self) -> pd.DataFrame:
        """The layers whose change is confirmed, with what it costs: the largest first."""
        layers = self.pair.explanation.layers
        changed = layers[layers["verdict"].isin(["slower", "faster"])]
        cost = changed["target_us"] - changed["baseline_us"]
        sized = changed.assign(cost=cost, size=cost.abs())
        return sized.sort_values("size", ascending=False, kind="stable")

    @property
    def largest_change(self) -> float:
        """The size of the largest confirmed change, in microseconds."""
        return max(self.confirmed["size"], default=0.0)


def compare_tables(
    left: tuple[str, pd.DataFrame, pd.DataFrame | None],
    right: tuple[str, pd.DataFrame, pd.DataFrame | None],
    *,
    accounts: tuple[Account | None, Account | None] = (None, None),
    top: int = 2,
    model: str | None = "gbr",
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> tuple[list[Comparison], list[str]]:
    """Compare what two datasets measured alike, each measurement on its own.

    `left` and `right` are a name, a Layers (or Kernels) table, and the Kernels table behind it or
    None: baseline and target. `accounts` are of their steps on the clock, where traces tell. `top`
    layers of each are explained in detail; `model` and `seed` are as for `perfml.explain.explain`.
    Returned are the comparisons, that with the largest confirmed change first, and sentences on
    what was left out. Raises `PerfmlError` if no measurement of one answers to one of the other.
    """
    from perfml.explain import explain, make_side
    from perfml.explain.compared import Side
    from perfml.explain.load import answering

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
        # an account is of one recording, so it tells nothing where there are several
        clocks = accounts if len(parts) == 1 else (None, None)
        both = answering(
            Side(names[0], *before, sides[0].warnings, account=clocks[0]),
            Side(names[1], *after, sides[1].warnings, account=clocks[1]),
        )
        explanation = explain(
            both.baseline,
            both.target,
            alignment=both.alignment,
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
        changed, tested = _changed(explanation, before[0], after[0], ignored)
        found.append(Comparison(Pair(label, explanation, rows), changed, tested, alone))
    return sorted(found, key=lambda each: -each.largest_change), left_out


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
        # what differs is what is compared: it names neither
        alike = [place for place, key in enumerate(one) if key == other[place]]
        agreed = tuple(one[place] for place in alike)
        return [(_told(agreed, [keys[place] for place in alike], [agreed]), *both)], []
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
        if (name == "backend" and key[place] not in UNNAMED)
        or len({each[place] for each in among}) > 1
    ]
    parts = [f"batch {key[at]}" if keys[at] == "batch" else key[at] for at in shown]
    return clean(", ".join(parts), 120) or EVERY_RUN


def _listed(found: Mapping[tuple[str, ...], Any]) -> str:
    return listed([clean("/".join(key), 80) for key in found], 4)


def _changed(
    explanation: Explanation, before: pd.DataFrame, after: pd.DataFrame, ignored: set[str]
) -> tuple[pd.DataFrame, int]:
    from perfml.explain.changed_metrics import compare_metrics

    parts, tested = [], set()
    for layer, partner in zip(
        explanation.layers["layer"], explanation.layers["target_layer"], strict=True
    ):
        table = compare_metrics(before[before["layer"] == layer], after[after["layer"] == partner])
        table = table[~table["metric"].isin(ignored)]
        tested |= set(table.loc[table["changed"].notna(), "metric"])
        kept = table[table["changed"].fillna(False).astype(bool)].drop(columns="changed")
        if len(kept):
            parts.append(kept.assign(layer=layer))
    columns = ["layer", "metric", "baseline", "target", "difference", "noise"]
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
    return whole[columns], len(tested)
