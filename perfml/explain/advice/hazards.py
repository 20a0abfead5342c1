"""Advice: which hazard a slow layer has, the numbers behind it, what helps, and how much at most.

Rules are data (``rules.toml``). They are evaluated on the launches of a layer where the Kernels
table is there, on the merged row where it is not; a rule whose metrics were not collected is
listed as not checked. The gains of several findings do not add up: they are often two views of
one loss.
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.datasets.loading import DEVICE_FACTS, read_given
from perfml.errors import PerfmlError, did_you_mean
from perfml.explain.advice.after_fix import time_after
from perfml.explain.advice.inputs import (
    INPUTS,
    LAYER_INPUTS,
    LEVELS,
    InputValues,
    layer_table,
    why_missing,
)
from perfml.explain.advice.ncu_agreement import measure_agreement, ncu_flags
from perfml.explain.advice.persons import (
    Person,
    faster_elsewhere,
    person_of,
    person_of_all,
    place_of,
    what_to_do,
)
from perfml.explain.advice.representative import (
    condition_keys,
    merged_rows,
    representative_launches,
)
from perfml.explain.advice.rules import Rule, Rules, filled, load_rules
from perfml.explain.advice.situations import action_here
from perfml.explain.compared import make_side
from perfml.explain.gaps import idle_layers, timeline
from perfml.explain.roofs.peaks import Peaks, given_peaks
from perfml.metrics.expressions import Array
from perfml.tables import metric_columns
from perfml.time_sources import time_notes
from perfml.util.html import section
from perfml.util.json_values import records
from perfml.util.text import screen
from perfml.util.typing import Flags
from perfml.util.words import micros

Places = npt.NDArray[np.intp]

MIN_GAIN = 0.02
"""Findings that promise less than 2 % of the layer's time are counted, not listed."""

_MATTERS = 0.1
"""A cause that is likely to gain this part of a layer stands before its symptoms."""

