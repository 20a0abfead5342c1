"""Advice: what a slow layer loses, the numbers behind it, what helps, and how much at most.

It is the tree of causes on one side: each launch of a layer beside its ideal
(`perfml.explain.tree.one_side`), or the merged row where no Kernels table is there. A cause whose
metrics were not collected is listed as not checked. The likely gains of a layer's kernels add up.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

import pandas as pd

from perfml.account.account import Account
from perfml.account.time_sources import time_notes
from perfml.account.words import step_sentence
from perfml.chips.lookup import vendor
from perfml.datasets.loading import DEVICE_FACTS
from perfml.datasets.opening import read_input
from perfml.datasets.selection import Source
from perfml.errors import PerfmlError, did_you_mean
from perfml.explain.advice.answer import Said, file_rules, in_one_order
from perfml.explain.advice.finding import FINDING_ROW, Finding, Where, grouped, table_of
from perfml.explain.advice.findings import Layer, in_order, launch_findings
from perfml.explain.advice.layer_findings import layer_findings
from perfml.explain.advice.measured import measured
from perfml.explain.advice.network import (
    LEAST_LAYERS,
    name_findings,
    network_findings,
    step_findings,
)
from perfml.explain.advice.table import (
    NotChecked,
    Place,
    alike_layers,
    layers_of,
    merged_rows,
    not_checked_by,
    place_of,
    representative_launches,
    with_totals,
)
from perfml.explain.advice.unexplained import longest_kernels, longest_layer
from perfml.explain.compared import Side, make_side
from perfml.explain.roofs.peaks import Peaks, given_peaks
from perfml.explain.tree.one_side import SPLIT
from perfml.util.json_values import json_object
from perfml.util.shown import Shown
from perfml.util.words import count, percent, say

MIN_GAIN = 0.02  # findings that promise less than 2 % of the layer's time are counted, not listed

_LITTLE = 0.01  # of what the largest finding is about; people see no such saving on a first screen

LIKELY = 0.34
"""Findings that are less probable are counted, too. With that author left out of the fit, 250 of
302 slow launches of exams have a right first finding where all are listed, 248 from 0.34 on, 243
from 0.4 on; planted launches without a cause have one in 60, 46 and 37 of 92 (2026-11-29)."""


@dataclass(frozen=True, repr=False)
class Advice(Shown):
    """What the launches of a table lose.

    Attributes
    ----------
    of_layers
        The findings of single layers, the largest likely saving first; of a layer in their order.
    not_checked
        One `NotChecked` a cause and condition.
    others
        Findings that promise too little or are improbable: in JSON, and counted elsewhere.
    layers
        Layers looked at, each condition (backend, precision, batch) counted.
    warnings
        Sentences for the top of every output.
    time_notes
        What to know of times from under a profiler (`perfml.account.time_sources`), and what the
        devices did on the clock.
    network
        What to do over all layers of a network, what is likely to save most first.
    alike
        The set that a layer is in of layers whose findings are one, by its place
        (`perfml.explain.advice.table.alike_layers`).
    said
        What Nsight Compute's own rules in the file say, and the causes that each means.
    unexplained
        Where most time goes, for where nothing says why.
    """

    of_layers: tuple[Finding, ...]
    not_checked: Annotated[pd.DataFrame, NotChecked]
    others: tuple[Finding, ...] = ()
    layers: int = 0
    warnings: tuple[str, ...] = field(default=())
    time_notes: tuple[str, ...] = ()
    network: tuple[Finding, ...] = ()
    alike: Mapping[Place, Hashable] = field(default_factory=dict)
    said: tuple[Said, ...] = ()
    unexplained: tuple[Finding, ...] = ()

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """All findings as one list, what is expected to save most first: every surface's."""
        own = grouped(self.of_layers, self._together)
        return in_one_order(own, self.network, self.said, self.unexplained)

    def _together(self, one: Finding) -> Hashable:
        """Return what findings of layers have in common that are one."""
        where = one.where
        place = place_of({"layer": one.layer, **vars(where)})
        return self.alike.get(place, place), where.kernel, one.rules[0], one.mitigation

    @property
    def worth(self) -> tuple[Finding, ...]:
        """The first finding, and those that are not likely to save less than 1 % of all."""
        all_us = max((one.holds.us for one in self.findings), default=0.0)
        rest = (one for one in self.findings[1:] if not one.likely_us < _LITTLE * all_us)
        return (*self.findings[:1], *rest)

    @cached_property
    def table(self) -> Annotated[pd.DataFrame, FINDING_ROW]:
        """The findings as a table, in their order."""
        return table_of(self.findings)

    @property
    def not_listed(self) -> Annotated[pd.DataFrame, FINDING_ROW]:
        """What is improbable or promises too little, with its probability and gain."""
        return table_of(self.others)

    @property
    def below(self) -> int:
        """How many these are."""
        return len(self.others)

    @property
    def left_out(self) -> str:
        """How many findings are not listed, and why; empty where all are."""
        if not self.below:
            return ""
        little = f"promise less than {100 * MIN_GAIN:g} % of their layer"
        return f"{self.below} more {little}, or are improbable"

    JSON: ClassVar = (
        *(("answer", "findings"), ("findings", "table"), "not_listed", "not_checked", "below"),
        *("layers", "warnings", "time_notes"),
    )
    to_dict = json_object

    def shown(self) -> tuple[str, Sequence[str], pd.DataFrame, Sequence[str], str]:
        """Return the findings as people read them, and what to do first."""
        names = ("layer", "hazard", "gain", "gain_high", "backend", "kernel")
        table = self.table[[*names, "evidence", "mitigation"]]
        gains = {
            name: table[name].map(lambda gain: percent(gain, 3)) for name in ("gain", "gain_high")
        }
        heads = {"gain": "likely gain", "gain_high": "at most"}
        table = table.assign(**gains).rename(columns=heads)
        first = [f"First: {one.mitigation}" for one in self.findings[:1]]
        return self.title, (*self.warnings, *self.time_notes), table, first, ".table"

    @property
    def title(self) -> str:
        """How many findings there are, in how many layers."""
        return f"{count(len(self.findings), 'finding')}, in {count(self.layers, 'layer')}"


