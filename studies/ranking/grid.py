"""Power and false alarms of the test against chance, on simulated tables whose truth is known.

The first column, or the first two together, explain a share (R2) of the target's logarithm. "Shown"
is a table in which the test at 5 % names the first column; without an effect (R2 of 0) one in which
it names any. The statistics alone have the same permutations. Spearman's and Pearson's (of the
logarithm) are tests of five lines, as one would write them.

Run: python -m studies.ranking.grid [--tables 400] [--jobs 2] [--quick] [--write]

``--write`` stores what the whole grid gives beside this file. It exits with 1 where the lower end
of a 95 % interval of false alarms is above 5 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest, rankdata

from perfml.modeling.ranking.association import WEIGHTS, Limits, exchanged
from perfml.modeling.results import LEVEL

RESULTS = Path(__file__).with_name("grid.json")

REDUCED = 199
"""Permutations of the reduced setting; the default has 999."""


FIRST_SEED = 5000
"""No table from this seed on was drawn while statistics and their weights were chosen."""


@dataclass(frozen=True)
class Case:
    """A kind of table: how the first column explains the target, and what is odd about it."""

    kind: str
    rows: int
    columns: int
    r2: float
    odd: str = ""


GRID = (
    Case("linear", 8, 2, 0.8),
    Case("linear", 24, 6, 0.3),
    Case("linear", 100, 12, 0.1),
    Case("step", 48, 6, 0.3),
    Case("step", 200, 20, 0.08),
    Case("U-shape", 60, 6, 0.35),
    Case("U-shape", 200, 20, 0.12),
    Case("interaction", 60, 6, 0.3),
    Case("interaction", 200, 20, 0.12),
    Case("product", 100, 6, 0.35),
    Case("linear", 60, 12, 0.2, "correlated"),
    Case("linear", 60, 6, 0.2, "ties"),
    Case("linear", 60, 6, 0.25, "undefined"),
    Case("linear", 24, 6, 0.3, "unequal groups"),
    Case("linear", 24, 6, 0.3, "noisy groups"),
    Case("linear", 60, 6, 0.2, "heavy tails"),
    Case("linear", 400, 60, 0.04),
)


def table(case: Case, seed: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Draw features, a positive target and groups."""
    rng = np.random.default_rng([seed, case.rows, case.columns, round(1000 * case.r2)])
    X = rng.normal(size=(case.rows, case.columns))
    if case.odd == "correlated":
        common = rng.normal(size=(case.rows, (case.columns + 3) // 4))
        X = 0.95 * common[:, np.arange(case.columns) // 4] + np.sqrt(1 - 0.95**2) * X
    if case.odd == "ties":
        X = np.clip(np.round(X), -1, 1)
    first = X[:, 0]
    effect = {
        "linear": lambda: first,
        "step": lambda: (first > 0).astype(float),
        "U-shape": lambda: np.abs(first),
        "interaction": lambda: np.sign(X[:, 0] * X[:, 1]),
        "product": lambda: X[:, 0] * X[:, 1],
    }[case.kind]()
    effect = (effect - effect.mean()) / max(float(effect.std()), 1e-9)
    noise = rng.normal(size=case.rows)
    log = np.sqrt(case.r2) * effect + np.sqrt(1 - case.r2) * noise
    group = np.arange(case.rows)
    if case.odd == "undefined":
        X = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    if case.odd == "heavy tails":
        X = np.exp(1.5 * X)
    if case.odd.endswith("groups"):
        group = np.repeat(group, rng.integers(1, 10, case.rows))
        scatter = 1.0 if case.odd.startswith("noisy") else 0.02
        log = log[group] + scatter * rng.normal(size=len(group))
    return X[group], np.exp(log), np.asarray(rankdata(group, "dense") - 1, dtype=np.int64)


def shown(case: Case, seed: int) -> dict[str, bool]:
    """Return which tests show the effect of one table: perfml's, reduced, and each statistic."""
    X, y, groups = table(case, seed)
    exchange = exchanged(X, np.log(y), groups, np.zeros(len(y), dtype=np.int64), seed=seed)
    few = {name: values[: 1 + REDUCED] for name, values in exchange.highest.items()}
    tests = {"perfml": Limits.of(exchange.highest), "reduced": Limits.of(few)}
    tests |= {name: Limits.of(exchange.highest, {name: 1.0}) for name in exchange.highest}
    p_values = {name: limits.judged(exchange)["p_value"] for name, limits in tests.items()}
    ranked = rankdata(X, axis=0, nan_policy="omit")
    p_values["spearman"] = five_lines(ranked, rankdata(y), exchange.drawn)
    p_values["pearson"] = five_lines(X, np.log(y), exchange.drawn)
    # without an effect any column is a false alarm
    return {name: bool((p[0] if case.r2 else p.min()) <= LEVEL) for name, p in p_values.items()}


def five_lines(X: npt.NDArray[Any], y: npt.NDArray[Any], drawn: npt.NDArray[Any]) -> Any:
    """Return the p-value of each column's largest absolute correlation, by permutations of y."""
    columns = np.nan_to_num((X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0))
    targets = y[drawn] - y[drawn].mean(axis=1, keepdims=True)
    rho = np.abs(targets @ columns) / np.sqrt(np.square(targets).sum(axis=1, keepdims=True))
    rho /= np.sqrt(np.square(columns).sum(axis=0))
    return (rho.max(axis=1)[:, None] >= rho[0] - 1e-9).mean(axis=0)


def measure(case: Case, tables: int, jobs: int = 1) -> dict[str, Any]:
    """Return how often each test shows the effect in so many tables of a case."""
    work = joblib.Parallel(n_jobs=jobs)
    timed = work(
        joblib.delayed(_timed)(case, seed) for seed in range(FIRST_SEED, FIRST_SEED + tables)
    )
    answers = [answer for answer, _ in timed]
    names = ("perfml", "reduced", "spearman", "pearson", *WEIGHTS)
    # two features that agree in every sign are no pair
    counts = {name: sum(answer.get(name, False) for answer in answers) for name in names}
    seconds = float(np.mean([seconds for _, seconds in timed]))
    return {**asdict(case), "tables": tables, "seconds": seconds, "shown": counts}


def _timed(case: Case, seed: int) -> tuple[dict[str, bool], float]:
    start = time.process_time()
    return shown(case, seed), time.process_time() - start


def alarming(row: dict[str, Any]) -> bool:
    """Return whether false alarms are more than 5 %, as far as so many tables can say."""
    low: float = binomtest(row["shown"]["perfml"], row["tables"]).proportion_ci().low
    return row["r2"] == 0 and low > LEVEL


def text(row: dict[str, Any]) -> str:
    """Return a line: the case, and the share of tables in which each test shows it."""
    shares = "  ".join(
        f"{name} {100 * count / row['tables']:.0f} %" for name, count in row["shown"].items()
    )
    about = f"{row['kind']} {row['odd']} {row['rows']} x {row['columns']}, R2 {row['r2']:g}"
    return f"{about}: {shares}"


def main() -> int:
    """Run it; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tables", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    cases = (Case("linear", 24, 6, 0.8), Case("interaction", 60, 6, 0.8)) if given.quick else GRID
    rows = []
    for case in cases:
        for one in (case, Case(case.kind, case.rows, case.columns, 0.0, case.odd)):
            if one.r2 == 0 and any(line["odd"] == one.odd for line in rows if _same(line, one)):
                continue
            rows.append(measure(one, given.tables, given.jobs))
            print(text(rows[-1]), flush=True)
            if given.write:  # after every case: the whole grid takes an hour
                whole = json.dumps({"weights": WEIGHTS, "cases": rows}, indent=1)
                RESULTS.write_text(whole + "\n", encoding="utf-8")
    return int(any(map(alarming, rows)))


def _same(line: dict[str, Any], case: Case) -> bool:
    """Return whether a case without an effect was measured under another kind."""
    return (line["rows"], line["columns"], line["r2"]) == (case.rows, case.columns, 0.0)


if __name__ == "__main__":
    sys.exit(main())
