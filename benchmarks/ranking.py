"""Does `rank` find a signal, and does it find one where there is none: simulated tables.

Every table has layers under three backends with ten metrics, uniform between 0 and 1, and three
repeats whose metrics scatter by 0.003 and whose times by 0.2 %. The logarithm of the time is
standard normal. Where there is a signal it is a share (R2) of the variance of that logarithm
which the first metric explains; everything else is chance. What should come out is known, so the
shares below are the error rates of the method and not of one data set.

Run: python -m benchmarks.ranking [--case CASE,...] [--tables 100] [--models dt,lmt] [--jobs 2]
[--quick] [--write]; ``--quick`` repeats as often as a report does, ``--write`` puts the table into
docs/explanation/importances.md. It exits with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd

from perfml.errors import PerfmlError
from perfml.modeling import rank
from perfml.modeling.ranking.null import FEWEST_PERMUTATIONS, QUICK_RESAMPLES
from perfml.report.write import RESAMPLES as REPORT_RESAMPLES
from perfml.tables import replacing
from perfml.util.words import Readable

METRICS = (
    "gld_efficiency",
    "gst_efficiency",
    "stall_inst_fetch",
    "stall_exec_dependency",
    "stall_memory_dependency",
    "stall_sync",
    "stall_pipe_busy",
    "shared_efficiency",
    "achieved_occupancy",
    "l2_utilization",
)
SIGNAL = METRICS[0]
BACKENDS = ("cublas", "cudnn", "inductor")
FALSE_ALARMS = 0.05
"""Largest share of tables without a signal that may show P(top 3) of 0.8 or more."""
FOUND = 0.70
"""Smallest share of tables with a signal where the metric that carries it must be first."""
HIGH = 0.8
PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "importances.md"
_TABLE = re.compile(
    r"(?<=<!-- simulated: written by benchmarks/ranking.py -->\n\n).*?(?=\n\n<!--)", re.S
)


@dataclass(frozen=True)
class Case:
    """A kind of table.

    Attributes
    ----------
    layers
        Layers that differ.
    copies
        Names that each of them is measured under.
    r2
        Share of the variance of log time that `SIGNAL` explains.
    alike
        Metrics at the end of the list that are one quantity with a scatter of 0.05.
    twins
        Whether the second metric is the first one with a scatter of 0.01.
    """

    layers: int = 21
    copies: int = 1
    r2: float = 0.0
    alike: int = 0
    twins: bool = False


CASES = {
    "no signal, 21 layers": Case(),
    "no signal, 7 layers": Case(layers=7),
    "no signal, 7 layers under three names each": Case(layers=7, copies=3),
    "no signal, two metrics are twins": Case(twins=True),
    "no signal, five metrics are one group": Case(alike=5),
    "no signal, 2 layers": Case(layers=2),
    "R2 of 0.16": Case(r2=0.16),
    "R2 of 0.16 in a metric with a twin": Case(r2=0.16, twins=True),
    "R2 of 0.16, five other metrics are one group": Case(r2=0.16, alike=5),
}


def table(case: Case, seed: int, repeats: int = 3) -> pd.DataFrame:
    """Draw a Layers table."""
    rng = np.random.default_rng(seed)
    rows = []
    for layer in range(case.layers):
        for backend in BACKENDS:
            metrics = rng.uniform(size=len(METRICS))
            if case.twins:
                metrics[1] = metrics[0] + 0.01 * rng.normal()
            if case.alike:
                metrics[-case.alike :] = metrics[-1] + 0.05 * rng.normal(size=case.alike)
            signal = np.sqrt(12) * (metrics[0] - 0.5)
            log_time = np.sqrt(case.r2) * signal + np.sqrt(1 - case.r2) * rng.normal()
            for copy in range(case.copies):
                shifted = metrics + (0.003 * rng.normal(size=len(METRICS)) if copy else 0.0)
                for repeat in range(repeats):
                    scattered = np.clip(shifted + 0.003 * rng.normal(size=len(METRICS)), 0, 1)
                    scatter = 0.002 * rng.normal()
                    rows.append(
                        {
                            "run_id": backend,
                            "workload": "simulated",
                            "backend": backend,
                            "precision": "fp32",
                            "batch": 1,
                            "device": "none",
                            "compute_capability": "9.0",
                            "iteration": repeat,
                            "layer": f"layer_{layer:02d}" + (f"_{copy}" if copy else ""),
                            "kernels": 1,
                            "kernel_names": "kernel",
                            "time_us": float(100 * np.exp(log_time + scatter)),
                            **dict(zip(METRICS, scattered, strict=True)),
                        }
                    )
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Answer:
    """What `rank` says of one table.

    Attributes
    ----------
    groups
        How many.
    first
        Members of the group with the best mean rank.
    largest
        The largest P(top 3).
    limit
        What a leading group gets by chance, 95 %.
    """

    groups: int
    first: tuple[str, ...]
    largest: float
    limit: float


@dataclass(frozen=True)
class Result:
    """What `rank` says of many tables of one kind."""

    name: str
    case: Case
    answers: list[Answer] = field(default_factory=list)
    refused: int = 0

    @property
    def tables(self) -> int:
        """How many were drawn."""
        return len(self.answers) + self.refused

    @property
    def high(self) -> float:
        """Share of tables in which some group has a P(top 3) of `HIGH`."""
        return sum(answer.largest >= HIGH for answer in self.answers) / self.tables

    @property
    def beyond_chance(self) -> float:
        """Share of tables in which some group has a P(top 3) above the null's 95 %."""
        return sum(answer.largest > answer.limit for answer in self.answers) / self.tables

    @property
    def watched(self) -> tuple[str, float]:
        """The group that is watched, and how often it is first."""
        metric = METRICS[-1] if self.case.alike and not self.case.r2 else SIGNAL
        first = sum(metric in answer.first for answer in self.answers) / self.tables
        what = "the signal" if self.case.r2 else "the group of five" if self.case.alike else metric
        return what, first

    @property
    def missed(self) -> bool:
        """Whether a goal is missed."""
        return self.watched[1] < FOUND if self.case.r2 else self.high > FALSE_ALARMS

    def cells(self) -> list[str]:
        """Return the row of the table."""
        if not self.answers:
            return [self.name, str(self.tables), "no ranking", "no ranking", "no ranking", ""]
        groups = statistics.mean(answer.groups for answer in self.answers)
        what, first = self.watched
        chance = "" if self.case.r2 else f" (chance {Readable(1 / groups):.0%})"
        limit = statistics.median(answer.limit for answer in self.answers)
        return [
            self.name,
            str(self.tables),
            f"{Readable(self.high):.0%}",
            f"{Readable(self.beyond_chance):.0%}",
            f"{what}: {Readable(first):.0%}{chance}",
            f"{limit:.2f}",
        ]