def advise(
    table: pd.DataFrame | Source,
    *,
    kernels: pd.DataFrame | None = None,
    peaks: Mapping[str, float] | Peaks | None = None,
    layers: Sequence[str] | None = None,
    min_gain: float = MIN_GAIN,
    account: Account | None = None,
    sources: Sequence[Mapping[str, Any]] = (),
) -> Advice:
    """Say of every layer what it loses, and what helps.

    Parameters
    ----------
    table
        Kernels or Layers table, or the name of a profile, a folder, a table or a recorded data set.
    kernels
        Kernels table behind a Layers table; what is of single launches needs it.
    peaks
        FLOP/s by precision, for what padding a product saves; by default those known of each
        device.
    layers
        Only these layers; what is improbable is listed of them, too.
    min_gain
        Findings below this fraction of the layer's time are counted, not listed.
    account
        What a step takes on the clock, for what no kernel shows; that of a named profile is read.
    sources
        Provenance of the files behind a table, for the rules of Nsight Compute that stand in
        them; of a named profile it is read.

    Returns
    -------
    Advice

    Raises
    ------
    PerfmlError
        If the table is neither kind, or a layer does not exist.

    Examples
    --------
    >>> from perfml.datasets import load
    >>> table = load("h200-yolov4-tiny").frame
    >>> found = advise(table[(table["backend"] == "cudnn") & (table["precision"] == "fp32")])
    >>> "wavefronts_per_shared_load" in set(found.table["rules"].explode())
    True
    """
    if not isinstance(table, pd.DataFrame):
        read = read_input(table).in_layers
        table, kernels = read.layers, read.kernels if kernels is None else kernels
        account = read.account if account is None else account
        sources = sources or read.sources
    given = peaks if isinstance(peaks, Peaks) or peaks is None else given_peaks(peaks)
    paths = [str(each["path"]) for each in sources if "path" in each]
    side = make_side(paths[0] if len(paths) == 1 else "the table", table, kernels)
    launches = representative_launches(side.kernels) if side.kernels is not None else None
    merged = launches is None
    rows = merged_rows(side.layers) if launches is None else launches
    if layers is not None:
        rows = _only(rows, layers)
    # devices that are not tabulated have the peaks that their profile tells of
    rows.attrs[DEVICE_FACTS] = table.attrs.get(DEVICE_FACTS) or side.layers.attrs.get(
        DEVICE_FACTS, {}
    )
    alike = {} if merged else alike_layers(rows)
    every = layers_of(with_totals(rows, sources), given)
    found = [finding for layer in every for finding in _findings(layer, merged)]
    large = [one for one in found if one.part_high >= min_gain]
    # how many blocks a grid has is a fact, whatever comes of it; of a layer that is asked for by
    # name (`predict` does, of slow ones) its chances are of another kind than of any layer
    likely = [
        one
        for one in large
        if layers is not None or one.probability >= LIKELY or one.rules[0] == SPLIT
    ]
    listed = set(map(id, likely))
    of_layers = by_saving(measured(likely, every, side.proved))
    of_layers.sort(key=lambda one: one.tested == "refuted")
    network: tuple[Finding, ...] = ()
    if layers is None and len(every) >= LEAST_LAYERS:
        # what is improbable in each of a hundred layers may be likely of all
        network = network_findings(by_saving(large), every, alike, merged=merged)
    foreign = _foreign(side.layers)
    usual = [one for layer in every for one in layer.launches]
    unchecked = not_checked_by(rows, merged=merged)
    # kernels outside of every layer take time, too
    launched = kernels if kernels is not None or "kernel" not in table.columns else table
    if layers is None:
        named = name_findings(launched) if account is None else step_findings(account, rows)
        network = (*named, *(network if account is None or not account.host else ()))
    said = file_rules(side.kernels, sources, usual) if layers is None else ()
    return Advice(
        of_layers=tuple(of_layers),
        said=said,
        unexplained=() if layers is not None else _unexplained(side, launched, sources, account),
        not_checked=unchecked.iloc[:0] if foreign else unchecked,
        others=tuple(by_saving([one for one in found if id(one) not in listed])),
        layers=len(every),
        warnings=side.warnings
        + ((say("explain.note.foreign"),) if foreign else ())
        + (("only merged layers were given: launches were not looked at",) if merged else ()),
        time_notes=(
            *time_notes(("", side.layers)),
            *(() if account is None else (step_sentence(account),)),
        ),
        network=network,
        alike=alike,
    )


