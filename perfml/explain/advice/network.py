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
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from perfml.account.account import SUM, Account
from perfml.account.audit import IDLE
from perfml.account.build import account_of_sums
from perfml.account.causes import TIMES, Change, findings
from perfml.account.causes import Finding as Cause
from perfml.account.host import State
from perfml.account.words import evidence
from perfml.chips.lookup import vendor
from perfml.explain.advice.finding import Finding, Gain, KnownBy, Where, grouped, listed_layers
from perfml.explain.advice.findings import Layer, condition_of
from perfml.explain.advice.layer_findings import SHORT_US, launch_finding
from perfml.explain.advice.table import CONDITIONS, Place, place_of
from perfml.explain.advice.unexplained import counted
from perfml.explain.confidence import probability
from perfml.explain.remedies import Person, Situation, of_account, person_of, remedy_for
from perfml.ingest.merge.groups import launches_behind_rows
from perfml.util.findings import Evidence, Time
from perfml.util.words import count, micros

LEAST_LAYERS = 8  # layers from which on a table is taken for a network

_OVER_ALL = "launch_bound"
"""The hazard that is judged over all launches: a layer of one short launch has none."""

_MATTERS = 0.02  # what gains less of a network's time, or of a step, is not told

_PLACES = 3


def network_findings(
    findings: Sequence[Finding],
    layers: Sequence[Layer],
    alike: Mapping[Place, Hashable],
    *,
    merged: bool = False,
) -> tuple[Finding, ...]:
    """Return what to do in each network of a table, what is likely to save most first.

    A condition of fewer than `LEAST_LAYERS` layers has none, and what gains little is left out.
    `findings` are of the layers.
    """
    parts: dict[tuple[str, ...], list[Layer]] = defaultdict(list)
    for layer in layers:
        parts[tuple(str(layer.row.get(name)) for name in CONDITIONS)].append(layer)
    conditions = [condition_of(part[0].row) for part in parts.values()]
    over_all: list[Finding] = []
    for part, condition in zip(parts.values(), conditions, strict=True):
        # findings name backend, precision and batch; of two workloads nobody could tell whose
        if len(part) < LEAST_LAYERS or conditions.count(condition) > 1:
            continue
        here = Where(**condition)
        own = [one for one in findings if replace(one.where, layers=(), kernel="") == here]
        short = None if merged else _short_launches(part)
        if short is not None:
            own = [one for one in own if one.rules != (_OVER_ALL,)]
        saved: dict[Hashable, dict[str, float]] = defaultdict(dict)
        for one in own:
            so_far = saved[_action(one)].get(one.layer, 0.0)
            saved[_action(one)][one.layer] = min(so_far + one.saved_us, one.holds.us)
        together = [(one, "", saved[_action(one)]) for one in grouped(own, _action)]
        if short is not None:
            together.append((short, f"{short.evidence}; ", _short_us(part)))
        holds = Time(sum(float(layer.row["layer_us"]) for layer in part))
        over_all += [
            replace(
                one,
                where=replace(here, layers=tuple(_largest(layers_us))),
                holds=holds,
                evidence=said + _most_in(part, alike, layers_us),
            )
            for one, said, layers_us in together
            if len(layers_us) > 1 or one is short
        ]
    large = [one for one in over_all if one.likely_us >= _MATTERS * one.holds.us]
    return tuple(sorted(large, key=lambda one: -one.likely_us))


def _action(one: Finding) -> tuple[bool, str]:
    """Return what findings have in common; an author's are those against one hazard."""
    own = one.person is Person.AUTHOR
    return own, one.rules[0] if own else one.mitigation


def _short_launches(layers: Sequence[Layer]) -> Finding | None:
    """Return the finding that many launches are short, over all of some layers."""
    launches = tuple(one for layer in layers for one in layer.launches)
    all_us = sum(float(layer.row["layer_us"]) for layer in layers)
    return launch_finding(Layer({**layers[0].row, "layer_us": all_us}, launches))


def _short_us(layers: Sequence[Layer]) -> dict[str, float]:
    """Return what short launches take of each layer that has one, microseconds."""
    times = {
        str(layer.row["layer"]): sum(us for one in layer.launches if (us := one.time_us) < SHORT_US)
        for layer in layers
    }
    return {name: time for name, time in times.items() if time > 0}


def _most_in(
    layers: Sequence[Layer], alike: Mapping[Place, Hashable], saved: Mapping[str, float]
) -> str:
    """Say in how many layers something is saved, and in which sets of equal ones most."""
    places = {str(layer.row["layer"]): place_of(layer.row) for layer in layers}
    sets: dict[Hashable, list[str]] = defaultdict(list)
    for name in _largest(saved):
        sets[alike.get(places[name], name)].append(name)
    sums = {number: sum(saved[name] for name in names) for number, names in sets.items()}
    most = _largest(sums)[:_PLACES]
    named = [f"{listed_layers(sets[number], 2)} ({micros(sums[number])})" for number in most]
    return f"in {len(saved):,} of {count(len(layers), 'layer')}, most in {', '.join(named)}"


