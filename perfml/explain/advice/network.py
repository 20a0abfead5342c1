"""What to do first in a whole network: an action over all layers that it helps, with its sum.

A network has hundreds of layers, and one action helps many of them: a larger batch, a CUDA graph,
another layout. Savings of one action in several layers add up, since layers run one after another;
those of different actions do not.

Here to change: what is judged over all launches instead of layer by layer, in `_OVER_ALL`.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from perfml.account.account import UNRECORDED, Account, DeviceAccount, Part, shows_training
from perfml.account.audit import IDLE
from perfml.account.causes import TIMES, Change, findings
from perfml.account.causes import Finding as Cause
from perfml.account.device_time import DeviceTime
from perfml.account.words import evidence
from perfml.chips.lookup import is_amd
from perfml.explain.advice.answer import Finding, Gain, KnownBy, Where
from perfml.explain.advice.equal_layers import Place, listed_layers
from perfml.explain.advice.findings import Layer
from perfml.explain.advice.layer_findings import SHORT_US, launch_finding
from perfml.explain.advice.persons import Person, person_of, place_of
from perfml.explain.advice.table import CONDITIONS
from perfml.explain.confidence import probability
from perfml.explain.remedies import Situation, of_account, remedy_for
from perfml.kernel_names import kernel_label, kernel_traits
from perfml.tables import metric_columns
from perfml.util.findings import Evidence, Of, Time
from perfml.util.words import count, micros

LEAST_LAYERS = 8  # layers from which on a table is taken for a network

_OVER_ALL = "launch_bound"
"""The hazard that is judged over all launches: a layer of one short launch has none."""

_MATTERS = 0.02  # what gains less of a network's time, or of a step, is not told

_HAZARDS, _PLACES = 2, 3
_CONDITION = ("backend", "precision", "batch")


def network_findings(
    table: pd.DataFrame,
    layers: Sequence[Layer],
    equal: Mapping[Place, int],
    *,
    merged: bool = False,
) -> tuple[Finding, ...]:
    """Return what to do in each network of a table, what is likely to save most first.

    A condition of fewer than `LEAST_LAYERS` layers has none, and what gains little is left out.
    `table` has the findings of the layers.
    """
    parts: dict[tuple[str, ...], list[Layer]] = defaultdict(list)
    for layer in layers:
        parts[tuple(str(layer.row.get(name)) for name in CONDITIONS)].append(layer)
    conditions = [_shown(part[0].row) for part in parts.values()]
    every = table.to_dict("records")
    found: list[Finding] = []
    for part, condition in zip(parts.values(), conditions, strict=True):
        # findings name backend, precision and batch; of two workloads nobody could tell whose
        if len(part) < LEAST_LAYERS or conditions.count(condition) > 1:
            continue
        network = _Network(part, equal)
        mine = [row for row in every if _shown(row) == condition]
        short = None if merged else network.short_launches()
        if short is not None:
            found.append(short)
            mine = [row for row in mine if row["rules"] != (_OVER_ALL,)]
        found += network.actions(mine)
    large = [each for each in found if each.likely_us >= _MATTERS * each.holds.us]
    return tuple(sorted(large, key=lambda each: -each.likely_us))


@dataclass(frozen=True)
class _Network:
    """The layers of one condition, and which of them are equal."""

    layers: Sequence[Layer]
    equal: Mapping[Place, int]

    @cached_property
    def times(self) -> dict[str, float]:
        """Each layer's time."""
        return {str(layer.row["layer"]): float(layer.row["layer_us"]) for layer in self.layers}

    def actions(self, findings: Sequence[Mapping[Any, Any]]) -> list[Finding]:
        """Return the actions that help several layers; an author's are those against one hazard."""
        together: dict[Any, list[Mapping[Any, Any]]] = defaultdict(list)
        for row in findings:
            own = row["person"] == Person.AUTHOR.value
            together[own, row["rules"][0] if own else row["mitigation"]].append(row)
        several = (rows for rows in together.values() if len({row["layer"] for row in rows}) > 1)
        return [self._action(rows) for rows in several]

    def _action(self, findings: Sequence[Mapping[Any, Any]]) -> Finding:
        saved, likely, rules = (defaultdict[Any, float](float) for _ in range(3))
        for row in findings:
            layer, most = str(row["layer"]), float(row["saved_us"])
            saved[layer] = min(saved[layer] + most, self.times[layer])
            likely[layer] = min(likely[layer] + row["gain"] * row["time_us"], self.times[layer])
            rules[row["rules"][0]] += most
        by_saving = sorted(findings, key=lambda row: -float(row["saved_us"]))
        # as probable as its parts are, by what each saves
        sure = sum(row["probability"] * row["saved_us"] for row in findings)
        sure /= sum(row["saved_us"] for row in findings)
        said: dict[str, str] = {}
        for row in by_saving:
            said.setdefault(row["rules"][0], row["hazard"].split("; ")[0])
        hazards = list(dict.fromkeys(said[rule] for rule in _largest(rules)))[:_HAZARDS]
        one = {**by_saving[0], "rules": tuple(_largest(rules)), "hazard": "; ".join(hazards)}
        one |= {"evidence": self._where(saved), "probability": sure}
        return self._over_all(one, saved, sum(likely.values()), sum(saved.values()))

    def short_launches(self) -> Finding | None:
        """Return the finding that many launches are short, over all of them."""
        launches = [one for layer in self.layers for one in layer.launches]
        whole = sum(self.times.values())
        row = {**self.layers[0].row, "layer_us": whole}
        found = launch_finding(Layer(row, tuple(launches)))
        if found is None:
            return None
        saved = {
            str(layer.row["layer"]): sum(
                one.time_us for one in layer.launches if one.time_us < SHORT_US
            )
            for layer in self.layers
        }
        saved = {name: time for name, time in saved.items() if time > 0}
        found["evidence"] = f"{found['evidence']}; {self._where(saved)}"
        return self._over_all(found, saved, found["gain"] * whole, float(found["saved_us"]))

    def _over_all(
        self, row: Mapping[Any, Any], saved: Mapping[str, float], likely: float, most: float
    ) -> Finding:
        """Return a finding with what it likely and at most saves over all layers, microseconds."""
        whole = sum(self.times.values())
        same = (
            *("rules", "hazard", "evidence", "numbers", "mitigation", "command", "cost", "check"),
            *("probability", "tells"),
        )
        return Finding(
            where=Where(tuple(_largest(saved)), **_shown(row)),
            **{name: row[name] for name in same},
            gain=Gain(Time(likely), Time(most), "counters"),
            holds=Time(whole),
        )

    def _where(self, saved: Mapping[str, float]) -> str:
        """Say in how many layers something is saved, and in which sets of equal ones most."""
        places = {str(layer.row["layer"]): place_of(layer.row) for layer in self.layers}
        sets: dict[Any, list[str]] = defaultdict(list)
        for name in _largest(saved):
            sets[self.equal.get(places[name], name)].append(name)
        sums = {number: sum(saved[name] for name in names) for number, names in sets.items()}
        most = _largest(sums)[:_PLACES]
        told = [f"{listed_layers(sets[number], 2)} ({micros(sums[number])})" for number in most]
        every = count(len(self.layers), "layer")
        return f"in {len(saved):,} of {every}, most in {', '.join(told)}"


