"""What Nsight Compute's own rules said in a file, in one list with our findings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pandas as pd

from perfml.account.device_time import repeat_keys
from perfml.explain.advice.equal_layers import group_name
from perfml.explain.advice.persons import mitigation, person_of
from perfml.explain.advice.remedies import Remedy, load_remedies
from perfml.explain.confidence import Confidence
from perfml.explain.launches import LABEL
from perfml.explain.speed_of_light import fact_key, unit_keys
from perfml.ingest.merge.by_kernel import kernel_units, launches_behind_rows
from perfml.kernel_names import kernel_label

_LINK = re.compile(r"@section:[^:@]*:([^@]*)@|@url:([^:@]*):[^@]*@")
"""ncu's links in messages: ``@section:WarpStateStats:Warp State Statistics@``."""

_OF_THE_SET = re.compile(r"could not be found|not available on this", re.IGNORECASE)
"""Messages about metrics that were not collected, which are no findings."""


@dataclass(frozen=True)
class FileRule:
    """A result of one of Nsight Compute's rules about one kernel."""

    kernel: str  # label of the kernel in one shape
    name: str  # its full name
    rule: str  # ncu's identifier
    message: str  # what the rule says, without links
    time_us: float  # of all its launches in one repeat of the program
    saves: float  # estimated fraction of it; NaN without an estimate
    scope: str | None  # ``global`` if the estimate is of the whole kernel, ``local`` if of one unit

    @property
    def saved_us(self) -> float:
        """Estimated saving in one repeat of the program, in microseconds."""
        return self.saves * self.time_us


@dataclass(frozen=True)
class ListedFinding:
    """A finding of perfml, of Nsight Compute, or of both."""

    kernel: Annotated[str, "where it is"]
    time_us: Annotated[float, "time there, in microseconds, in one repeat of the program"]
    hazard: Annotated[str, "what it is"]
    evidence: Annotated[str, "what shows it"]
    action: Annotated[str, "what to do"]
    perfml_us: Annotated[float, "at most saved by this estimate, in microseconds"]
    ncu_us: Annotated[float, "at most saved by this estimate, in microseconds"]
    says: Annotated[str, "who says it: ``perfml``, ``Nsight Compute`` or both"]
    rules: Annotated[tuple[str, ...], "identifiers of the rules"]
    local: Annotated[bool, "whether ncu's estimate is of one unit: rarely reached"] = False
    confidence: Annotated[Confidence | None, "of perfml's finding; None of Nsight Compute's"] = None
    tells: Annotated[str, "what would tell where confidence is low"] = ""

    @property
    def saved_us(self) -> float:
        """The larger of the estimates; NaN without any."""
        known = [each for each in (self.perfml_us, self.ncu_us) if not math.isnan(each)]
        return max(known, default=math.nan)


def file_rules(
    kernels: pd.DataFrame | None, sources: Iterable[Mapping[str, Any]]
) -> tuple[FileRule, ...]:
    """Return what the rules in the files behind a table say of its kernels.

    `sources` are the provenance of its files (``rules``: `perfml.readers.ncu.findings`).
    """
    said = [each for source in sources for each in source.get("rules", ())]
    if kernels is None or not said:
        return ()
    units, codes = kernel_units(kernels)
    launches = launches_behind_rows(kernels, codes)
    repeats = max(kernels.groupby(repeat_keys(kernels), dropna=False).ngroups, 1)
    times = (kernels["time_us"].fillna(0.0) * launches).groupby(codes).sum() / repeats
    places = {key: place for place, key in enumerate(unit_keys(units))}
    found: dict[tuple[int, str, str], FileRule] = {}
    for each in said:
        place = places.get(fact_key(each))
        message = _LINK.sub(r"\1\2", str(each["message"])).strip()
        if place is None or _OF_THE_SET.search(message):
            continue
        saves = math.nan if each.get("saves") is None else float(each["saves"])
        unit, time = units[place], float(times.get(place, math.nan))
        rule, scope = str(each["rule"]), each.get("scope")
        one = FileRule(unit.label, unit.kernel, rule, message, time, saves, scope)
        key = (place, one.rule, message)
        if key not in found or not found[key].saves >= saves:
            found[key] = one
    return tuple(found.values())


