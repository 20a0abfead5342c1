"""Is perfml right on kernels by people who had not seen its causes?

Run: ``python -m studies.truth.strangers [--exam NAME] [--half HALF] [--out FILE]`` asks `explain`
and `advise` about every pair of an exam and prints the scores. Labels, what counts as right, which
pairs count and the halves were frozen before the first answer, and that answer lies beside them. A
half called ``aside`` is not looked at by those who mend what the half ``dev`` shows; that of the
first exam was, once its later answer had been kept.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from perfml.datasets import find
from perfml.explain import advise, explain, load_tables, sides_of
from perfml.explain.advice.finding import table_of
from perfml.explain.advice.fix import WIDTH
from perfml.explain.compared import Side, make_side
from perfml.ingest.merge.rule import merge
from perfml.ingest.profiles import ingest
from perfml.tables import replacing
from studies.page_tables import markdown
from studies.truth.fixes import fixes_of, summary
from studies.truth.labels import causes_of_rules
from studies.truth.questions import EXAM_DATASETS, exam_questions
from studies.truth.scores import CONFIDENT, wilson

if TYPE_CHECKING:
    from perfml.explain import LayerDiff

HALVES = ("dev", "aside")
ANSWERS = {
    "first": "answers_first.json",
    "later": "answers_later.json",
    "mended": "answers_mended.json",
}
"""By when they were asked; *mended* is after both halves were read."""
EQUAL = "no difference"

Answers = Mapping[str, Mapping[str, Any]]
"""Pair -> verdict, ratio, terms, what to do, advice."""


@dataclass(frozen=True)
class Score:
    """Counts of one half in one recording.

    Attributes
    ----------
    pairs, first, three, wrong
        Pairs that differ; the cause stands first; among the first three; something else stands
        first, is no rest, and is at least half of the ratio, and the first line does not say that
        it cannot be told.
    action
        What `explain` says to do is what the label says.
    advised, named
        `advise`, from the slow launch alone, has a right rule first; anywhere.
    equal, told
        Pairs of equal kernels; called no difference.
    claimed
        Equal kernels that are called slower or faster.
    doubted
        Pairs that differ where the first line says that the cause cannot be told, and what would
        tell. Answers before 2026-11-23 did not keep it, and count as without doubt.
    hedged
        Of these, pairs whose cause stands first all the same: nobody wins by doubting everything.
    """

    pairs: int = 0
    first: int = 0
    three: int = 0
    wrong: int = 0
    action: int = 0
    advised: int = 0
    named: int = 0
    equal: int = 0
    told: int = 0
    claimed: int = 0
    doubted: int = 0
    hedged: int = 0

    def __add__(self, other: Score) -> Score:
        """Return the counts of both together."""
        mine, theirs = asdict(self), asdict(other)
        return Score(**{name: mine[name] + theirs[name] for name in mine})


@dataclass(frozen=True)
class Exam:
    """Pairs of kernels, or of blocks of a program, with frozen labels.

    Attributes
    ----------
    dataset
        Where they are recorded.
    recordings
        How: by Nsight Compute (``ncu``), by ``perfml collect`` (``collect``).
    asked
        The day of the first answer.
    code
        What the pairs are of.
    """

    dataset: str
    recordings: tuple[str, ...]
    asked: str
    code: str

    @property
    def folder(self) -> Path:
        """Return the recording."""
        found = find(self.dataset)
        assert found is not None
        return found

    def document(self, name: str) -> Any:
        """Return one of the frozen documents beside the recording."""
        return _document(self.folder / name)

    def ask(self, recording: str, halves: Sequence[str] = HALVES) -> dict[str, dict[str, Any]]:
        """Return today's answers to the pairs of `halves`, as the frozen ones were kept."""
        left, right = self.sides(recording)
        tables = {
            side.name: table_of(advise(side.layers, kernels=side.kernels).of_layers)
            for side in (left, right)
        }
        wanted = {name for half in halves for name in self.document("halves.json")[half]}
        asked = sorted(wanted & set(left.layers["layer"]) & set(right.layers["layer"]))
        found = {}
        for detail in explain(left, right, layers=asked, model=None).details:
            slower = right.name if detail.time.log_ratio > 0 else left.name
            advice = tables[slower]
            found[detail.layer] = _answer(detail, advice[advice["layer"] == detail.layer])
        return found

    def sides(self, recording: str) -> tuple[Side, Side]:
        folder = self.folder / "runs"
        if recording == "ncu" or not folder.is_dir():
            layers, kernels = load_tables(self.folder)
            return sides_of(layers, "before", "after", kernels=kernels)
        runs = {}
        for place in sorted(folder.iterdir()):
            side = json.loads((place / "run.json").read_text(encoding="utf-8"))["program"][-1]
            kernels = ingest([place]).frame
            runs[side] = make_side(side, merge(kernels), kernels)
        return runs["before"], runs["after"]

    def counted(self, halves: Sequence[str] = HALVES) -> dict[str, Mapping[str, Any] | None]:
        """Return what is accepted of the pairs that count, None of equal ones, half by half."""
        cases = self.document("accepted.json")["cases"]
        left_out = self.document("decision.json")["left_out"]
        names = [name for half in halves for name in self.document("halves.json")[half]]
        return {name: cases.get(name) for name in names if name not in left_out}

    def labelled(self, halves: Sequence[str] = HALVES) -> dict[str, Mapping[str, Any]]:
        """Return what is accepted of the pairs that differ and count."""
        counted = self.counted(halves)
        return {name: accepted for name, accepted in counted.items() if accepted is not None}

    def half_score(self, answers: Answers, half: str) -> Score:
        """Return the counts of a half, ``dev`` or ``aside``, without the pairs left out."""
        counted = self.counted((half,)).items()
        return sum((score(answers[name], accepted) for name, accepted in counted), Score())

    def first_score(self) -> Score:
        """Return the counts of both halves as first answered, in the first recording."""
        answers = self.document(ANSWERS["first"])[self.recordings[0]]
        return sum((self.half_score(answers, half) for half in HALVES), Score())

    def estimates(self, halves: Sequence[str] = HALVES) -> dict[str, Any]:
        """Return today's errors of times after the labelled cause's fix, of each half.

        ``coverage`` is of the intervals that ship.
        """
        rows = fixes_of(self.dataset, exam_questions(self.dataset))
        names = self.document("halves.json")
        widths = {self.dataset: WIDTH}
        found = {half: [row for row in rows if row.case in names[half]] for half in halves}
        if set(halves) == set(HALVES):
            found["both"] = rows
        return {half: summary(some, widths) for half, some in found.items()}