def _shown(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return backend, precision and batch of a row, those that it has."""
    known = {name: row[name] for name in _CONDITION if pd.notna(row.get(name))}
    return {name: int(value) if name == "batch" else str(value) for name, value in known.items()}


def _largest(sums: Mapping[Any, float]) -> list[Any]:
    """Return the names of sums, the largest first."""
    return sorted(sums, key=lambda name: -sums[name])


_FACTS = frozenset({"registers_per_thread", "shared_memory_per_block", "threads"})
"""Columns that tell how a kernel is launched, not what it does."""


def step_findings(
    account: Account, rows: pd.DataFrame | None = None, known_by: KnownBy = "clock"
) -> tuple[Finding, ...]:
    """Return what could be saved of a step, the largest first.

    `rows` of a table tell what its devices are; nothing is said that has no remedy on them.
    """
    account = account.bare
    found, here = [], of_account(account, *_device(rows))
    for each in findings(account):
        remedy = remedy_for(each.cause.id, here)
        if each.saved_us < _MATTERS * each.step_us or not remedy.helps:
            continue
        cause, saved = each.cause, Time(each.saved_us, _of(account))
        one = Finding(
            rules=(cause.id,),
            where=Where(),
            holds=Time(each.step_us, _of(account)),
            gain=Gain(saved, saved, known_by),
            probability=probability("step"),
            hazard=cause.words,
            evidence=evidence(each, account),
            numbers=_numbers(each),
            mitigation=remedy.say,
            command=remedy.line,
            cost=remedy.cost,
            check=remedy.check,
        )
        found.append(one)
    idle = sum(each.us for each in account.busiest.idle if each.state == UNRECORDED)
    if idle >= _MATTERS * account.step_us and IDLE not in account.unknown:
        found.append(_not_recorded(account, idle, here))
    return tuple(found)


def _of(account: Account) -> Of:
    """Return what times of an account are of: a step, or all where nothing marks steps."""
    return "step" if account.marked_by else "recording"


_AS_MUCH = 0.4
"""What a remedy is likely to save of idle time of which the reason is not known: the least that one
of a known reason saves (``perfml/account/causes.toml``, launch_bound)."""


def _numbers(found: Cause) -> tuple[Evidence, ...]:
    """Return what a cause takes of a step, of which the remedy leaves a part."""
    amount, step = found.amount, found.step_us
    left = 1 - found.saved_us / amount.us
    parts = ((name, getattr(amount, name)) for name in TIMES)
    return tuple(Evidence(name, us, left * us, "us", step) for name, us in parts if us)


def _not_recorded(account: Account, idle_us: float, here: Situation) -> Finding:
    """Return that the device is idle, where nothing was recorded of the host."""
    change, remedy = Change(UNRECORDED, idle_us), remedy_for(UNRECORDED, here)
    likely, high = (Time(us, _of(account)) for us in (_AS_MUCH * idle_us, idle_us))
    return Finding(
        rules=(change.id,),
        where=Where(),
        holds=Time(account.step_us, _of(account)),
        gain=Gain(likely, high, "clock"),
        probability=probability("step"),
        hazard=change.words,
        evidence=f"idle {micros(idle_us)} of {micros(account.step_us)} on the clock",
        numbers=(Evidence("idle_us", idle_us, math.nan, "us", account.step_us),),
        mitigation=remedy.say,
        command=remedy.line,
    )


def name_findings(kernels: pd.DataFrame | None) -> tuple[Finding, ...]:
    """Return what the names of the kernels of a table say, where it has no counters."""
    if kernels is None or set(metric_columns(kernels)) - _FACTS:
        return ()
    timed = kernels.dropna(subset=["kernel", "time_us"])
    if timed.empty:
        return ()
    return step_findings(_sums(_on_longest_rank(timed)), kernels, "names")


def _on_longest_rank(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return, of runs that are ranks of a job, the one whose kernels take longest.

    Ranks run side by side: nobody waits for their sum.
    """
    # ranks count from 0, the processes of one run from 1
    if "process" not in kernels.columns or not kernels["process"].eq(0).any():
        return kernels
    longest = kernels.groupby("process")["time_us"].sum().idxmax()
    kept: pd.DataFrame = kernels[kernels["process"] == longest]
    return kept


def _sums(kernels: pd.DataFrame) -> Account:
    """Return the times of kernels as an account without a clock: one step that is their sum."""
    launches = kernels["launches"] if "launches" in kernels.columns else 1
    rows = kernels.assign(n=launches, us=kernels["time_us"] * launches)
    groups = rows.groupby(["kernel", "layer"], dropna=False, sort=False)[["us", "n"]].sum()
    parts = tuple(map(_part, groups.reset_index().to_dict("records")))
    whole = sum(part.us for part in parts)
    step = DeviceTime(float(rows["n"].sum()), whole, whole, 0.0, 0.0)
    device = DeviceAccount(0, step, (step,), (), parts, (), step.launches)
    pytorch = any(person_of(str(name)) is Person.PYTORCH for name in rows["kernel"].unique())
    trains = shows_training(map(str, rows["kernel"].unique()))
    return Account("", (whole,), False, (device,), (), trains, pytorch)


def _part(row: Mapping[Any, Any]) -> Part:
    name = str(row["kernel"])
    traits = kernel_traits(name)
    return Part(
        "communication" if traits.does == "communication" else "",
        "",
        False,
        kernel_label(name),
        traits.does,
        tuple(sorted(traits.ids())),
        "" if pd.isna(row["layer"]) else str(row["layer"]),
        float(row["us"]),
        float(row["n"]),
    )


def _device(rows: pd.DataFrame | None) -> tuple[float, bool]:
    """Return the compute capability of a table's devices, NaN if not known, and if it is AMD's."""
    if rows is None:
        return math.nan, False
    texts = rows.get("compute_capability", pd.Series(dtype=object)).dropna().astype(str)
    known = [float(each) for each in texts.unique() if re.fullmatch(r"\d+\.\d+", each)]
    names = rows.get("device", pd.Series(dtype=object)).dropna().astype(str)
    return max(known, default=math.nan), bool(len(names)) and all(map(is_amd, names.unique()))
