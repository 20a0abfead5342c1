"""The analysis of a dataset.csv in one call; the rest of chapter 2 is ``studies.reproduction``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perfml import __version__
from perfml.errors import PerfmlError
from perfml.modeling.features import build_problem
from perfml.reproduce import summary
from perfml.reproduce.claims import LEGEND, Claim, judge
from perfml.reproduce.published import KEY_METRIC, Source, find_data
from perfml.reproduce.splits import OWN, Plan, Runs, run_tasks
from perfml.util.json_values import json_value
from perfml.util.shown import section
from perfml.util.typing import Progress

STAND_IN_SPLITS, STAND_IN_STUDY = 100, 20
"""Random splits of a recording that stands in for the published file, and those of linear-tree."""


@dataclass(frozen=True)
class Reproduction:
    """Everything the command writes; `results` is the document of ``results.json``."""

    source: Source
    regression: Runs
    classification: Runs
    results: dict[str, Any]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...] = field(default=())

    def _repr_html_(self) -> str:
        columns = ["claim", "where", "verdict", "evidence", "data"]
        claims = pd.DataFrame([claim.to_dict() for claim in self.claims])[columns]
        return section(f"{self.source.name}: the study's claims", self.notes, claims)


def reproduce(
    data: Path | None = None,
    *,
    plan: Plan | None = None,
    url: str | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Repeat the study's analysis and judge its claims.

    Parameters
    ----------
    data
        The published ``dataset.csv`` or a file of its schema; None finds or downloads it.
    plan
        How much to fit.
    url
        Another place to download the file from.
    progress
        Called as ``progress(done, total, what)``.

    Raises
    ------
    PerfmlError
        If the data cannot be had or read, or has fewer than two backends.
    """
    plan = plan or Plan()
    if plan.splits < 2:
        msg = "a distribution needs at least two splits"
        raise PerfmlError(msg, found=str(plan.splits), cure="Ask for 500.")
    source = find_data(data, url=url)
    notes = list(source.notes)
    if not source.published:
        plan, note = standing_in(plan)
        notes.append(note)
    problems = [build_problem(source.layers, task) for task in ("regression", "classification")]
    regression, classification = run_tasks(problems, plan, progress)
    results = _results(source, regression, classification)
    claims = judge(results, source)
    results["claims"] = [claim.to_dict() for claim in claims]
    results["footnotes"] = _fewer(regression, plan)
    results["notes"] = list(notes)
    document: dict[str, Any] = json_value(results)
    return Reproduction(source, regression, classification, document, tuple(claims), tuple(notes))


def standing_in(plan: Plan) -> tuple[Plan, str]:
    """Return a smaller plan for a recording, which has more rows and layers than the study."""
    splits = min(plan.splits, STAND_IN_SPLITS)
    study = min(splits, STAND_IN_STUDY if plan.study_splits is None else plan.study_splits)
    smaller = replace(plan, splits=splits, study_splits=study)
    note = (
        f"The recording has more rows than the published file. So the models are fitted on "
        f"{splits} random splits, linear-tree on {study} and on no held-out layer."
    )
    return smaller, note


def _fewer(runs: Runs, plan: Plan) -> tuple[str, ...]:
    own = len(runs.random[OWN].score)
    if own >= plan.splits:
        return ()
    return (f"perfml's own linear model tree was fitted on {own} of the {plan.splits} splits.",)


def _results(source: Source, regression: Runs, classification: Runs) -> dict[str, Any]:
    leakage = summary.find_leakage(regression)
    facts = summary.data_facts(source, leakage, regression)
    lookup = regression.random.get(f"lookup:{KEY_METRIC}")
    return {
        "perfml": __version__,
        "data": facts,
        "leakage": leakage.to_dict(),
        "ranges": summary.range_rows(source),
        "regression": summary.regression(regression, comparable=source.published),
        "classification": summary.classification(classification),
        "lookup_gld_mape": None if lookup is None else float(np.median(lookup.score)),
        "baselines": {
            "regression": summary.baselines(regression),
            "classification": summary.baselines(classification),
        },
        "order_shares": summary.order_shares(regression),
        "key_metric": {
            "metric": KEY_METRIC,
            "regression": _key_metric(regression, ("dt", "gbr", "lmt")),
            "classification": _key_metric(classification, ("dt", "lr", "rf")),
        },
        "verdicts": LEGEND,
    }


def _key_metric(runs: Runs, names: tuple[str, ...]) -> dict[str, dict[str, float]]:
    found = {name: summary.key_metric(runs, name) for name in names}
    return {name: each for name, each in found.items() if each is not None}


def importance_table(runs: Runs, names: tuple[str, ...] | None = None) -> pd.DataFrame:
    """Return built-in importances over the splits: the tidy form of figure 2-6.

    Columns are ``model, method, metric, importance, low, high``; low and high hold 95 % of the
    splits.
    """
    frames = []
    for name, each in runs.random.items():
        if each.importance is None or (names is not None and name not in names):
            continue
        low, high = np.quantile(each.importance, [0.025, 0.975], axis=0)
        frame = pd.DataFrame(
            {
                "model": name,
                "method": "coefficient" if name.startswith("lr") else "built-in",
                "metric": runs.problem.design.names,
                "importance": each.importance.mean(axis=0),
                "low": low,
                "high": high,
            }
        )
        frames.append(frame.sort_values("importance", ascending=False, kind="stable"))
    return pd.concat(frames, ignore_index=True)
