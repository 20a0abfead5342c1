"""Which metrics to ask the profiler for within a budget of replay passes, and what that costs.

Asking for fewer metrics makes a collection cheaper; the error says what is lost by it. The metrics
are chosen on folds of the data, which flatters them, so every choice is repeated without parts of
the data and judged on those parts (nested); both errors are shown, next to all metrics.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError
from perfml.metrics.passes import (
    SOURCE,
    check_estimates,
    cupti_passes,
    cupti_seconds,
    is_free,
    load_passes,
    seconds_per_launch,
)
from perfml.modeling.features import Problem, build_design, build_problem
from perfml.modeling.layer_shapes import average_repeats
from perfml.modeling.models.convergence import Notes, sentences
from perfml.modeling.models.registry import get_model
from perfml.modeling.parallel import run_all
from perfml.modeling.scoring.protocols import Split
from perfml.modeling.scoring.targets import make_target
from perfml.modeling.selection.search import Found, Judged, Search, judge, run_search, search_folds
from perfml.util.json_values import json_object
from perfml.util.shown import screen, section
from perfml.util.typing import Floats, Progress
from perfml.util.words import number, percentage

REPEATS = 3
"""How often the layers are dealt anew into the parts that choices are judged on."""

MOST = 6
"""Metrics in a set unless told; on a few dozen layers a longer search finds chance."""

RESAMPLES = 2000
"""Bootstrap resamples of layers behind an interval."""


class PlanBudget(TypedDict):
    """What a budget of passes buys."""

    budget: str
    passes: int
    low: int
    high: int
    measured: bool
    seconds_per_launch: float
    cupti_passes: int
    cupti_seconds_per_launch: float
    metrics: tuple[str, ...]
    chosen_on: float
    nested: float
    nested_low: float
    nested_high: float
    worse_by: float
    worse_low: float
    worse_high: float


class PlanShare(TypedDict):
    """How often a metric was chosen."""

    budget: int | str
    metric: str
    share: float


@dataclass(frozen=True, repr=False)
class Plan:
    """The metrics to collect within a budget, and the error of every budget.

    Attributes
    ----------
    task, model, protocol, target, budget
        What was asked.
    metrics
        The set to collect, in the order of choice; empty where what needs no counter does best.
    passes, low, high, measured
        Its passes as `perfml.metrics.passes.PassEstimate` has them.
    free
        Features that need no counter (shapes, launch attributes) and are always used.
    also
        Further metrics that the estimate fits into the same passes.
    curve
        One `PlanBudget` a budget, the last one with all metrics. ``chosen_on`` is the score on the
        folds of the choice, which is optimistic. ``nested`` is the mean over layers that took
        no part in the choice; ``worse_by`` how much worse than all metrics that is on the same
        layers. Intervals hold 95 % of the bootstrap resamples of layers. For all metrics
        ``chosen_on`` is not optimistic: nothing was chosen.
    stability
        One `PlanShare` a budget and metric, of the repeated searches that chose the metric.
    searches
        How many there were.
    baseline
        The score of the mean of the backend (or the most frequent class) on the same layers.
    left_out
        Metric to the reason why it was no candidate.
    source
        Where the pass counts come from.
    warnings, verdict
        Sentences.
    """

    task: str
    model: str
    protocol: str
    target: str
    budget: int
    metrics: tuple[str, ...]
    passes: int
    low: int
    high: int
    measured: bool
    free: tuple[str, ...]
    also: tuple[str, ...]
    curve: Annotated[pd.DataFrame, PlanBudget]
    stability: Annotated[pd.DataFrame, PlanShare]
    searches: int
    baseline: float
    left_out: dict[str, str]
    source: str
    warnings: tuple[str, ...]
    verdict: str

    to_dict = json_object

    def to_text(self) -> str:
        """Return the list that ``perfml collect --metrics FILE`` takes."""
        how = "measured" if self.measured else "estimated"
        lines = [
            f"# perfml plan --passes {self.budget}: {self.model}, {self.target}, {self.protocol}",
            f"# {_passes(self.passes)}, {how}; counts {self.source}",
            *self.metrics,
        ]
        if self.also:
            lines.append("# estimated to fit into the same passes:")
            lines += [f"# {name}" for name in self.also]
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        shown = self._shown(["budget", "passes", "chosen_on", "nested", "worse_by", "metrics"])
        return screen(self.verdict, self.warnings, shown, rest=".curve")

    def _repr_html_(self) -> str:
        shown = self._shown(["budget", "passes", "metrics", "chosen_on", "nested", "worse_by"])
        return section(self.verdict, self.warnings, shown)

    def _shown(self, columns: list[str]) -> pd.DataFrame:
        errors = {
            name: self.curve[name].map(percentage) for name in ("chosen_on", "nested", "worse_by")
        }
        shown = self.curve.assign(metrics=self.curve["metrics"].map(", ".join), **errors)
        return shown[columns].rename(columns={"nested": "new layers", "worse_by": "worse by"})


def plan(
    layers: pd.DataFrame,
    *,
    passes: int = 3,
    task: str = "regression",
    model: str = "dt",
    protocol: str = "leave-one-layer-out",
    features: str | Sequence[str] = "published",
    target: str = "log-time",
    most: int = MOST,
    repeats: int = REPEATS,
    seed: int = 0,
    progress: Progress | None = None,
    n_jobs: int | None = None,
) -> Plan:
    """Choose the metrics to collect within a budget of replay passes.

    Metrics are added one by one, each time the one that helps most among those that keep the set
    within the budget; of the sets on the way the best is taken. Repeats of a condition are averaged
    first. Features that need no counter are always there.

    Parameters
    ----------
    layers
        A Layers table that holds all candidates.
    passes
        The budget of the plan; the curve shows all budgets.
    task, model, protocol, features, target
        As for `evaluate`; one model and one protocol.
    most
        Largest number of metrics that cost passes.
    repeats
        How often the layers are dealt into parts that the choice is repeated without.
    seed
        Of folds, models and the bootstrap.
    progress, n_jobs
        As for `evaluate`.

    Raises
    ------
    PerfmlError
        If a name is unknown, a number makes no sense, no candidate's passes are known, or the
        table is too small.
    """
    for what, value in (("passes", passes), ("most", most), ("repeats", repeats)):
        if value < 1:
            msg = f"{what} must be 1 or more"
            raise PerfmlError(msg, found=str(value))
    chosen = get_model(model, task)
    make_target(target, layers)
    averaged = average_repeats(layers.reset_index(drop=True))
    names, left_out = _candidates(averaged, features)
    problem = build_problem(averaged, task, names)
    free = tuple(name for name in problem.design.names if is_free(name))
    counted = tuple(name for name in problem.design.names if name not in free)
    everything = load_passes().estimate(counted).passes
    budgets = tuple(range(0 if free else 1, everything + 1))
    search = Search(
        averaged, task, model, protocol, problem.design.names, target, most, seed, budgets
    )
    outer, reason = _outer(search, problem, repeats)
    searches = [
        search,
        *(
            dataclasses.replace(search, layers=averaged.iloc[train], seed=seed + index)
            for index, (train, _) in enumerate(outer)
        ),
    ]
    notes: Notes = Counter()
    width = len(problem.design.names)
    # budgets share much of their way, about half of it
    fits = len(searches) * 4 * min(most, len(counted)) * len(counted) * len(budgets) / 2
    found = run_all(
        run_search,
        searches,
        n_jobs=n_jobs,
        seconds=fits * chosen.cost * problem.rows * width / (261 * 16),
        progress=progress,
        what="search",
        notes=notes,
    )
    goal = make_target(target, averaged)
    judged = judge(problem, goal, search, outer, found[1:])
    return _result(search, problem, passes, found, judged, left_out, reason, sentences(notes))


def _candidates(
    layers: pd.DataFrame, features: str | Sequence[str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    design = build_design(layers, features)
    known = load_passes()
    left_out = dict(design.dropped)
    left_out |= {
        name: "its replay passes were not measured"
        for name in design.names
        if not known.known(name)
    }
    names = tuple(name for name in design.names if name not in left_out)
    if not any(not is_free(name) for name in names):
        msg = "no metric of these features has known replay passes"
        raise PerfmlError(
            msg,
            found="; ".join(f"{name}: {why}" for name, why in list(left_out.items())[:3]) or None,
            cure=f"Known are: {', '.join(known.names[:6])}, ...; see perfml/metrics/passes.csv.",
        )
    return names, left_out


def _outer(search: Search, problem: Problem, repeats: int) -> tuple[tuple[Split, ...], str | None]:
    """Return the parts that choices are judged on; none, and why, where that cannot be."""
    folds: dict[bytes, Split] = {}
    for repeat in range(repeats):
        for split in search_folds(problem, search.protocol, search.seed + 1000 * repeat):
            # a protocol with few groups deals the same parts every time
            folds.setdefault(split[1].tobytes(), split)
    return search.repeatable(tuple(folds.values()))


def _result(
    search: Search,
    problem: Problem,
    budget: int,
    found: Sequence[Found],
    judged: Judged | None,
    left_out: dict[str, str],
    reason: str | None,
    notes: Sequence[str],
) -> Plan:
    names = problem.design.names
    free = tuple(name for name in names if is_free(name))
    counted = tuple(name for name in names if name not in free)
    curve = _curve(search, found[0], judged, counted)
    wanted = min(budget, max(each for each in search.budgets if each is not None))
    metrics, _ = found[0].best(wanted, search.sign)
    estimate = load_passes().estimate(metrics)
    stability = pd.DataFrame(
        [
            {"budget": each, "metric": name, "share": count / len(found[1:])}
            for each in search.budgets
            for name, count in Counter(
                name for one in found[1:] for name in one.best(each, search.sign)[0]
            ).most_common()
        ],
        columns=list(PlanShare.__annotations__),
    )
    baseline = float("nan")
    if judged is not None:
        baseline = float(np.mean(judged.baseline / judged.counts))
    return Plan(
        task=search.task,
        model=search.model,
        protocol=search.protocol,
        target=search.target,
        budget=budget,
        metrics=metrics,
        passes=estimate.passes,
        low=estimate.low,
        high=estimate.high,
        measured=estimate.measured,
        free=free,
        also=_also(metrics, counted, estimate.passes),
        curve=curve,
        stability=stability,
        searches=len(found) - 1,
        baseline=baseline,
        left_out=left_out,
        source=SOURCE,
        warnings=(*_cautions(search, curve, stability, metrics, wanted, reason), *notes),
        verdict=_verdict(search, curve, wanted, metrics, baseline),
    )


def _curve(
    search: Search, found: Found, judged: Judged | None, counted: Sequence[str]
) -> pd.DataFrame:
    counts = load_passes()
    units, drawn = _bootstrap(judged, search.seed)
    rows = []
    for budget in (*search.budgets, None):
        metrics, chosen_on = tuple(counted), found.everything
        if budget is not None:
            metrics, chosen_on = found.best(budget, search.sign)
        estimate = counts.estimate(metrics)
        passes = estimate.passes if metrics else 0
        through_cupti = cupti_passes(metrics, passes) if metrics else 0
        row: dict[str, Any] = {
            "budget": "all" if budget is None else str(budget),
            "passes": passes,
            "low": estimate.low if metrics else 0,
            "high": estimate.high if metrics else 0,
            "measured": estimate.measured or not metrics,
            "seconds_per_launch": seconds_per_launch(passes) if metrics else 0.0,
            "cupti_passes": through_cupti,
            "cupti_seconds_per_launch": cupti_seconds(metrics, through_cupti),
            "metrics": metrics,
            "chosen_on": chosen_on,
        }
        if judged is not None:
            own = judged.everything if budget is None else judged.budgets[budget]
            each = own / judged.counts
            more = search.sign * (each - judged.everything / judged.counts)
            row |= _with_interval("nested", each[units], drawn)
            row |= _with_interval("worse", more[units], drawn)
            row["worse_by"] = row.pop("worse")
        rows.append(row)
    return pd.DataFrame(rows, columns=list(PlanBudget.__annotations__))


def _bootstrap(judged: Judged | None, seed: int) -> tuple[Any, Any]:
    """Return which units were judged, and resamples of them."""
    if judged is None:
        return np.zeros(0, dtype=int), None
    units = np.flatnonzero(judged.counts)
    rng = np.random.default_rng([seed, 4])
    return units, rng.integers(len(units), size=(RESAMPLES, len(units)))


def _with_interval(name: str, values: Floats, drawn: Any) -> dict[str, float]:
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return {name: float(values.mean()), f"{name}_low": float(low), f"{name}_high": float(high)}


def _also(metrics: Sequence[str], counted: Sequence[str], passes: int) -> tuple[str, ...]:
    """Return further metrics that the estimate fits into the same passes, one after the other."""
    if not metrics:
        return ()
    kept = list(metrics)
    for name in counted:
        if name not in kept and load_passes().estimate([*kept, name]).passes <= passes:
            kept.append(name)
    return tuple(kept[len(metrics) :])


def _cautions(
    search: Search,
    curve: pd.DataFrame,
    stability: pd.DataFrame,
    metrics: Sequence[str],
    wanted: int,
    reason: str | None,
) -> list[str]:
    errors = check_estimates()
    exact = sum(each == 0 for each in errors)
    first = (
        f"Replay passes hold for one chip ({SOURCE}). Of {len(errors)} random sets the estimate "
        f"is right for {exact}, and wrong by {max(map(abs, errors))} at most."
    )
    notes = [first]
    if reason is not None:
        notes.append(f"The choice could not be judged on rows that took no part in it: {reason}.")
        return notes
    if search.protocol.startswith("random"):
        notes.append("Random splits test on repeats of training rows; leave layers out instead.")
    shares = stability[stability["budget"] == wanted].set_index("metric")["share"]
    if metrics and float(min(shares.get(name, 0.0) for name in metrics)) < 0.5:
        rare = [name for name in metrics if shares.get(name, 0.0) < 0.5]
        notes.append(
            f"Less than half of the searches that lacked a part of the layers chose "
            f"{', '.join(rare)}: other metrics do as well."
        )
    return notes


def _verdict(
    search: Search, curve: pd.DataFrame, wanted: int, metrics: Sequence[str], baseline: float
) -> str:
    what = "accuracy" if search.task == "classification" else "mean relative error"
    row = curve[curve["budget"] == str(wanted)].iloc[0]
    everything = curve.iloc[-1]
    names = " + ".join(metrics) or "no profiler metric"
    whole = f"all {len(everything['metrics'])} metrics"
    if np.isnan(row["nested"]):
        return (
            f"{names}: {_passes(row['passes'])}, {what} {percentage(row['chosen_on'])} on the "
            f"layers it was chosen on ({whole}, {everything['passes']} passes: "
            f"{percentage(everything['chosen_on'])}), unjudged."
        )
    verdict = (
        f"{names}: {_passes(row['passes'])} instead of {everything['passes']}; {what} on new "
        f"layers {percentage(row['nested'])} ({percentage(row['nested_low'])} to "
        f"{percentage(row['nested_high'])}), {whole} "
        f"{percentage(everything['nested'])}: {_difference(row)}"
    )
    if search.sign * row["nested"] >= search.sign * baseline:
        return f"{verdict}; no better than the baseline ({percentage(baseline)})."
    if row["worse_low"] > 0:
        return f"{verdict}: the smaller request costs accuracy."
    return f"{verdict}: no loss that these layers can show."


def _difference(row: pd.Series) -> str:
    """Return how much worse the budget is than all metrics, in points of a percentage."""
    low, high = (100 * float(row[name]) for name in ("worse_low", "worse_high"))
    worse = 100 * float(row["worse_by"])
    said = f"{number(abs(worse))} points {'worse' if worse > 0 else 'better'}"
    return f"{said} (from {_side(low)} to {_side(high)})"


def _side(points: float) -> str:
    return f"{number(abs(points))} {'worse' if points > 0 else 'better'}"


def _passes(count: int) -> str:
    return "no pass" if count == 0 else "1 pass" if count == 1 else f"{count} passes"