def _unexplained(
    side: Side,
    kernels: pd.DataFrame | None,
    sources: Sequence[Mapping[str, Any]],
    account: Account | None,
) -> tuple[Finding, ...]:
    """Return where most time goes: the longest kernels, or the longest layer."""
    if kernels is not None:
        return longest_kernels(kernels, sources, account)
    times = side.layers.groupby("layer", sort=False)["time_us"].median().dropna()
    if times.empty:
        return ()
    return (longest_layer(str(times.idxmax()), float(times.max())),)


def _foreign(layers: pd.DataFrame) -> bool:
    """Return whether all of a table ran on GPUs of which NVIDIA's tools count nothing."""
    devices = layers["device"].dropna().unique() if "device" in layers.columns else ()
    return len(devices) > 0 and all(vendor(str(name)) in ("amd", "meta") for name in devices)


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


def _findings(layer: Layer, merged: bool) -> list[Finding]:
    """Return the findings of a layer, in the order in which people read them."""
    found = launch_findings(layer, merged=merged)
    if not merged:
        found += layer_findings(layer)
    return in_order(found)


def by_saving(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings by the largest likely saving of their layer's; in a layer the order stays."""
    least: dict[Where, float] = {}
    order = []
    for at, one in enumerate(findings):
        layer = replace(one.where, kernel="")
        least[layer] = min(least.get(layer, one.likely_us), one.likely_us)
        order.append((-least[layer], at))
    return [findings[at] for _, at in sorted(order)]