def ask(case: Case, seed: int, models: Sequence[str], quick: bool = False) -> Answer | None:
    """Rank one table; None where `rank` refuses to. `quick` repeats as often as a report."""
    few: dict[str, Any] = {
        "resamples": REPORT_RESAMPLES,
        "permutations": FEWEST_PERMUTATIONS,
        "null_resamples": QUICK_RESAMPLES,
        "quick": True,
    }
    try:
        ranking = rank(
            table(case, seed),
            models=models,
            methods=("builtin", "permutation"),
            features=METRICS,
            seed=1000 * seed,
            n_jobs=1,
            **(few if quick else {}),
        )
    except PerfmlError:
        return None
    summary = ranking.summary
    return Answer(
        len(summary),
        tuple(summary["members"].iloc[0].split(", ")),
        float(summary["p_top3"].max()),
        float(summary["null_p_top3"].iloc[0]),
    )


def run(
    name: str, tables: int, models: Sequence[str], jobs: int = 1, *, quick: bool = False
) -> Result:
    """Rank some tables of one kind."""
    case = CASES[name]
    answers = joblib.Parallel(n_jobs=jobs)(
        joblib.delayed(ask)(case, seed, models, quick) for seed in range(tables)
    )
    ranked = [answer for answer in answers if answer is not None]
    return Result(name, case, ranked, tables - len(ranked))


def markdown(results: Sequence[Result], models: Sequence[str], quick: bool = False) -> str:
    """Return the table for the documentation."""
    head = [
        "simulated tables",
        "tables",
        f"P(top 3) of {HIGH} or more",
        "above the null's 95 %",
        "first",
        "null's 95 %, median",
    ]
    lines = [head, ["---"] * len(head), *(result.cells() for result in results)]
    rows = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    resamples, permutations = (REPORT_RESAMPLES, FEWEST_PERMUTATIONS) if quick else (50, 40)
    return (
        f"{rows}\n\nModels: {', '.join(models)}; {resamples} resamples, "
        f"{permutations} permutations."
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run the cases and print them; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--case", help="names, separated by semicolons; all without")
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--models", default="dt,lmt")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="as often as a report does")
    given = parser.parse_args(words)
    models = given.models.split(",")
    results = []
    for name in given.case.split(";") if given.case else CASES:
        start = time.perf_counter()
        results.append(run(name, given.tables, models, given.jobs, quick=given.quick))
        seconds = time.perf_counter() - start
        sys.stderr.write(f"{' | '.join(results[-1].cells())} ({seconds:.0f} s)\n")
    text = markdown(results, models, given.quick)
    sys.stdout.write(text + "\n")
    if given.write and not given.quick:
        page = PAGE.read_text(encoding="utf-8")
        with replacing(PAGE) as temporary:
            temporary.write_text(_TABLE.sub(lambda _: text, page), encoding="utf-8")
    return int(any(result.missed for result in results))


if __name__ == "__main__":
    sys.exit(main())
