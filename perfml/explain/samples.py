"""The lines of the source at which warps of the longest kernels were sampled most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from perfml.explain.lines import own_places
from perfml.explain.reports import Report, code_of
from perfml.explain.results import file_name
from perfml.explain.speed_of_light import KernelLevels
from perfml.ingest.merge.groups import kernel_units
from perfml.readers.ncu.instructions import SAMPLES, STALLED

_KERNELS, _LINES = 5, 5
"""The longest kernels, and the lines of each with most samples."""

_LEAST = 0.02
"""A line with less of the kernel's samples is not shown."""

_ISSUING = "selected"
"""Nsight Compute's reason of a warp that issues, and so waits for nothing."""


@dataclass(frozen=True)
class SampledLine:
    """A line of the source, or an instruction of a kernel without ``-lineinfo``."""

    place: str  # ``kernels.cu:42``, or ``0x0120``
    share: float  # of the samples of its kernel
    stall: str  # why most of the sampled warps did not issue; empty where most did
    sass: str  # its instruction with most samples


def sampled_lines(
    kernels: pd.DataFrame, levels: Sequence[KernelLevels], reports: Sequence[Report]
) -> dict[str, tuple[SampledLine, ...]]:
    """Return the lines of the longest kernels by their label, most samples first.

    `kernels` is the table behind `levels`, `reports` are the files that it was read from.
    """
    names = {unit.label: unit.kernel for unit in kernel_units(kernels)[0]}
    wanted = {each.kernel: names[each.kernel] for each in levels[:_KERNELS] if each.kernel in names}
    if not reports or not wanted:
        return {}
    (code,) = code_of((list(reports), set(wanted.values())))
    found = {label: _lines(code[name]) for label, name in wanted.items() if name in code}
    return {label: lines for label, lines in found.items() if lines}


def _lines(table: pd.DataFrame) -> tuple[SampledLine, ...]:
    if SAMPLES not in table or not table[SAMPLES].sum() > 0:
        return ()
    rows = own_places(table)
    place = [
        f"{offset:#06x}" if pd.isna(line) else f"{file_name(str(file))}:{line:.0f}"
        for file, line, offset in zip(rows["file"], rows["line"], rows["offset"], strict=True)
    ]
    stalls = [name for name in rows.columns if name.startswith(STALLED)]
    sums = rows.groupby(place)[[SAMPLES, *stalls]].sum().nlargest(_LINES, SAMPLES)
    hottest = rows.assign(place=place).sort_values(SAMPLES, ascending=False, kind="stable")
    sass = hottest.drop_duplicates("place").set_index("place")["sass"]
    shares = sums[SAMPLES] / rows[SAMPLES].sum()
    reasons = sums[stalls].idxmax(axis=1) if stalls else pd.Series("", sums.index)
    found = zip(sums.index, shares, reasons, sass.reindex(sums.index), strict=True)
    return tuple(
        SampledLine(str(at), float(part), _stall(str(reason)), str(code))
        for at, part, reason, code in found
        if part >= _LEAST
    )


def _stall(name: str) -> str:
    reason = name.removeprefix(STALLED)
    return "" if reason == _ISSUING else reason.replace("_", " ")
