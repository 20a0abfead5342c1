"""Short answers for programs and people in a hurry: verdict, causes, what to do, what is missing.

An answer is kept below `LARGEST` bytes as JSON, which is about 1,500 tokens: what matters least is
left out first, and how much that was is said.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from perfml.errors import plain
from perfml.explain.advice.finding import saving
from perfml.explain.confidence import marked
from perfml.explain.results import points_of, shown_by
from perfml.explain.speed_of_light import Headroom, headroom
from perfml.explain.tree.layer_causes import sided_causes
from perfml.explain.words import step_action, step_cause, step_verdict
from perfml.kernel_names import shortened
from perfml.util.findings import Evidence
from perfml.util.json_values import Document, json_object
from perfml.util.words import ended, factor_text, say

if TYPE_CHECKING:
    from perfml.explain.advice.finding import Finding
    from perfml.explain.advice.hazards import Advice
    from perfml.explain.results import Explanation, LayerDiff
    from perfml.explain.speed_of_light import KernelLevels
    from perfml.explain.steps import StepComparison

LARGEST = 5_800  # bytes of an answer as indented JSON; the schema's name comes on top

_NAME, _NUMBERS = 80, 2
_TEXT = 400
_LEVELS = ((8, 3, 4), (5, 3, 4), (3, 3, 4), (3, 2, 3), (2, 2, 2), (1, 3, 2), (1, 1, 1), (1, 0, 0))
"""Layers, causes of each, and notes as well as missing counters: the first that fits is taken."""


Row = Mapping[str, Any]
BriefCause = Document(
    "BriefCause",
    {
        "cause": str,
        "evidence": str,
        "do": str,
        "numbers": (tuple[Evidence, ...], "of the evidence, on both sides"),
    },
    words="A cause: its evidence in numbers, and what to do about it.",
)
BriefLayer = Document(
    "BriefLayer",
    {"layer": str, "verdict": str, "causes": [BriefCause]},
    words="A layer's verdict and its causes; those that matter most, first the first.",
)


@dataclass(frozen=True)
class Brief:
    """A short answer."""

    of: Annotated[tuple[str, ...], "what was asked about"]
    verdict: Annotated[str, "the answer as a whole"]
    layers: Annotated[tuple[Row, ...], BriefLayer]
    missing: Annotated[tuple[str, ...], "what was not collected and would tell more"] = ()
    notes: Annotated[tuple[str, ...], "what else to know before one relies on it"] = ()
    left_out: Annotated[int, "parts that did not fit"] = 0
    headroom: Annotated[Headroom | None, "how far kernels are from their limits"] = None

    JSON_OPTIONAL: ClassVar = ("headroom",)
    to_dict = json_object

    @property
    def lines(self) -> list[str]:
        """The answer as text."""
        lines = [self.verdict]
        lines += [] if self.headroom is None else [self.headroom.reason]
        for layer in self.layers:
            lines.append(f"{layer['layer']}: {layer['verdict']}")
            for cause in layer["causes"]:
                lines.append(f"  {': '.join(filter(None, (cause['cause'], cause['evidence'])))}")
                lines.append(f"  do: {cause['do']}")
        lines += [f"missing: {each}" for each in self.missing]
        lines += [f"note: {each}" for each in self.notes]
        if self.left_out:
            lines.append(f"{self.left_out} more without --brief")
        return lines


def brief_explanation(explanation: Explanation, of: tuple[str, ...]) -> Brief:
    """Return why one side is slower, in short."""
    details = explanation.details
    points = [points_of(each) for each in details]
    doubts = (each[key] for each in points for key in ("doubt", "check") if key in each)
    missing = dict.fromkeys([*doubts, *(name for each in details for name in each.causes.missing)])
    layers = [_layer(each) for each in explanation.mattering]
    return _fitting(
        of,
        f"{explanation.target} against {explanation.baseline}: {explanation.headline}",
        [*_of_step(explanation.leading), *layers],
        missing,
        (*explanation.pairing, *explanation.warnings, *explanation.further_notes),
    )


def _of_step(step: StepComparison | None) -> tuple[Row, ...]:
    """Return the first cause of a step's difference."""
    cause = "" if step is None else step_cause(step)
    if step is None or not cause or step.first is None:
        return ()
    do = marked(step_action(step), step.confidence)
    first = _cause(step.first.id, cause, do, step.numbers)
    return (_row(say("explain.step.brief"), step_verdict(step), first),)


