"""Findings in the order in which they are told: causes before symptoms, one cure once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import pandas as pd

from perfml.explain.advice.persons import Person
from perfml.explain.advice.rules import Rule
from perfml.explain.certainty import Certainty
from perfml.util.words import count


class Finding(TypedDict):
    """A hazard that a rule of advice found.

    Attributes
    ----------
    rules
        Ids: rules whose cure is the same are one finding.
    mitigation
        What helps, for the ``person`` whom the kernel's name tells of.
    gain_low, gain, gain_high
        Fractions of the layer's time: at least, likely, at most.
    saved_us
        ``gain_high`` of ``time_us``, the time of the layer.
    for_author
        What the kernel's author could do, where that is another person.
    faster
        The backend of the table that runs the layer fastest.
    tells
        What would tell, where it is open.
    level
        How busy the unit is that it blames, of what that sustains; missing where it blames none.
    """

    layer: str
    backend: str | None
    precision: str | None
    batch: int | None
    kernel: str | None
    rules: tuple[str, ...]
    hazard: str
    evidence: str
    mitigation: str
    gain_low: float
    gain: float
    gain_high: float
    time_us: float
    saved_us: float
    source: str
    person: Person
    for_author: str | None
    faster: str | None
    certainty: Certainty
    tells: str
    level: float


class SideFinding(Finding):
    """A hazard of one of two sides."""

    side: str


class EqualFinding(Finding):
    """A hazard of a layer and of those equal to it."""

    layers: tuple[str, ...]


COLUMNS = tuple(Finding.__annotations__)

_TOLD = 3
"""Kernels with one cure whose numbers are told."""

_HALF, _BUSY = 0.5, 0.5
"""Of the gain of a wait, and of what a unit sustains: from there on a cause explains the wait."""
_MATTERS = 0.1
"""A cause that is likely to gain this part of a layer stands before its symptoms."""


def symptoms_behind(findings: pd.DataFrame, book: Mapping[str, Rule]) -> pd.DataFrame:
    """Return findings with each symptom behind what causes it in the same kernel.

    Behind what was counted, of the kernel or of the whole layer, an author is told what idle
    machinery could do if the work allows it, and what warps wait for where the unit is busy.
    Of a library's kernel, how many registers it needs and what its warps wait for is its author's;
    who calls it changes what was counted: layout, types, sizes.
    """
    rows = findings.to_dict("records")
    where = [tuple(str(row[name]) for name in COLUMNS[:5]) for row in rows]
    rules = [book[row["rules"][0]] for row in rows]
    order = []
    for place, symptom in enumerate(rules):
        behind = [
            other
            for other in range(place + 1, len(rows))
            if rows[other]["gain"] >= _MATTERS
            and _of_one(rules[other], where[other], where[place])
            and _makes(rules[other], symptom, rows[other], rows[place])
        ]
        order.append((max([place, *behind]), bool(behind), place))
    return findings.iloc[[place for *_, place in sorted(order)]]


def _of_one(cause: Rule, cause_in: tuple[str, ...], symptom_in: tuple[str, ...]) -> bool:
    """Return whether findings are of one kernel, or the cause is of all kernels of its layer."""
    whole = cause.exact and cause.scope == "layer"
    return cause_in == symptom_in or (whole and cause_in[:-1] == symptom_in[:-1])


def _makes(
    cause: Rule, symptom: Rule, causing: Mapping[Any, Any], waiting: Mapping[Any, Any]
) -> bool:
    """Return whether a hazard is what makes another one, or what its reader can change instead.

    A unit that has much to do is waited for; one that is idle makes nobody wait, unless what it
    does is likely to gain half as much as whatever makes the wait shorter.
    """
    busy = causing["level"] >= _BUSY
    much = causing["gain"] >= _HALF * waiting["gain"]
    if cause.id in symptom.symptom_of:
        return bool(busy or much or (cause.counted and not cause.limit))
    if waiting["person"] == Person.AUTHOR.value:
        if symptom.potential:
            return cause.counted and cause.id not in symptom.beside
        return bool(symptom.inferred and cause.counted and busy and much)
    return waiting["person"] == Person.LIBRARY.value and symptom.inferred and not cause.inferred


def one_a_cure(findings: pd.DataFrame, book: Mapping[str, Rule]) -> pd.DataFrame:
    """Return findings with one cure as one finding.

    Of one's own kernels these are findings of a kernel. Who calls a library does one thing about
    several hazards of its kernel, and who calls PyTorch fuses all kernels of a layer at once.
    """
    together: dict[Any, list[dict[str, Any]]] = {}
    for place, row in enumerate(findings.to_dict("records")):
        cure = _cure(book[row["rules"][0]], row)
        key = (place,) if cure is None else cure
        together.setdefault(key, []).append({str(name): value for name, value in row.items()})
    joined: list[dict[str, Any]] = []
    for rows in together.values():
        one, place = _joined(rows), len(joined)
        while len(_kernels(rows)) > 1 and place > 0 and _likely(joined[place - 1]) < _likely(one):
            place -= 1  # what several kernels gain together stands before what less is gained by
        joined.insert(place, one)
    return pd.DataFrame(joined, columns=list(COLUMNS))


def _cure(rule: Rule, row: Mapping[Any, Any]) -> tuple[str, ...] | None:
    """Return what tells findings with the same cure; None for one that has its own."""
    where = tuple(str(row[name]) for name in COLUMNS[:5])
    if rule.scope == "kernel" and rule.users is not None:
        if row["person"] == Person.PYTORCH.value and rule.users.fuses:
            return (*where[:4], "fused")
        if row["person"] == Person.LIBRARY.value:
            return (*where, rule.users.library)
    return None if rule.cure is None else (*where, rule.cure)


def _kernels(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(row["kernel"]) for row in rows))


def _likely(row: Mapping[str, Any]) -> float:
    return float(row["gain"]) * float(row["time_us"])


def _joined(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first = dict(rows[0])
    if len(rows) > 1:
        kernels = _kernels(rows)
        first["rules"] = tuple(dict.fromkeys(rule for row in rows for rule in row["rules"]))
        first["hazard"] = "; ".join(dict.fromkeys(str(row["hazard"]) for row in rows))
        first["evidence"] = _evidence(rows, kernels)
        for name in ("gain_low", "gain", "gain_high", "saved_us"):
            most = [max(row[name] for row in rows if row["kernel"] == each) for each in kernels]
            whole = first["time_us"] if name == "saved_us" else 1.0
            first[name] = min(sum(most), whole)
    return first


def _evidence(rows: Sequence[Mapping[str, Any]], kernels: Sequence[str]) -> str:
    if len(kernels) == 1:
        return "; ".join(str(row["evidence"]) for row in rows)
    firsts = [next(row for row in rows if row["kernel"] == each) for each in kernels]
    said = [f"{row['kernel']}: {row['evidence']}" for row in firsts[:_TOLD]]
    more = len(kernels) - _TOLD
    return "; ".join([*said, *([f"and {count(more, 'more kernel')}"] if more > 0 else [])])
