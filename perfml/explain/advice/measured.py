"""What experiments say of findings, and what came of them: proven, refuted, promised, measured.

They lie beside a table (`perfml.datasets.loading.EXPERIMENTS`). A repair that was measured beside a
clean control is a finding, also where no counter named its cause. The findings of a run's answer
are kept in its folder, so that a later version tells what was promised and what came.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfml.datasets.loading import beside
from perfml.errors import PerfmlError
from perfml.experiments.mutation.programs import LINES, cause_of
from perfml.experiments.repairs import repairs
from perfml.experiments.responses import Responses
from perfml.experiments.verdicts import ANSWER, PROVEN, REFUTED, Examination, examine, of_layer
from perfml.experiments.verdicts import Finding as Claim
from perfml.explain.advice.finding import Finding
from perfml.explain.advice.findings import Layer, finding_of
from perfml.explain.advice.symptoms import situation_of, symptom_of
from perfml.explain.confidence import TESTED, Confidence
from perfml.explain.remedies import Person
from perfml.explain.tree.causes import TERMS
from perfml.util.files import write_text
from perfml.util.findings import Time
from perfml.util.json_values import json_value
from perfml.util.words import micros


def measured(
    findings: Sequence[Finding], layers: Sequence[Layer], launches: Sequence[Responses]
) -> list[Finding]:
    """Return findings with their verdicts, and the measured repairs of which none of them is."""
    if not launches:
        return [*findings]
    examined = [_examined(one, launches) for one in findings]
    for layer in layers:
        named = {one.rules[0] for _, one in examined if one.layer == layer.row["layer"]}
        found = _repaired(layer, launches)
        examined += [(repair, one) for repair, one in found if one.rules[0] not in named]
    # one repair of a launch is one finding, whichever of its causes counters name
    made: list[tuple[str, Finding]] = []
    for repair, one in examined:
        known = [at for at, each in enumerate(made) if repair and each[0] == repair]
        at = next((at for at in known if _same_place(one, made[at][1])), len(made))
        first = made[at][1] if at < len(made) else one
        rules = tuple(dict.fromkeys((*first.rules, *one.rules)))
        # the line of source, where one of them has it
        what = max(first.mitigation, one.mitigation, key=len)
        made[at : at + 1] = [(repair, replace(first, rules=rules, mitigation=what))]
    return [one for _, one in made]


def _same_place(one: Finding, other: Finding) -> bool:
    here, there = (replace(each.where, kernel="") for each in (one, other))
    kernels = {one.where.kernel, other.where.kernel} - {""}
    return here == there and len(kernels) <= 1


def _repaired(layer: Layer, launches: Sequence[Responses]) -> Iterator[tuple[str, Finding]]:
    """Return mutation and finding of measured repairs of a layer that surely save time."""
    for label in dict.fromkeys(layer.labels):
        launch = of_layer(launches, layer.row["layer"], label)
        for repair in () if launch is None else repairs(launch):
            cause = cause_of(repair.mutation)
            symptom = symptom_of(cause)
            if symptom is None or not repair.proves:
                continue
            same = [one for one, n in zip(layer.launches, layer.labels, strict=True) if n == label]
            share = sum(one.time_us for one in same) / layer.time_us
            likely, low, high = (1 - at for at in (repair.factor, repair.high, repair.low))
            one = finding_of(
                layer,
                cause,
                (share * likely, share * likely, share * high),
                situation_of(same[0], Person.AUTHOR, convolves=layer.convolves),
                kernel=label,
                share=share,
                rules=(cause,),
                hazard=symptom.hazard,
                evidence=f"Proven by experiment. {repair.sentence}".rstrip("."),
            )
            if repair.mutation in LINES:
                where = f" In the source: {LINES[repair.mutation]}."
                one = replace(one, mitigation=one.mitigation + where)
            yield repair.mutation, _tested(_gaining(one, (likely, low, high)), "proven")


def _gaining(one: Finding, parts: Iterable[float]) -> Finding:
    """Return a finding with a gain: the likely, the least and the most part of its launches."""
    if one.gain is None:
        return one
    likely, low, high = (Time(min(one.share * part, 1.0) * one.holds.us) for part in parts)
    return replace(one, gain=replace(one.gain, likely=likely, high=high, low=low))


def _examined(one: Finding, launches: Sequence[Responses]) -> tuple[str, Finding]:
    """Return the mutation that proves a finding, empty if none does, and its verdict in it."""
    cause, sure = one.rules[0], one.confidence
    claimed = one.part if 0 < one.part <= 1 else 1.0
    asked = Claim(one.layer, cause, cause, sure, one.where.kernel, claimed)
    (said,) = examine([asked], launches)
    if not said.tells:
        return "", one
    one = _tested(replace(one, evidence=f"{said.said} {one.evidence}"), confidence_by(said, sure))
    if said.gains is not None:
        one = _gaining(one, said.gains)
    repair = None if said.verdict is None else said.verdict.repair
    return repair.mutation if repair is not None and one.tested == "proven" else "", one


def _tested(one: Finding, word: Confidence) -> Finding:
    """Return a finding of which an experiment has decided; as it was where none does."""
    if word not in TESTED:
        return one
    gain = one.gain
    if gain is not None and word == "proven":
        gain = replace(gain, known_by="measured")
    return replace(one, gain=gain, tested=word, probability=TESTED[word], tells="")


def confidence_by(said: Examination, before: Confidence) -> Confidence:
    """Return the word of a finding that an experiment decides on; as it was where none does."""
    verdict = "" if said.verdict is None else said.verdict.verdict
    return "proven" if verdict == PROVEN else "refuted" if verdict == REFUTED else before


def keep_answer(folder: Path, advise: Callable[[str], Any], warn: Callable[[str], None]) -> Any:
    """Write the findings of a recording's answer into its folder; return the answer.

    `advise` is `perfml.explain.advise`. None where it has no answer. Any other error is a line that
    `warn` gets: what was measured is not lost for it.
    """
    try:
        found = advise(str(folder))
    except PerfmlError:
        return None
    except Exception as error:
        warn(f"{folder}: no answer: {' '.join(repr(error).split())[:300]}")
        return None
    try:
        write_text(folder / ANSWER, json.dumps({"answer": _rows(found)}, indent=1) + "\n")
    except Exception as error:
        warn(f"{folder}: the answer is not kept: {' '.join(str(error).split())[:300]}")
    return found


def _rows(answer: Any) -> list[dict[str, Any]]:
    rows = [json_value(one.to_dict()) for one in answer.findings]
    kept = ("rules", "where", "holds", "gain", "probability", "confidence")
    return [{name: row[name] for name in kept} for row in rows]


def kept_answer(name: str) -> list[dict[str, Any]]:
    """Return the findings with a gain that are kept beside a recording; none where none are."""
    path = beside(name, ANSWER)
    try:
        rows = [] if path is None else json.loads(path.read_text(encoding="utf-8"))["answer"]
        return [row for row in rows if row["rules"] and row["gain"] and _gain_us(row) > 0]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _gain_us(row: Mapping[str, Any]) -> float:
    """Return the likely gain of a kept finding; raises an error if it is damaged."""
    low = row["gain"].get("low") or row["gain"]["high"]
    ends = (low["us"], row["gain"]["high"]["us"])
    numbers = (row["probability"], *ends, *map(len, row["where"]["layers"]))
    return float(row["gain"]["likely"]["us"] + 0 * sum(numbers))


def promised(
    kept: Sequence[Mapping[str, Any]],
    new: str,
    times: Mapping[str, tuple[str, float, float]],
    advise: Callable[[str], Any],
) -> list[dict[str, Any]]:
    """Return what became of the findings of the older side that promised a gain.

    Parameters
    ----------
    kept
        Its findings, as `kept_answer` returns them.
    new
        Name of the newer side.
    times
        Layer of the older side to its name on the newer one, and the microseconds on both.
    advise
        `perfml.explain.advise`, for a newer side beside which no answer is kept.
    """
    if not kept or not times:
        return []
    after = kept_answer(new) or _rows(advise(new))
    left = {
        (row["rules"][0], each): _gain_us(row)
        for row in after
        if row["rules"] and row["gain"]
        for each in row["where"]["layers"]
    }
    made = []
    for row in kept:
        layers, cause, likely = row["where"]["layers"], row["rules"][0], _gain_us(row)
        known = [times[each] for each in layers if each in times]
        if not known:
            continue
        made.append(
            {
                "cause": cause,
                "layers": layers,
                # a tenth of what was promised may be left
                "gone": sum(left.get((cause, name), 0.0) for name, *_ in known) < 0.1 * likely,
                "probability": row["probability"],
                "low_us": (row["gain"].get("low") or row["gain"]["likely"])["us"],
                "high_us": row["gain"]["high"]["us"],
                "measured_us": sum(before - us for _, before, us in known),
            }
        )
    return made


def promises_said(promises: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say of promises what became of them, the first one first."""
    labels = {name: term.label for name, term in TERMS.items()}
    return [
        f"{', '.join(each['layers'][:3])}: {labels.get(each['cause'], each['cause'])} is"
        f" {'gone' if each['gone'] else 'still there'}. Promised:"
        f" {' to '.join(dict.fromkeys((micros(each['low_us']), micros(each['high_us']))))} less."
        f" Measured: {micros(abs(each['measured_us']))}"
        f" {'less' if each['measured_us'] >= 0 else 'more'}."
        for each in promises
    ]
