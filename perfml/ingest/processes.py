"""The timing passes of one run in several processes, as one table.

Here to change: how the tables are told apart, and what numbers the iterations of a later process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from perfml.tables import Kernels

_NAME = re.compile(r"timing(?:_([0-9]+))?\.csv(?:\..+)?")


def joined_processes(timings: Sequence[Kernels]) -> list[Kernels]:
    """Return the timing passes of a collected run as one.

    They were read from ``timing.csv``, ``timing_2.csv``, ...: the number is the process's. One
    table has a column ``process``, and iterations that are numbered on from process to process;
    `timings` stay as they are where there is one, or files that are named otherwise.
    """
    names = [_NAME.fullmatch(str(each.provenance.get("path"))) for each in timings]
    numbers = [int(name[1] or 1) for name in names if name is not None]
    if len(timings) < 2 or len(numbers) < len(timings) or len(set(numbers)) < len(numbers):
        return list(timings)
    parts = []
    following = 0
    for number, each in sorted(zip(numbers, timings, strict=True), key=lambda pair: pair[0]):
        iteration = each.frame["iteration"] - each.frame["iteration"].min() + following
        parts.append(each.frame.assign(iteration=iteration, process=number))
        following = int(iteration.max()) + 1
    return [replace(timings[0], frame=pd.concat(parts, ignore_index=True))]


def with_processes(joined: pd.DataFrame, timing: pd.DataFrame) -> pd.DataFrame:
    """Return a joined table with the process of each iteration, where its timing pass has it."""
    if "process" not in timing.columns:
        return joined
    of_iteration = timing.drop_duplicates("iteration").set_index("iteration")["process"]
    return joined.assign(process=joined["iteration"].map(of_iteration).astype("int64"))
