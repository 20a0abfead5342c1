"""What Nsight Compute's own rules said of the kernels in a file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfml.account.device_time import repeat_keys
from perfml.explain.launches import known
from perfml.explain.speed_of_light import fact_key, unit_keys
from perfml.ingest.merge.groups import kernel_units, launches_behind_rows

_LINK = re.compile(r"@section:[^:@]*:([^@]*)@|@url:([^:@]*):[^@]*@")
"""ncu's links in messages: ``@section:WarpStateStats:Warp State Statistics@``."""

_NOTHING = re.compile(
    r"could not be found|not available on this|memory compression|no compression", re.IGNORECASE
)
"""Messages that are no findings: on metrics that were not collected, on what nobody switched on."""

_HIDES = re.compile(r"occupancy|issue slots|schedulers?\b|stalled waiting", re.IGNORECASE)
"""Messages about warps that hide too little, whose cure takes no work from any unit."""


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


def file_rules(
    kernels: pd.DataFrame | None, sources: Sequence[Mapping[str, Any]]
) -> tuple[FileRule, ...]:
    """Return what the rules in the files behind a table say of its kernels.

    `sources` are the provenance of its files (``rules``: `perfml.readers.ncu.findings`).
    """
    said = [each for source in sources for each in source.get("rules", ())]
    if kernels is None or not said:
        return ()
    totals = [one for each in sources for one in each.get("speed_of_light", ())]
    fullest = {fact_key(one): _level(one) for one in totals}
    units, codes = kernel_units(kernels)
    launches = launches_behind_rows(kernels, codes)
    repeats = max(kernels.groupby(repeat_keys(kernels), dropna=False).ngroups, 1)
    times = (kernels["time_us"].fillna(0.0) * launches).groupby(codes).sum() / repeats
    places = {key: place for place, key in enumerate(unit_keys(units))}
    found: dict[tuple[int, str, str], FileRule] = {}
    for each in said:
        place = places.get(fact_key(each))
        message = _LINK.sub(r"\1\2", str(each["message"])).strip()
        if place is None or _NOTHING.search(message):
            continue
        saves = math.nan if each.get("saves") is None else float(each["saves"])
        if _HIDES.search(message):  # what only hides waits leaves the fullest unit its time
            saves = min(saves, 1 - fullest.get(fact_key(each), 0.0))
        unit, time = units[place], float(times.get(place, math.nan))
        rule, scope = str(each["rule"]), each.get("scope")
        one = FileRule(unit.label, unit.kernel, rule, message, time, saves, scope)
        key = (place, one.rule, message)
        if key not in found or not found[key].saves >= saves:
            found[key] = one
    return tuple(found.values())


def _level(fact: Mapping[str, Any]) -> float:
    """Return how busy the busiest unit of a kernel is, of its peak; 0 if not known."""
    return max(known(float(fact.get(name, math.nan))) for name in ("compute", "memory"))
