"""Answers with what experiments in the runs' folders say of them: proven, refuted, and the gain.

``perfml prove --out RUN_FOLDER`` puts ``experiments.csv`` beside what `perfml collect` recorded.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from perfml.datasets.selection import split_place
from perfml.experiments.record import FILE, read_experiments
from perfml.experiments.responses import Responses, responses
from perfml.experiments.verdicts import PROVEN, REFUTED, Examination, Finding, claimed_of, examine
from perfml.explain.advice.first_fix import on_side
from perfml.explain.advice.fix import Estimate
from perfml.explain.advice.hazards import Advice
from perfml.explain.confidence import Confidence
from perfml.explain.results import Explanation, LayerDiff
from perfml.explain.tree.layer_causes import Causes

Answer = TypeVar("Answer", Advice, Explanation)


def with_experiments(answer: Answer, *tables: str | None) -> Answer:
    """Return an answer with the verdicts of experiments beside its tables, where there are any."""
    # The answer is of ``perfml explain`` or ``perfml advise``; a table is a run, or a file in its
    # folder. Two sides in one table have no verdicts: nothing tells of which side its experiments
    # are.
    sides = [_launches(name) for name in tables if name is not None]
    if isinstance(answer, Advice):
        return replace(answer, table=_advised(answer.table, sides[0])) if sides[0] else answer
    if len(sides) != 2 or not any(sides):
        return answer
    return replace(answer, details=tuple(_explained(each, sides) for each in answer.details))


def _launches(name: str) -> list[Responses]:
    path = Path(split_place(name)[0])
    folder = path if path.is_dir() else path.parent
    files = [folder / FILE] if (folder / FILE).is_file() else []
    if not files and path.is_dir():  # perfml collect puts a run into a folder of its own
        files = [*path.glob(f"*/{FILE}")]
    # of several runs nothing tells whose experiments a layer's are
    return responses(read_experiments(files[0])) if path.exists() and len(files) == 1 else []


def _explained(detail: LayerDiff, sides: list[list[Responses]]) -> LayerDiff:
    fix, slow = detail.fix, detail.time.log_ratio > 0
    if fix is None:
        return detail
    layer, claimed = (detail.layer, detail.target_layer)[slow], claimed_of(detail.time.log_ratio)
    asked = Finding(layer, fix.term.id, fix.term.label, fix.confidence, fix.kernel, claimed)
    (said,) = examine([asked], sides[slow])
    if not said.tells:
        return detail
    confidence, gains = _confidence(said, fix.confidence), said.gains
    if gains is not None:
        share = _share(fix.kernel, detail.causes, int(slow))
        after, high, low = (fix.now.without(share * gain) for gain in gains)
        fix = replace(fix, after=Estimate(after, low, high), measured=True, unsaid=None)
    causes = replace(detail.causes, tested=confidence)
    fix = replace(fix, confidence=confidence)
    return replace(detail, fix=fix, reasons=(said.said, *detail.reasons), causes=causes)


def _share(kernel: str, causes: Causes, side: int) -> float:
    """Return what part of a layer's time one of its kernels takes; 1 where nothing tells."""
    times = [(on_side(pair.kernels, side), pair.times_us[side]) for pair in causes.pairs]
    whole = sum(us for _, us in times)
    return sum(us for name, us in times if name == kernel) / whole if whole > 0 else 1.0


def _advised(table: pd.DataFrame, launches: list[Responses]) -> pd.DataFrame:
    """Return findings with their verdicts; those that are refuted stand last."""
    rows = [_finding(row, launches) for row in table.to_dict("records")]
    rows.sort(key=lambda row: str(row["confidence"]) == "refuted")
    return pd.DataFrame(rows, columns=table.columns)


def _finding(row: dict[Any, Any], launches: list[Responses]) -> dict[Any, Any]:
    cause, sure, gain = row["rules"][0], row["confidence"], float(row["gain"])
    claimed = gain if 0 < gain <= 1 else 1.0
    asked = Finding(row["layer"], cause, cause, sure, row["kernel"], claimed)
    (said,) = examine([asked], launches)
    if not said.tells:
        return row
    row |= {"confidence": _confidence(said, sure), "evidence": f"{said.said} {row['evidence']}"}
    if said.gains is not None:
        likely, _, high = (min(row["share"] * each, 1.0) for each in said.gains)
        row |= {"gain": likely, "gain_high": high, "saved_us": high * float(row["time_us"])}
    return row


def _confidence(said: Examination, before: Confidence) -> Confidence:
    verdict = "" if said.verdict is None else said.verdict.verdict
    return "proven" if verdict == PROVEN else "refuted" if verdict == REFUTED else before