COLUMNS = (
    "layer", "backend", "precision", "batch", "kernel", "rules", "hazard", "evidence",
    "mitigation", "gain_low", "gain", "gain_high", "time_us", "saved_us", "ncu", "source",
    "person", "for_author", "faster",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Advice:
    """What the rules say of a table.

    Attributes
    ----------
    table
        One row a finding, the largest likely saving first: ``layer, backend, precision, batch,
        kernel, rules, hazard, evidence, mitigation, gain_low, gain, gain_high`` (fractions of the
        layer's time: at least, likely, at most), ``time_us`` (of the layer), ``saved_us``
        (``gain_high`` of it), ``ncu`` (whether Nsight Compute's own rules ``agree`` or are
        ``silent``; missing where they were not recorded or have no counterpart) and ``source``.
        ``mitigation`` is for the ``person`` whom the kernel's name tells of: its author, or a user
        of the library that it is from; ``for_author`` is what its author could do, where that is
        another, and ``faster`` the backend of the table that runs the layer fastest.
        ``rules`` is a tuple of ids: rules whose cure is the same are one finding.
    not_checked
        One row a rule and condition: ``backend, precision, batch, rule, missing, why`` (``not
        collected``, ``undefined: ...``, ``not known`` or ``not given``).
    agreement
        Our rules beside Nsight Compute's (`perfml.explain.advice.ncu_agreement`), or None.
    ncu_only
        What Nsight Compute's rules found and ours did not: ``launch, kernel, rule, ncu_rule,
        message, speedup``; None without its results.
    below
        Findings left out because they promise too little.
    layers
        Layers looked at, each condition (backend, precision, batch) counted.
    warnings
        Sentences for the top of every output.
    time_notes
        What to know of times that come from under a profiler (`perfml.time_sources`), and of gaps
        between kernels (`perfml.explain.gaps`).
    """

    table: pd.DataFrame
    not_checked: pd.DataFrame
    agreement: pd.DataFrame | None = None
    ncu_only: pd.DataFrame | None = None
    below: int = 0
    layers: int = 0
    warnings: tuple[str, ...] = field(default=())
    time_notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; undefined numbers are None."""
        return {
            "findings": records(self.table),
            "not_checked": records(self.not_checked),
            "agreement": None if self.agreement is None else records(self.agreement),
            "ncu_only": None if self.ncu_only is None else records(self.ncu_only),
            "below": self.below,
            "layers": self.layers,
            "warnings": list(self.warnings),
            "time_notes": list(self.time_notes),
        }

    def __repr__(self) -> str:
        table = self.table[["layer", "hazard", "gain", "gain_high", "backend", "kernel"]]
        first = [] if table.empty else [f"First: {what_to_do(self.table.iloc[0].to_dict())}"]
        warnings = (*self.warnings, *self.time_notes)
        return screen(self._title(), warnings, table, after=first, rest=".table")

    def _title(self) -> str:
        findings = "finding" if len(self.table) == 1 else "findings"
        layers = "layer" if self.layers == 1 else "layers"
        return f"{len(self.table)} {findings} in {self.layers} {layers}"

    def _repr_html_(self) -> str:
        shown = ["layer", "backend", "kernel", "hazard", "evidence", "mitigation", "gain_high"]
        title = self._title()
        page = section(title, (*self.warnings, *self.time_notes), self.table[shown])
        if len(self.not_checked):
            rules = sorted(set(self.not_checked["rule"]))
            page += f"<p>Not checked everywhere: {html.escape(', '.join(rules))}</p>"
        return page


def advise(
    table: pd.DataFrame | str | Path,
    *,
    kernels: pd.DataFrame | None = None,
    peaks: Mapping[str, float] | Peaks | None = None,
    ncu_rules: pd.DataFrame | None = None,
    ncu_min_speedup: float = 0.0,
    rules: str | Path | None = None,
    layers: Sequence[str] | None = None,
    min_gain: float = MIN_GAIN,
) -> Advice:
    """Check every layer against the rules of advice.

    Parameters
    ----------
    table
        Kernels or Layers table, or the name of a profile, a folder, a table or a recorded data set.
    kernels
        Kernels table behind a Layers table; rules about single launches need it.
    peaks
        FLOP/s by precision, for rules that compare precisions; by default those known of each
        device.
    ncu_rules
        Results of Nsight Compute's own rules (``perfml.readers.ncu.report.rules`` or ``ncu_csv``)
        for the launches of `kernels` (or `table`), in its order.
    ncu_min_speedup
        Of these, results with a smaller estimated speedup (per cent) do not count.
    rules
        A file of rules; perfml's own by default.
    layers
        Only these layers.
    min_gain
        Findings below this fraction of the layer's time are counted, not listed.

    Returns
    -------
    Advice

    Raises
    ------
    PerfmlError
        If the table is neither kind, a layer does not exist, or the results of Nsight Compute's
        rules are of other launches.

    Examples
    --------
    >>> from perfml.datasets import load
    >>> table = load("h200-sweep").frame
    >>> found = advise(table[(table["backend"] == "cudnn") & (table["batch"] == 1)])
    >>> "bank_conflicts" in set(found.table["rules"].explode())
    True
    """
    if not isinstance(table, pd.DataFrame):
        read = read_given(table)
        read = read if read.ranged else read.by_kernel()
        table, kernels = read.layers, read.kernels if kernels is None else kernels
    book = load_rules(rules)
    given = peaks if isinstance(peaks, Peaks) or peaks is None else given_peaks(peaks)
    source = kernels if kernels is not None or "kernel_names" in table.columns else table
    agreement = ncu_only = None
    if ncu_rules is not None:
        if source is None:
            msg = "results of Nsight Compute's rules belong to launches, not to merged layers"
            raise PerfmlError(msg, cure="Give the Kernels table of the same file.")
        flags = ncu_flags(source, ncu_rules, book, min_speedup=ncu_min_speedup)
        inputs = InputValues(source, given)
        ours = {rule.id: _holds(rule, inputs) for rule in book if rule.scope == "kernel"}
        agreement, ncu_only = measure_agreement(source, ours, flags, ncu_rules, book)
        marks = {f"ncu {name}": each.astype(float) for name, each in flags.items()}
        marked = pd.concat([source, pd.DataFrame(marks, index=source.index)], axis=1)
        table, kernels = (marked, None) if kernels is None else (table, marked)
    side = make_side("advice", table, kernels)
    launches = representative_launches(side.kernels) if side.kernels is not None else None
    merged = launches is None
    rows = merged_rows(side.layers) if launches is None else launches
    if layers is not None:
        rows = _only(rows, layers)
    # devices that are not tabulated have the peaks that their profile tells of
    rows.attrs[DEVICE_FACTS] = table.attrs.get(DEVICE_FACTS) or side.layers.attrs.get(
        DEVICE_FACTS, {}
    )
    findings, below = _findings(rows, book, given, min_gain, merged)
    findings = _with_faster(findings, side.layers)
    return Advice(
        table=findings,
        not_checked=_not_checked(rows, book, given, merged),
        agreement=agreement,
        ncu_only=ncu_only,
        below=below,
        layers=rows["group"].nunique(),
        warnings=side.warnings
        + (
            ("only merged layers were given: rules about launches were not checked",)
            if merged
            else ()
        ),
        time_notes=time_notes(("", side.layers)) + _of_gaps(side.kernels),
    )


def _with_faster(findings: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    """Return findings with the backend that is faster, for those who can take another one."""
    elsewhere = faster_elsewhere(layers)
    others = [
        None if row["person"] == Person.AUTHOR.value else elsewhere.get(place_of(row))
        for row in findings.to_dict("records")
    ]
    return findings.assign(faster=pd.Series(others, index=findings.index, dtype=object))


def _of_gaps(kernels: pd.DataFrame | None) -> tuple[str, ...]:
    found = timeline(kernels)
    said = None if found is None else found.sentence()
    if said is None:
        return ()
    where = idle_layers(kernels)
    return (said[:1].upper() + said[1:], *(() if where is None else (where,)))


def _only(rows: pd.DataFrame, layers: Sequence[str]) -> pd.DataFrame:
    known = rows["layer"].astype(str)
    for name in layers:
        if name not in set(known):
            msg = f"no layer is called {name!r}"
            found = ", ".join(dict.fromkeys(known.head(400)))[:200]
            raise PerfmlError(
                msg, found=found, cure=did_you_mean(name, known, "Name one of these.")
            )
    return rows[known.isin(list(layers))].reset_index(drop=True)


def _applies(rule: Rule, frame: pd.DataFrame, merged: bool = False) -> Flags:
    applies: Flags = np.ones(len(frame), dtype=bool)
    if rule.precisions and "precision" in frame.columns:
        precision = frame["precision"].astype("string").fillna("fp32")
        applies &= precision.isin(rule.precisions).to_numpy(dtype=bool)
    if rule.single and merged:
        # a mean over several kernels has no grid, no waves and no registers of its own
        alone = frame["kernels"].to_numpy(dtype=float) == 1 if "kernels" in frame else False
        applies &= alone
    return applies


def _holds(rule: Rule, inputs: InputValues) -> tuple[Flags, Flags]:
    """Return whether a rule holds for each launch, and whether that could be told."""
    values, _ = inputs.of(rule.compared)
    met, told = rule.holds(lambda name: values[name], len(inputs.frame))
    applies = _applies(rule, inputs.frame)
    return met & applies, told & applies


def _findings(
    rows: pd.DataFrame, book: Rules, peaks: Peaks | None, min_gain: float, merged: bool
) -> tuple[pd.DataFrame, int]:
    found: list[dict[str, Any]] = []
    sums = None if merged else layer_table(rows, book)
    inputs = InputValues(rows, peaks)
    for rule in book:
        if rule.scope == "kernel":
            found += _of_launches(rule, inputs, merged)
        elif sums is not None:
            found += _of_layers(rule, rows, sums)
    table = pd.DataFrame(found, columns=list(COLUMNS))
    large = table["gain_high"].to_numpy(dtype=float) >= min_gain
    kept = table[large]
    likely = kept["gain"].astype(float) * kept["time_us"].astype(float)
    kept = kept.loc[likely.sort_values(ascending=False, kind="stable").index]
    cures = {rule.id: rule.cure for rule in book}
    kept = _symptoms_behind(kept, {rule.id: rule.symptom_of for rule in book})
    return _one_a_cure(kept, cures).reset_index(drop=True), int((~large).sum())


def _symptoms_behind(findings: pd.DataFrame, causes: Mapping[str, tuple[str, ...]]) -> pd.DataFrame:
    """Return findings with each symptom behind what causes it in the same kernel."""
    rows = findings.to_dict("records")
    where = [tuple(str(row[name]) for name in COLUMNS[:5]) for row in rows]
    names = [row["rules"][0] for row in rows]
    order = []
    for place, name in enumerate(names):
        behind = [
            other
            for other in range(place + 1, len(rows))
            if where[other] == where[place]
            and names[other] in causes[name]
            and rows[other]["gain"] >= _MATTERS
        ]
        order.append((max([place, *behind]), bool(behind), place))
    return findings.iloc[[place for *_, place in sorted(order)]]


def _one_a_cure(findings: pd.DataFrame, cures: Mapping[str, str | None]) -> pd.DataFrame:
    """Return findings of one kernel with one cure as one finding: that with the largest gain."""
    together: dict[Any, list[dict[str, Any]]] = {}
    for place, row in enumerate(findings.to_dict("records")):
        cure = cures[row["rules"][0]]
        where = tuple(str(row[name]) for name in COLUMNS[:5])
        key = (place,) if cure is None else (*where, cure)
        together.setdefault(key, []).append({str(name): value for name, value in row.items()})
    joined = [_joined(rows) for rows in together.values()]
    return pd.DataFrame(joined, columns=list(COLUMNS))


def _joined(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first = dict(rows[0])
    if len(rows) > 1:
        first["rules"] = tuple(rule for row in rows for rule in row["rules"])
        first |= {
            name: "; ".join(str(row[name]) for row in rows) for name in ("hazard", "evidence")
        }
        first |= {
            name: max(row[name] for row in rows)
            for name in ("gain_low", "gain", "gain_high", "saved_us")
        }
        first["ncu"] = "agrees" if any(row["ncu"] == "agrees" for row in rows) else first["ncu"]
    return first


def _of_launches(rule: Rule, inputs: InputValues, merged: bool) -> list[dict[str, Any]]:
    rows = inputs.frame
    values, _ = inputs.of(tuple(dict.fromkeys((*rule.needed, *rule.said))))

    def lookup(name: str) -> Array:
        return values[name]

    met, _ = rule.holds(lookup, len(rows))
    met = met & _applies(rule, rows, merged)
    if not met.any():
        return []
    low = np.clip(np.broadcast_to(rule.gain_low(lookup), len(rows)), 0, 1)
    high = np.clip(np.broadcast_to(rule.gain_high(lookup), len(rows)), 0, 1)
    high = np.minimum(high, 1 - _busiest(rows, rule.relieves))
    low = np.minimum(low, high)
    flagged = np.flatnonzero(met & ~np.isnan(high))
    share = rows["share"].to_numpy(dtype=float)
    likely = high.copy()
    if rule.term is not None:
        for place in flagged:
            after = time_after(inputs.launches[place], rule.term)
            # what the rule's cause takes, at most the limit
            likely[place] = np.fmin(high[place], 1 - after)
    found = []
    for same in _by_kernel(rows, flagged):
        worst = int(same[(high[same] * share[same]).argmax()])
        said = filled(rule.evidence, {name: float(values[name][worst]) for name in rule.said})
        if not merged:
            said = f"{_which(rows, same)}: {said}"
        found.append(
            _finding(
                rule,
                inputs.told[worst],
                said,
                (
                    float(low[same] @ share[same]),
                    float(likely[same] @ share[same]),
                    float(high[same] @ share[same]),
                ),
                _beside(rule, rows, same),
                person_of(str(inputs.told[worst]["kernel"])) if "kernel" in rows else Person.AUTHOR,
                None if rule.term is None else action_here(rule.term, inputs.launches[worst]),
            )
        )
    return found


def _by_kernel(rows: pd.DataFrame, places: Places) -> list[Places]:
    """Return the places of a kernel of a layer together, in order of appearance."""
    groups, labels = rows["group"].to_numpy(), rows["label"].to_numpy(dtype=object)
    together: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    for place in places.tolist():
        together[groups[place], labels[place]].append(place)
    return [np.array(same) for same in together.values()]


def _which(rows: pd.DataFrame, same: Places) -> str:
    many = f"{len(same)} launches, " if len(same) > 1 else ""
    time = rows["time_us"].to_numpy(dtype=float)[same].sum()
    return f"{many}{micros(time)} of {micros(rows['layer_us'].iloc[same[0]])}"


def _busiest(rows: pd.DataFrame, relieves: Sequence[str]) -> Array:
    """Return the busy fraction of the busiest unit that the mitigation does not relieve."""
    levels = [name for name in LEVELS if name in rows.columns and name not in relieves]
    if not levels:
        return np.zeros(len(rows))
    table = [rows[name].to_numpy(dtype=float, na_value=np.nan) for name in levels]
    highest: Array = np.clip(np.nan_to_num(np.fmax.reduce(table), nan=0.0), 0, 1)
    return highest


def _beside(rule: Rule, rows: pd.DataFrame, same: Places) -> str | None:
    column = f"ncu {rule.id}"
    if column not in rows.columns:
        return None
    marks = rows[column].to_numpy(dtype=float, na_value=np.nan)[same]
    if np.isnan(marks).all():
        return None
    return "agrees" if bool((marks > 0).any()) else "silent"


def _of_layers(rule: Rule, rows: pd.DataFrame, sums: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the findings of a rule of scope ``layer``."""
    firsts = rows.drop_duplicates("group").set_index("group").loc[sums.index]

    def lookup(name: str) -> Array:
        return np.asarray(sums[name] if name in sums else np.full(len(sums), np.nan))

    met, _ = rule.holds(lookup, len(sums))
    low, high = (
        np.clip(np.broadcast_to(gain(lookup), len(sums)), 0, 1)
        for gain in (rule.gain_low, rule.gain_high)
    )
    groups = sums.index.tolist()
    found = []
    for place in np.flatnonzero(met & _applies(rule, firsts) & ~np.isnan(high)):
        values = {str(name): float(value) for name, value in sums.iloc[place].items()}
        said = filled(rule.evidence, values)
        most = float(high[place])
        least = min(float(low[place]), most)
        names = rows.loc[rows["group"] == groups[place], "kernel"].astype(str)
        gains = (least, most, most)
        found.append(
            _finding(rule, firsts.iloc[place].to_dict(), said, gains, None, person_of_all(names))
        )
    return found


def _finding(
    rule: Rule,
    row: Mapping[Any, Any],
    evidence: str,
    gains: tuple[float, float, float],
    ncu: str | None,
    person: Person,
    here: str | None = None,
) -> dict[str, Any]:
    low, likely, high = gains
    own = rule.mitigation if here is None else f"{here} {rule.mitigation}"
    mitigation = own if person is Person.AUTHOR else rule.advice_for(person)
    cells = {name: row.get(name) for name in ("layer", "backend", "precision", "batch")}
    return {
        **cells,
        "kernel": row["label"] if rule.scope == "kernel" else "whole layer",
        "rules": (rule.id,),
        "hazard": rule.hazard,
        "evidence": evidence,
        "mitigation": mitigation,
        "gain_low": low,
        "gain": likely,
        "gain_high": high,
        "time_us": float(row["layer_us"]),
        "saved_us": high * float(row["layer_us"]),
        "ncu": ncu,
        "source": rule.source,
        "person": person.value,
        "for_author": None if mitigation == own else own,
        "faster": None,
    }


def _not_checked(
    rows: pd.DataFrame, book: Rules, peaks: Peaks | None, merged: bool
) -> pd.DataFrame:
    """Return what could not be checked, and the metrics that would be needed, by condition."""
    shown = [name for name in ("backend", "precision", "batch") if name in rows.columns]
    found: list[dict[str, Any]] = []
    keys = [name for name in condition_keys(rows) if name != "layer"]
    for _, part in rows.groupby(keys or "share", dropna=False, sort=False):
        same = {name: part[name].iloc[0] for name in shown}
        inputs = InputValues(part, peaks)
        for rule in book:
            if rule.precisions and not _applies(rule, part).any():
                if _unlabelled(part):
                    names = f"precision ({', '.join(rule.precisions)})"
                    found.append({**same, "rule": rule.id, "missing": names, "why": "not known"})
                continue
            if merged and (rule.scope == "layer" or rule.single):
                if rule.scope == "kernel" and _applies(rule, part, merged).all():
                    continue
                needs = {"missing": "launches (a Kernels table)", "why": "not given"}
                found.append({**same, "rule": rule.id, **needs})
                continue
            if rule.scope == "layer":
                absent = [name for name in rule.needed if name not in LAYER_INPUTS]
            else:
                absent = inputs.missing(rule.needed)
            if absent:
                metrics = list(dict.fromkeys(", ".join(absent).split(", ")))
                lacking = {"missing": ", ".join(metrics), "why": why_missing(part, metrics)}
                found.append({**same, "rule": rule.id, **lacking})
        bare = part.groupby("layer", sort=False)[metric_columns(part)].count().sum(axis=1) == 0
        if bare.any():
            layers = ", ".join(map(str, bare[bare].index))
            lacking = {"missing": f"counters of {layers}", "why": "not collected"}
            found.append({**same, "rule": "all of a launch", **lacking})
    return pd.DataFrame(found, columns=[*shown, "rule", "missing", "why"])


def _unlabelled(rows: pd.DataFrame) -> bool:
    """Tell whether the precision of these launches is not known."""
    return "precision" in rows.columns and bool((rows["precision"] == "unknown").all())


__all__ = ["COLUMNS", "INPUTS", "Advice", "advise"]
