"""Every step of every ladder: what its author says, what explain says, what advice foretold.

``python -m studies.seeds.steps`` compares the recorded steps and writes
``benchmarks/results/ladder-steps.json``, from which a table of RESULTS.md is made; with
``--anew`` those of ``studies/data/h200-ladders``, into ``ladder-steps-anew.json``. The gain to be
expected is estimated from the slower side alone, as in `studies.truth.fixes`.
"""

from __future__ import annotations

import json
import math
import sys
import tomllib
from pathlib import Path
from typing import Any

from perfml.util.files import write_text
from studies.truth.fixes import fixes_of, ladder_questions
from studies.truth.questions import Question
from studies.truth.sets import causes_of

SAID = Path(__file__).with_name("steps.toml")
RESULTS = Path(__file__).resolve().parents[2] / "benchmarks/results/ladder-steps.json"
ANEW = RESULTS.with_name("ladder-steps-anew.json")
LADDERS = Path(__file__).resolve().parents[2] / "studies/data/h200-ladders"
SHOWN = (
    "b50_n512_d64", "b1360_n128_d32", "b48_n6400_d64", "b48_n6400_d128", "conv1_b1000",
    "conv2_b1000", "small_w32", "large_w32",
)  # fmt: skip
"""Layers that every version of a ladder was profiled on, two a ladder."""
ALIKE = 0.02
"""A step that moves the time by less has no reason to be named."""


def said() -> dict[str, list[tuple[str, str, str, list[str]]]]:
    """Return what the authors say: data set to (before, after, reason, causes)."""
    found: dict[str, Any] = tomllib.loads(SAID.read_text(encoding="utf-8"))
    return found


def row_of(question: Question, reason: str, accepted: list[str]) -> dict[str, Any]:
    """Return a step on one layer."""
    causes = causes_of(question)
    ratio = math.exp(causes.log_ratio)
    along = [each for each in causes.totals if each.log_ratio * causes.log_ratio > 0]
    names = [each.term.id for each in along]
    place = next((at for at, name in enumerate(names, 1) if name in accepted), None)
    fixed = fixes_of("ladder", [question])
    expected = None
    if fixed and not math.isnan(fixed[0].estimate_us):
        # of the faster side over the slower one: turned round where the step makes it slower
        factor = fixed[0].estimate_us / fixed[0].now_us
        expected = factor if causes.log_ratio < 0 else 1 / factor
    moved = abs(ratio - 1) >= ALIKE
    return {
        "author": reason,
        "place": place if accepted and moved else None,
        "ratio": round(ratio, 3),
        "explain": along[0].term.label if along and moved else None,
        "expected": None if expected is None or not moved else round(expected, 3),
    }


def measure(folder: Path | None = None) -> list[dict[str, Any]]:
    """Return a row a step and layer; `folder` has the ladders in place of their data sets."""
    rows = []
    for name, steps in said().items():
        told = {f"{name}: {before} to {after}": rest for before, after, *rest in steps}
        data = folder / f"{name.removeprefix('h200-')}.parquet" if folder else None
        for question in ladder_questions(name, data):
            layer = question.case.rsplit(", ", 1)[1]
            if layer not in SHOWN or question.family not in told:
                continue
            reason, accepted = told[question.family]
            step = question.family.partition(": ")[2]
            rows.append(
                {"ladder": name, "step": step, "layer": layer, **row_of(question, reason, accepted)}
            )
    return rows


if __name__ == "__main__":
    again = "--anew" in sys.argv[1:]
    rows = measure(LADDERS if again else None)
    write_text(ANEW if again else RESULTS, json.dumps(rows, indent=1, allow_nan=False) + "\n")