_CUDA, _TORCH = "CUDA kernels", "PyTorch blocks"

EXAMS = {
    "first": Exam(EXAM_DATASETS["first"], ("ncu", "collect"), "2026-11-22", _CUDA),
    "second": Exam(EXAM_DATASETS["second"], ("ncu",), "2026-11-22", _CUDA),
    "third": Exam(EXAM_DATASETS["third"], ("ncu",), "2026-11-23", _CUDA),
    "fourth": Exam(EXAM_DATASETS["fourth"], ("ncu",), "2026-11-23", _CUDA),
    "fifth": Exam(EXAM_DATASETS["fifth"], ("ncu",), "2026-11-23", _CUDA),
    "sixth": Exam(EXAM_DATASETS["sixth"], ("ncu",), "2026-11-23", _CUDA),
    "torch": Exam(EXAM_DATASETS["torch"], ("collect",), "2026-11-23", _TORCH),
    "torch2": Exam(EXAM_DATASETS["torch2"], ("collect",), "2026-11-23", _TORCH),
    "torch3": Exam(EXAM_DATASETS["torch3"], ("collect",), "2026-11-23", _TORCH),
    "torch4": Exam(EXAM_DATASETS["torch4"], ("collect",), "2026-11-23", _TORCH),
}

READ = ("first", "second", "third", "fifth", "torch", "torch2", "torch3")
"""Exams whose both halves may be read."""

Z90 = 1.644854
"""Wilson's interval at 90 %."""


def unseen_table() -> str:
    """Return what each exam was answered at first, before anybody here had read it."""
    rows = []
    for name, exam in EXAMS.items():
        each, commit = exam.first_score(), exam.document(ANSWERS["first"])["commit"][:7]
        cells = [exam.code, name, f"{exam.asked} ({commit})", each.pairs]
        cells += [_share(hits, each.pairs) for hits in (each.first, each.three, each.wrong)]
        cells += [f"{each.hedged}/{each.pairs}", _share(each.advised, each.pairs)]
        rows.append([*cells, f"{each.told}/{each.equal}"])
    header = ["code", "exam", "asked (commit)", "pairs", "cause first", "in three"]
    header += ["wrong and confident", "right, confidence below high", "advice first", "equal told"]
    return markdown(header, rows)