def _largest(sums: Mapping[Any, float]) -> list[Any]:
    """Return the names of sums, the largest first."""
    return sorted(sums, key=lambda name: -sums[name])


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
        cause = each.cause
        matters = each.amount.us if each.tells else each.saved_us
        if matters < _MATTERS * each.step_us or not remedy.helps:
            continue
        # of sums nobody knows what runs beside copies and communication
        zones = {zone for match in cause.kernels for zone in match.zones}
        beside = each.amount.copying_us or "communication" in zones
        known = not each.tells and (account.unit != SUM or not beside)
        one = Finding(
            rules=(cause.id,),
            where=Where(),
            holds=Time(each.step_us if known else each.amount.us, account.of),
            gain=_gain(each, account, known_by) if known else None,
            probability=probability("bound" if each.tells else "step"),
            hazard=cause.words,
            evidence=evidence(each, account),
            numbers=_numbers(each),
            mitigation=remedy.say,
            command=remedy.line,
            cost=remedy.cost,
            check=remedy.check,
            tells=each.tells,
        )
        found.append(one)
    for state, id_ in _NO_GAIN.items():
        idle = sum(each.us for each in account.busiest.idle if each.state == state)
        if idle >= _MATTERS * account.step_us and IDLE not in account.unknown:
            found.append(_without_gain(account, id_, idle, here))
    return tuple(found)


_NO_GAIN = {
    State.BLOCKED: "blocked",
    State.UNRECORDED: "unrecorded",
    State.WARMING_UP: "warm_up",
}
"""States of the host in idle time of which nothing tells what could be saved, and their causes."""


def _gain(found: Cause, account: Account, known_by: KnownBy) -> Gain:
    """Return what a remedy saves of a step: with an interval where the grid bounds it."""
    likely, most = (Time(us, account.of) for us in (found.saved_us, found.most_us))
    if found.cause.fills:
        return Gain(likely, most, "bound", Time(0.0, account.of))
    return Gain(likely, most, known_by)


def _numbers(found: Cause) -> tuple[Evidence, ...]:
    """Return what a cause takes of a step, of which the remedy leaves a part."""
    amount, step = found.amount, found.step_us
    left = 1 - found.saved_us / amount.us
    parts = ((name, getattr(amount, name)) for name in TIMES)
    return tuple(Evidence(name, us, left * us, "us", step) for name, us in parts if us)


def _without_gain(account: Account, id_: str, idle_us: float, here: Situation) -> Finding:
    """Return that the device is idle for a cause of which nothing tells what could be saved."""
    change, remedy = Change(id_, idle_us), remedy_for(id_, here)
    return Finding(
        rules=(change.id,),
        where=Where(),
        holds=Time(idle_us, account.of),
        gain=None,
        probability=probability("step"),
        hazard=change.words,
        evidence=f"idle {micros(idle_us)} of {micros(account.step_us)} on the clock",
        numbers=(Evidence("idle_us", idle_us, math.nan, "us", account.step_us),),
        mitigation=remedy.say,
        command=remedy.line,
    )


def name_findings(kernels: pd.DataFrame | None) -> tuple[Finding, ...]:
    """Return what the names of the kernels of a table say, where it has no counters."""
    if kernels is None or counted(kernels):
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
    # where every kernel is a layer, a row is one of its launches with their mean
    launches = launches_behind_rows(kernels, pd.factorize(kernels["layer"])[0])
    rows = kernels.assign(us=kernels["time_us"] * launches, n=launches)
    groups = rows.groupby(["kernel", "layer"], dropna=False, sort=False)[["us", "n"]].sum()
    named = (
        (str(kernel), "" if pd.isna(layer) else str(layer), float(us), float(n))
        for (kernel, layer), us, n in zip(groups.index, groups["us"], groups["n"], strict=True)
    )
    pytorch = any(person_of(str(name)) is Person.PYTORCH for name in rows["kernel"].unique())
    return account_of_sums(named, pytorch=pytorch)


def _device(rows: pd.DataFrame | None) -> tuple[float, bool]:
    """Return the compute capability of a table's devices, NaN if not known, and if it is AMD's."""
    if rows is None:
        return math.nan, False
    texts = rows.get("compute_capability", pd.Series(dtype=object)).dropna().astype(str)
    known = [float(each) for each in texts.unique() if re.fullmatch(r"\d+\.\d+", each)]
    names = rows.get("device", pd.Series(dtype=object)).dropna().astype(str)
    return max(known, default=math.nan), set(map(vendor, names)) == {"amd"}
