"""Power and false alarms of a ranking, on simulated tables whose truth is known.

A table has 24 groups and so many columns of independent normal numbers. The logarithm of the target
is standard normal; the first column explains a share of its variance (R2), chance the rest. A group
is one row, or several whose target scatters by 2 %. "Said" is a ranking whose test puts the first
column above chance at 5 %; without a signal (R2 of 0) it is one that puts any column there.

Run: python -m studies.ranking.power [--quick] [--tables 200] [--jobs 2] [--write]

``--quick`` takes a few tables of three cases, ``--write`` stores what the whole run gives beside
this file. It exits with 1 where false alarms are more than 5 % and two standard errors, or the
perfect metric of `perfect` is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd

import perfml
from perfml.modeling.ranking.leakage import Leakage
from perfml.modeling.ranking.null import FIRST_LOOK, LEVEL, NULL_RESAMPLES

RESULTS = Path(__file__).parent / "power.json"

GROUPS = 24
COLUMNS = (2, 3, 4, 6, 12, 20)
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
OPTIONS = {
    "models": "dt",
    "methods": ("builtin", "permutation"),
    "resamples": NULL_RESAMPLES,
    "permutations": FIRST_LOOK,
    "leakage": Leakage(0, 0, 0, 0.0, 0.0, "", 0.0, None, 0.0, (), None),
    "n_jobs": 1,
}
"""As few permutations as a report has, one model and two methods: the test has to be repeated
thousands of times. More of each find weaker effects; false alarms do not depend on them."""


@dataclass(frozen=True)
class Case:
    """A kind of table.

    Attributes
    ----------
    columns
        How many.
    r2
        Share of the variance of the target's logarithm that the first column explains.
    rows
        Rows of a group: the smallest and the largest number of them.
    """

    columns: int
    r2: float
    rows: tuple[int, int] = (1, 1)


NOISE = tuple(Case(columns, 0.0) for columns in COLUMNS)
NOISE_IN_REPEATS = (Case(6, 0.0, (3, 3)), Case(6, 0.0, (1, 9)))
SIGNAL = tuple(Case(columns, r2) for columns in COLUMNS for r2 in SHARES)


def table(case: Case, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Draw features, a target and groups."""
    rng = np.random.default_rng([seed, case.columns])
    columns = rng.normal(size=(GROUPS, case.columns))
    log = np.sqrt(case.r2) * columns[:, 0] + np.sqrt(1 - case.r2) * rng.normal(size=GROUPS)
    group = np.repeat(np.arange(GROUPS), rng.integers(case.rows[0], case.rows[1] + 1, GROUPS))
    scatter = 0.02 * rng.normal(size=len(group)) * (case.rows[1] > 1)
    names = [f"m{column}" for column in range(case.columns)]
    return pd.DataFrame(columns[group], columns=names), np.exp(log[group] + scatter), group


def said(case: Case, seed: int) -> bool:
    """Return whether the ranking of one table says that there is a signal."""
    features, target, groups = table(case, seed)
    ranking = perfml.rank(features, target, groups=groups, seed=seed, **OPTIONS)
    return "m0" in ranking.beyond_chance if case.r2 else bool(ranking.beyond_chance)


def perfect(columns: int, seed: int = 0) -> bool:
    """Return whether y = exp(2 m0) with 2 % noise is said of 24 groups of 5 rows, by default."""
    rng = np.random.default_rng([seed, columns])
    values = np.repeat(rng.uniform(size=(GROUPS, columns)), 5, axis=0)
    target = np.exp(2 * values[:, 0]) * (1 + 0.02 * rng.normal(size=len(values)))
    frame = pd.DataFrame(values, columns=[f"m{column}" for column in range(columns)])
    ranking = perfml.rank(frame, target, groups=np.repeat(range(GROUPS), 5), n_jobs=1)
    return "m0" in ranking.beyond_chance


def measure(cases: tuple[Case, ...], tables: int, jobs: int) -> list[dict[str, Any]]:
    """Return how often a signal was said in so many tables of each case."""
    seeds = range(tables)
    work = (joblib.delayed(said)(case, seed) for case in cases for seed in seeds)
    answers = np.reshape(joblib.Parallel(n_jobs=jobs)(work), (len(cases), tables))
    return [
        {**asdict(case), "tables": tables, "said": int(answer.sum())}
        for case, answer in zip(cases, answers, strict=True)
    ]


def too_many(rows: list[dict[str, Any]]) -> bool:
    """Return whether the false alarms of all cases are beyond 5 % and two standard errors."""
    noise = [row for row in rows if row["r2"] == 0]
    expected = LEVEL * sum(row["tables"] for row in noise)
    return sum(row["said"] for row in noise) > expected + 2 * np.sqrt(expected)


def text(rows: list[dict[str, Any]]) -> str:
    """Return the shares as a table: a row a number of columns, a column a share of variance."""
    frame = pd.DataFrame(rows)
    frame["share"] = (100 * frame["said"] / frame["tables"]).map("{:.0f} %".format)
    plain = [list(each) == [1, 1] for each in frame["rows"]]
    wide = frame[plain].pivot(index="columns", columns="r2", values="share")
    lines = [wide.to_string()]
    for row in frame[[not each for each in plain]].to_dict("records"):
        few, many = row["rows"]
        size = f"{few}" if few == many else f"{few} to {many}"
        lines.append(f"{row['columns']} columns, no signal, {size} rows a group: {row['share']}")
    return "\n".join(lines)


def main() -> int:
    """Run it; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tables", type=int, default=200, help="half as many with a signal")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.quick:
        rows = measure((Case(3, 0.0), Case(3, 0.9), Case(12, 0.9)), 8, given.jobs)
    else:
        rows = measure((*NOISE, *NOISE_IN_REPEATS), given.tables, given.jobs)
        rows += measure(SIGNAL, given.tables // 2, given.jobs)
    missed = [columns for columns in ((2,) if given.quick else COLUMNS[:5]) if not perfect(columns)]
    print(text(rows))
    print(f"a perfect metric is missed with so many columns: {missed or 'none'}")
    if given.write:
        RESULTS.write_text(json.dumps({"cases": rows, "missed": missed}, indent=1) + "\n")
    return 1 if missed or too_many(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