def _share(hits: int, cases: int) -> str:
    low, high = wilson(hits, cases, Z90)
    return f"{hits}, **{hits / cases:.0%}** ({low:.0%} to {high:.0%})"


_NOTHING = 1e-6
"""A term whose logarithm is smaller is left out of an answer."""


@cache
def _document(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _answer(detail: LayerDiff, advice: pd.DataFrame) -> dict[str, Any]:
    towards = math.copysign(1.0, detail.time.log_ratio)
    rows = detail.causes.terms
    rows = rows[towards * rows["log_ratio"] > _NOTHING]
    rows = rows.sort_values("log_ratio", key=abs, ascending=False, kind="stable")
    return {
        "verdict": detail.time.verdict,
        "ratio": detail.time.ratio,
        "terms": [
            {
                "term": row["term"],
                "residual": bool(row["residual"]),
                "part": round(row["log_ratio"] / detail.time.log_ratio, 3),
            }
            for row in rows.to_dict(orient="records")
        ],
        "doubt": detail.unseen or _doubt(detail),
        "what_to_do_term": _done(detail),
        "advice": [
            {"rules": list(row["rules"]), "confidence": row["confidence"]}
            for row in advice.to_dict("records")
        ],
    }


def _doubt(detail: LayerDiff) -> str | None:
    """Return what kernels cannot tell, which is no doubt where the time passes between them."""
    return None if detail.causes.untold is None else detail.causes.untold.sentence()


def _done(detail: LayerDiff) -> str | None:
    return None if detail.fix is None else detail.fix.term.id


def accepted_rules(accepted: Mapping[str, Any]) -> set[str]:
    """Return what `advise` may say of a pair: rules of the labels' day, and today's causes."""
    rules = {*accepted["rules"], *accepted.get("rules_added", ())}
    return rules | causes_of_rules(rules)


def score(answer: Mapping[str, Any], accepted: Mapping[str, Any] | None) -> Score:
    """Judge the answer to one pair; equal kernels have nothing accepted."""
    if accepted is None:
        told = answer["verdict"] == EQUAL
        return Score(equal=1, told=told, claimed=answer["verdict"] in ("slower", "faster"))
    terms = answer["terms"]
    right = [each["term"] in accepted["terms"] for each in terms]
    sure = bool(terms) and not terms[0]["residual"] and terms[0]["part"] >= CONFIDENT
    doubted = answer.get("doubt") is not None
    wanted = accepted_rules(accepted)
    rules = [bool(wanted & set(each["rules"])) for each in answer["advice"]]
    return Score(
        pairs=1,
        first=right[:1] == [True],
        three=any(right[:3]),
        wrong=sure and not right[0] and not doubted,
        action=answer["what_to_do_term"] in accepted["action_terms"],
        advised=rules[:1] == [True],
        named=any(rules),
        doubted=doubted,
        hedged=doubted and right[:1] == [True],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, print the scores, and keep the answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exam", choices=EXAMS, default=[*EXAMS][-1])
    parser.add_argument("--half", choices=HALVES, help="ask about this half alone")
    parser.add_argument("--out", type=Path, help="keep the answers here")
    parser.add_argument("--commit", default="", help="what to say was asked")
    given = parser.parse_args(arguments)
    exam, halves = EXAMS[given.exam], HALVES if given.half is None else (given.half,)
    answers: dict[str, Any] = {name: exam.ask(name, halves) for name in exam.recordings}
    scores = {
        f"{name}, {half}": asdict(exam.half_score(answers[name], half))
        for name in exam.recordings
        for half in halves
    }
    sys.stdout.write(pd.DataFrame(scores).T.to_string() + "\n")
    answers["estimates"] = exam.estimates(halves)
    sys.stdout.write(json.dumps(answers["estimates"], indent=1) + "\n")
    if given.out is not None:
        kept = json.dumps({"commit": given.commit, **answers}, separators=(",", ":")) + "\n"
        with replacing(given.out) as place:
            place.write_text(kept, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
