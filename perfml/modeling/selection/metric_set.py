"""The metrics to collect: the fewest that predict about as well, or the best within replay passes.

Metrics are chosen on folds of the data, which flatters them. So the search is repeated without
parts of the data and judged on those parts (nested); both errors are shown, beside all metrics'.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError
from perfml.metrics.passes import (
    ESTIMATES,
    SOURCE,
    cupti_passes,
    cupti_seconds,
    is_free,
    load_passes,
    seconds_per_launch,
)
from perfml.modeling.features import build_design, build_problem
from perfml.modeling.layer_shapes import average_repeats
from perfml.modeling.models.registry import get_model
from perfml.modeling.parallel import Notes, run_all, sentences
from perfml.modeling.scoring.protocols import make_target
from perfml.modeling.selection.search import CLOSE, FOLDS, Choice, Search, judge, run_search
from perfml.util.json_values import Document, json_object
from perfml.util.shown import Shown
from perfml.util.typing import Floats, Progress
from perfml.util.words import number, percent

MOST = {False: 3, True: 6}
"""Metrics in a set unless told, of few metrics and of few passes: a longer search finds chance."""

REPEATS = 3
"""How often the layers are dealt anew into the parts that choices are judged on."""

RESAMPLES = 2000
"""Bootstrap resamples of layers behind an interval."""


SetRow = Document(
    "SetRow",
    {
        "limit": (str, "Metrics, or replay passes, that a set may have; ``chosen`` or ``all``."),
        "metrics": tuple[str, ...],
        "alternatives": (tuple[str, ...], "To the last metric: about as good."),
        "passes": float,
        "low": float,
        "high": float,
        "measured": bool,
        "seconds_per_launch": float,
        "cupti_passes": float,
        "cupti_seconds_per_launch": float,
        "chosen_on": (float, "Score on the folds of the choice: optimistic."),
        "nested": (float, "Mean score over layers that took no part in the choice."),
        "nested_low": float,
        "nested_high": float,
        "worse_by": (float, "How much worse than all metrics that is, on the same layers."),
        "worse_low": float,
        "worse_high": float,
    },
    words="What a limit buys; passes and seconds are null where a metric's were not measured.",
)


@dataclass(frozen=True, repr=False)
class MetricSet(Shown):
    """The metrics to collect, and the error of every limit.

    Attributes
    ----------
    task, model, protocol, target, budget, tolerance
        What was asked; the budget is of replay passes, None where metrics are counted.
    metrics
        The set, in the order of choice; empty where what needs no counter does best.
    also
        Further metrics that the estimate fits into the same passes.
    free
        Features that need no counter, and are always used within a budget of passes.
    curve
        One `SetRow` a limit, then ``chosen`` (the set and how well such choices do) and ``all``.
        Intervals hold 95 % of the bootstrap resamples of layers.
    stability
        Metric to the share of repeated searches that chose it.
    searches
        How many there were, without a part of the data each.
    baseline
        The score of the mean of the backend (or the most frequent class) on the same layers.
    left_out
        Metric to the reason why it was no candidate.
    warnings, verdict
        Sentences.
    """

    task: str
    model: str
    protocol: str
    target: str
    budget: int | None
    tolerance: float
    metrics: tuple[str, ...]
    also: tuple[str, ...]
    free: tuple[str, ...]
    curve: Annotated[pd.DataFrame, SetRow]
    stability: dict[str, float]
    searches: int
    baseline: float
    left_out: dict[str, str]
    warnings: tuple[str, ...]
    verdict: str

    to_dict = json_object

    @property
    def chosen(self) -> pd.Series:
        """The row of the set in `curve`."""
        return self.curve[self.curve["limit"] == "chosen"].iloc[0]

    def to_text(self) -> str:
        """Return the list that ``perfml collect --metrics FILE`` takes."""
        how = "measured" if self.chosen["measured"] else "estimated"
        lines = [
            f"# perfml select: {self.model}, {self.target}, {self.protocol}",
            f"# {_passes(self.chosen['passes'])}, {how}; counts {SOURCE}",
            *self.metrics,
        ]
        if self.also:
            lines.append("# estimated to fit into the same passes:")
            lines += [f"# {name}" for name in self.also]
        return "\n".join(lines) + "\n"

    def table(self) -> pd.DataFrame:
        """Return the curve as people read it: a set that more would not change stands once."""
        new = self.curve["metrics"] != self.curve["metrics"].shift()
        rows = self.curve[new | (self.curve["limit"] == "chosen")].to_dict("records")
        shown = {
            "passes" if self.budget else "metrics": [row["limit"] for row in rows],
            "new layers": [percent(row["nested"], 3) for row in rows],
            "95 % interval": [_interval(row, "nested", _score) for row in rows],
            "where chosen": [percent(row["chosen_on"], 3) for row in rows],
            "points worse than all": [_interval(row, "worse", _points) for row in rows],
            "ncu": [_costs(row["passes"], row["seconds_per_launch"]) for row in rows],
            "CUPTI": [_costs(row["cupti_passes"], row["cupti_seconds_per_launch"]) for row in rows],
            "set": [
                f"{len(row['metrics'])} metrics"
                if row["limit"] == "all"
                else ", ".join(row["metrics"])
                for row in rows
            ],
            "or, as the last": [", ".join(row["alternatives"][:2]) or "-" for row in rows],
        }
        return pd.DataFrame(shown)

    def shown(self) -> tuple[str, Sequence[str], pd.DataFrame, Sequence[str], str]:
        """Return what a screen and a notebook show."""
        table = self.table()
        first = [table.columns[0], "new layers", "where chosen", "set"]
        return self.verdict, self.warnings, table[first], (), ".curve"


def select_metrics(
    layers: pd.DataFrame,
    *,
    passes: int | None = None,
    task: str = "regression",
    model: str = "dt",
    protocol: str = "leave-one-layer-out",
    features: str | Sequence[str] = "published",
    target: str = "log-time",
    tolerance: float | None = None,
    most: int | None = None,
    repeats: int = REPEATS,
    seed: int = 0,
    progress: Progress | None = None,
    n_jobs: int | None = None,
) -> MetricSet:
    """Choose the metrics to collect: the fewest that suffice, or the best within replay passes.

    Metrics are added one by one, each time the one that helps most among those that keep the set
    within a limit: a number of metrics, or with `passes` a number of replay passes. Of the limits
    up to the budget the cheapest is chosen that is about as good as any, and as all metrics.
    Repeats of a condition are averaged first.

    Parameters
    ----------
    layers
        A Layers table that holds all candidates.
    passes
        The budget of replay passes; None counts metrics. The curve shows all budgets.
    task, model, protocol, features, target
        As for `evaluate`; one model and one protocol.
    tolerance
        How much worse than the best a cheaper set may be: for regression relative to the best
        MAPE, for classification in accuracy. None takes `CLOSE`, and 0 within a budget.
    most
        Largest number of metrics in a set; None takes `MOST`.
    repeats
        How often the layers are dealt into parts that the choice is repeated without.
    seed
        Of folds, models and the bootstrap.
    progress, n_jobs
        As for `evaluate`.

    Raises
    ------
    PerfmlError
        If a name is unknown, a number makes no sense, no candidate's passes are known where they
        are counted, or the table is too small.
    """
    by_passes = passes is not None
    most = MOST[by_passes] if most is None else most
    for what, value in (("passes", passes), ("most", most), ("repeats", repeats)):
        if value is not None and value < 1:
            msg = f"{what} must be 1 or more"
            raise PerfmlError(msg, found=str(value))
    if tolerance is None:
        tolerance = 0.0 if by_passes else CLOSE.get(task, 0.0)
    if not 0 <= tolerance < float("inf"):
        msg = "the tolerance must not be negative"
        raise PerfmlError(msg, found=str(tolerance), cure="Choose 0 or more, such as 0.1.")
    make_target(target, layers)
    averaged = average_repeats(layers.reset_index(drop=True))
    names, left_out = _candidates(averaged, features, by_passes)
    problem = build_problem(averaged, task, names)
    names, chosen = problem.design.names, get_model(model, task)
    search = Search(
        averaged, task, model, protocol, names, target, most, seed, by_passes, tolerance
    )
    dearest = search.cost(names) if by_passes else min(most, len(names))
    first = int(not (by_passes and any(map(is_free, names))))
    budget = dearest if passes is None else min(passes, dearest)
    search = dataclasses.replace(search, limits=tuple(range(first, dearest + 1)), budget=budget)
    outer, reason = search.outer(problem, repeats)
    searches = [
        search,
        *(
            dataclasses.replace(search, layers=averaged.iloc[train], seed=seed + index)
            for index, (train, _) in enumerate(outer)
        ),
    ]
    notes: Notes = Counter()
    # limits share much of their way
    fits = len(searches) * FOLDS * min(most, len(names)) * len(names) * (1 + len(search.limits) / 4)
    choices = run_all(
        run_search,
        searches,
        n_jobs=n_jobs,
        seconds=fits * chosen.cost * problem.rows * len(names) / (261 * 16),
        progress=progress,
        what="search",
        notes=notes,
    )
    judged = judge(problem, make_target(target, averaged), search, outer, choices[1:])
    counts = Counter(name for made in choices[1:] for name in made["chosen"].metrics)
    metrics = choices[0]["chosen"].metrics
    found = MetricSet(
        task=task,
        model=model,
        protocol=protocol,
        target=target,
        budget=passes,
        tolerance=tolerance,
        metrics=metrics,
        also=_also(search, metrics),
        free=tuple(name for name in names if not search.cost([name])),
        curve=_curve(search, choices[0], judged),
        stability={name: count / len(outer) for name, count in counts.most_common()},
        searches=len(outer),
        baseline=search.sign * float(np.mean(judged.get("baseline", np.nan))),
        left_out=left_out,
        warnings=(),
        verdict="",
    )
    cautions = (*_cautions(found, reason), *sentences(notes))
    return dataclasses.replace(found, warnings=cautions, verdict=_verdict(found))


def _candidates(
    layers: pd.DataFrame, features: str | Sequence[str], by_passes: bool
) -> tuple[tuple[str, ...], dict[str, str]]:
    design = build_design(layers, features)
    known = load_passes()
    left_out = dict(design.dropped)
    if by_passes:
        reason = "its replay passes were not measured"
        left_out |= {name: reason for name in design.names if not known.known(name)}
    names = tuple(name for name in design.names if name not in left_out)
    if not names or (by_passes and all(map(is_free, names))):
        msg = "no metric of these features has known replay passes"
        raise PerfmlError(
            msg,
            found="; ".join(f"{name}: {why}" for name, why in list(left_out.items())[:3]) or None,
            cure=f"Known are: {', '.join(known.names[:6])}, ...; see perfml/metrics/passes.csv.",
        )
    return names, left_out


def _curve(search: Search, choices: dict[str, Choice], judged: dict[str, Floats]) -> pd.DataFrame:
    rng = np.random.default_rng([search.seed, 4])
    units = len(judged.get("all", ()))
    drawn = rng.integers(max(units, 1), size=(RESAMPLES, units))
    rows = []
    for limit in (*map(str, search.limits), "chosen", "all"):
        choice = choices[limit]
        row: dict[str, Any] = {"limit": limit, "metrics": choice.metrics}
        row |= {"alternatives": choice.alternatives, **_cost(choice.metrics)}
        row["chosen_on"] = search.sign * choice.loss if np.isfinite(choice.loss) else np.nan
        if judged:
            nested = search.sign * judged[limit]
            row |= _with_interval("nested", nested, drawn)
            row |= _with_interval("worse", judged[limit] - judged["all"], drawn)
            row["worse_by"] = row.pop("worse")
        rows.append(row)
    return pd.DataFrame(rows, columns=list(SetRow.keys))


def _cost(metrics: Sequence[str]) -> dict[str, Any]:
    """Return the passes and seconds of a set, where they are known."""
    if not all(map(load_passes().known, metrics)):
        return {"measured": False}
    if all(map(is_free, metrics)):
        nothing = dict.fromkeys(("passes", "low", "high", "cupti_passes"), 0)
        seconds = dict.fromkeys(("seconds_per_launch", "cupti_seconds_per_launch"), 0.0)
        return {**nothing, **seconds, "measured": True}
    estimate = load_passes().estimate(metrics)
    through_cupti = cupti_passes(metrics, estimate.passes)
    return {
        **dataclasses.asdict(estimate),
        "seconds_per_launch": seconds_per_launch(estimate.passes),
        "cupti_passes": through_cupti,
        "cupti_seconds_per_launch": cupti_seconds(metrics, through_cupti),
    }


def _with_interval(name: str, values: Floats, drawn: Any) -> dict[str, float]:
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return {name: float(values.mean()), f"{name}_low": float(low), f"{name}_high": float(high)}


def _also(search: Search, metrics: Sequence[str]) -> tuple[str, ...]:
    """Return further metrics that the estimate fits into the same passes, one after the other."""
    if not (search.by_passes and search.cost(metrics)):
        return ()
    kept, passes = list(metrics), search.cost(metrics)
    for name in search.features:
        if name not in kept and not is_free(name) and search.cost([*kept, name]) <= passes:
            kept.append(name)
    return tuple(kept[len(metrics) :])


def _cautions(found: MetricSet, reason: str) -> list[str]:
    notes = []
    if found.budget is not None:
        notes.append(f"Replay passes hold for one chip ({SOURCE}). {ESTIMATES}")
    if reason:
        why = f"The choice could not be judged on rows that took no part in it: {reason}."
        return [*notes, why]
    if found.protocol.startswith("random"):
        notes.append("Random splits test on repeats of training rows; leave layers out instead.")
    rare = [name for name in found.metrics if found.stability.get(name, 0.0) < 0.5]
    if rare:
        notes.append(
            f"Less than half of the searches that lacked a part of the layers chose "
            f"{', '.join(rare)}: other metrics do as well."
        )
    return notes


def _verdict(found: MetricSet) -> str:
    what = "accuracy" if found.task == "classification" else "mean relative error"
    row, everything = found.chosen, found.curve.iloc[-1]
    names = " + ".join(found.metrics) or "no profiler metric"
    total = f"all {len(everything['metrics'])} metrics"
    cost = ""
    if row["passes"] == row["passes"]:
        cost = f"{_passes(row['passes'])} instead of {everything['passes']:.0f}; "
    if np.isnan(row["nested"]):
        return (
            f"{names}: {cost}{what} {percent(row['chosen_on'], 3)} on the layers it was chosen on "
            f"({total} {percent(everything['chosen_on'], 3)}), unjudged."
        )
    verdict = (
        f"{names}: {cost}{what} on new layers {percent(row['nested'], 3)} "
        f"({_interval(row, 'nested', _score)}), {total} {percent(everything['nested'], 3)}: "
        f"{_difference(row)}"
    )
    sign = -1.0 if found.task == "classification" else 1.0
    if sign * row["nested"] >= sign * found.baseline:
        return f"{verdict}; no better than the baseline ({percent(found.baseline, 3)})."
    if row["worse_low"] > 0:
        return f"{verdict}: the smaller request costs accuracy."
    return f"{verdict}: no loss that these layers can show."


def _difference(row: pd.Series) -> str:
    """Return how much worse the set is than all metrics, in points of a percentage."""
    return (
        f"{_side(row['worse_by'])} (from {_side(row['worse_low'])} to {_side(row['worse_high'])})"
    )


def _side(worse: float) -> str:
    return f"{number(abs(100 * worse))} points {'worse' if worse > 0 else 'better'}"


def _interval(row: Any, name: str, said: Any) -> str:
    return f"{said(row[f'{name}_low'])} to {said(row[f'{name}_high'])}"


def _score(share: float) -> str:
    return percent(share, 3)


def _points(share: float) -> str:
    return f"{100 * share:+.3g}"


def _costs(passes: float, seconds: float) -> str:
    return "-" if passes != passes else f"{_passes(passes)}, {1e3 * seconds:.2g} ms"


def _passes(count: float) -> str:
    return {0: "no pass", 1: "1 pass"}.get(int(count), f"{count:.0f} passes")