def brief_advice(advice: Advice, of: tuple[str, ...], levels: Sequence[KernelLevels] = ()) -> Brief:
    """Return what slow layers suffer from, in short; `levels` say how busy the kernels are."""
    layers = [_saving(each) for each in advice.findings]
    unchecked = advice.not_checked.drop_duplicates(["rule", "missing"]).to_dict("records")
    missing = (f"{row['rule']}: {row['missing']} {row['why']}" for row in unchecked)
    # what saves a part of a step is no part of the time of some kernels
    savings = [(one.likely_us, one.holds.us if one.clock else math.nan) for one in advice.findings]
    left = headroom(levels, savings)
    return _fitting(of, advice.title, layers, missing, (*advice.warnings, *advice.time_notes), left)


def _saving(one: Finding) -> Row:
    """Return a finding of advice."""
    where = _name(one.where.name) or "the whole run"
    do = marked(one.what_to_do, one.confidence, one.tells)
    do = " ".join(filter(None, (do, one.command)))
    hazard = f"{one.hazard} ({', '.join(one.rules[:3])})"
    return _row(where, saving(one), _cause(hazard, one.evidence, do, one.numbers))


def _layer(detail: LayerDiff) -> Row:
    name = _name(detail.layer)
    if detail.target_layer != detail.layer:
        name = f"{name} -> {_name(detail.target_layer)}"
    causes, _ = sided_causes(detail.time, detail.causes)
    verdict = "; ".join(filter(None, (detail.time.sentence(), detail.unseen)))
    where = f"in {detail.names[0]}: " if detail.time.verdict == "faster" else ""
    said = points_of(detail)
    first = marked(
        " ".join(ended(said[key]) for key in ("do", "saves") if key in said),
        detail.causes.confidence,
        said.get("check", ""),
    )
    first += f" If you stay: {said['stay']}" if "stay" in said else ""
    shown = tuple(
        _cause(
            f"{cause.term.label} {factor_text(cause.factor)}",
            "; ".join(filter(None, (shown_by(detail, cause), "" if place else said.get("where")))),
            where + (detail.action(cause.term) if place else first),
            detail.numbers.get(cause.term.id, ()),
        )
        for place, cause in enumerate(causes)
    )
    return _row(name, verdict, *shown)


def _fitting(
    of: Iterable[str],
    verdict: str,
    layers: Iterable[Row],
    missing: Iterable[str],
    notes: Iterable[str],
    left: Headroom | None = None,
) -> Brief:
    """Return as much of an answer as fits."""
    named, absent, said = (tuple(map(_cut, each)) for each in (of, missing, notes))
    whole = Brief(named, _cut(verdict), tuple(layers), absent, said, headroom=left)
    for level in _LEVELS:
        brief = _cut_to(whole, *level)
        if len(json.dumps(brief.to_dict(), indent=2).encode()) <= LARGEST:
            break
    return brief


def _cut_to(whole: Brief, layers: int, causes: int, sentences: int) -> Brief:
    shown = tuple({**row, "causes": row["causes"][:causes]} for row in whole.layers[:layers])
    missing, notes = whole.missing[:sentences], whole.notes[:sentences]
    left_out = sum(len(row["causes"]) for row in whole.layers)
    left_out -= sum(len(row["causes"]) for row in shown)
    left_out += len(whole.missing) - len(missing) + len(whole.notes) - len(notes)
    left = whole.headroom
    if left is not None:
        # kernels by reference: as many as layers, the rest is a call with FILE@launch away
        left_out += len(left.kernels[layers:])
        kernels = (replace(each, kernel=_name(each.kernel)) for each in left.kernels[:layers])
        left = replace(left, kernels=tuple(kernels))
    return replace(
        whole, layers=shown, missing=missing, notes=notes, left_out=left_out, headroom=left
    )


def _row(layer: str, verdict: str, *causes: Row) -> Row:
    return {"layer": layer, "verdict": _cut(verdict), "causes": causes}


def _cause(cause: str, evidence: str, do: str, numbers: tuple[Evidence, ...] = ()) -> Row:
    texts = {"cause": cause, "evidence": evidence, "do": do}
    return {name: _cut(text) for name, text in texts.items()} | {"numbers": numbers[:_NUMBERS]}


def _name(name: str) -> str:
    return shortened([plain(name)], _NAME)[0]


def _cut(text: str) -> str:
    return shortened([plain(text)], _TEXT)[0]