def listed_findings(findings: pd.DataFrame, said: Sequence[FileRule]) -> tuple[ListedFinding, ...]:
    """Return our findings (`Advice.groups`) and those of the files, the largest saving first."""
    # The ``ncu`` of our remedies says which of them mean the same.
    book = load_remedies()[0]
    rows = findings.to_dict("records")
    theirs: dict[int, list[FileRule]] = {}
    alone: list[ListedFinding] = []
    for one in said:
        alike = [each for each in book if each.says(one.rule, one.message)]
        places = [at for at, row in enumerate(rows) if _is_same(row, one, alike)]
        for place in places:
            theirs.setdefault(place, []).append(one)
        alone += [] if places else [_alone(one, alike)]
    ours = [_of_perfml(row, theirs.get(place, ())) for place, row in enumerate(rows)]
    return tuple(sorted(_once([*ours, *alone]), key=_rank))


def _rank(found: ListedFinding) -> tuple[int, float, float]:
    """Sort estimates of time first, then those of one unit's use, then findings without any."""
    # Of these a rule that perfml has too, and so a cure for, is first.
    if math.isnan(found.saved_us):
        return (2 if found.evidence else 3), 0.0, -found.time_us
    return int(found.local and math.isnan(found.perfml_us)), -found.saved_us, -found.time_us


def _once(found: Sequence[ListedFinding]) -> list[ListedFinding]:
    """Return findings of which the same are one: rules that mean one thing in one kernel."""
    kept: dict[tuple[str, str, str], ListedFinding] = {}
    for one in sorted(found, key=_rank):
        kept.setdefault((one.kernel, one.hazard, one.action), one)
    return list(kept.values())


def _is_same(row: Mapping[Any, Any], said: FileRule, alike: Sequence[Remedy]) -> bool:
    # without ranges the layer is the kernel in its shape, which is more than the kernel's name
    whole = str(row["layer"]).startswith(str(row["kernel"]))
    place = said.kernel if whole else kernel_label(said.name, LABEL)
    named = place == (row["layer"] if whole else row["kernel"])
    return named and any(not set(each.causes).isdisjoint(row["rules"]) for each in alike)


def _of_perfml(row: Mapping[Any, Any], theirs: Sequence[FileRule]) -> ListedFinding:
    time = float(row["time_us"])
    # of a kernel that several layers launch, each layer has its part
    estimates = [min(one.saved_us, one.saves * time) for one in theirs if one.saves >= 0]
    says = ("perfml", *(("Nsight Compute",) if theirs else ()))
    layer, kernel = group_name(row.get("layers") or (str(row["layer"]),)), str(row["kernel"])
    return ListedFinding(
        layer if layer.startswith(kernel) else f"{layer}: {kernel}",
        time,
        str(row["hazard"]),
        str(row["evidence"]),
        mitigation(row),
        float(row["saved_us"]),
        max(estimates, default=math.nan),
        " and ".join(says),
        (*row["rules"], *dict.fromkeys(one.rule for one in theirs)),
        bool(theirs) and all(one.scope == "local" for one in theirs),
        row["confidence"],
        str(row["tells"]),
    )


def _alone(said: FileRule, alike: Sequence[Remedy]) -> ListedFinding:
    """Return what Nsight Compute alone says; our remedy that means the same names what helps."""
    first, _, rest = said.message.partition(". ")
    hazard, evidence, action = first, "", rest
    if alike:
        hazard, evidence = alike[0].hazard, f"{first}."
        action = alike[0].advice_for(person_of(said.name), convolves=False)
    saved, rules = (math.nan, said.saved_us), (said.rule,) if said.rule else ()
    texts = (hazard, evidence, action)
    local = said.scope == "local"
    return ListedFinding(said.kernel, said.time_us, *texts, *saved, "Nsight Compute", rules, local)
