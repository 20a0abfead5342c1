"""What could be saved of a step on the clock, as findings over a whole network.

Where no trace tells what a step takes, and no counter was collected, the names of the kernels still
say something: of a table of times these are the findings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from perfml.account.account import Account, DeviceAccount, Part
from perfml.account.causes import findings
from perfml.account.device_time import DeviceTime
from perfml.account.words import evidence, remedy
from perfml.explain.advice.network import NetworkFinding
from perfml.kernel_names import kernel_label, kernel_traits
from perfml.tables import metric_columns

_MATTERS = 0.02
"""What saves less of a step is not told."""
_FACTS = frozenset({"registers_per_thread", "shared_memory_per_block", "threads"})
"""Columns that tell how a kernel is launched, not what it does."""
_BACKWARD = re.compile(r"backward|dgrad|wgrad|bn_bw|bwtr|bprop|_bwd", re.IGNORECASE)


def step_findings(account: Account) -> tuple[NetworkFinding, ...]:
    """Return what could be saved of a step, the largest first."""
    return tuple(
        NetworkFinding(
            None,
            None,
            None,
            (finding.cause.id,),
            finding.cause.words,
            evidence(finding, account),
            remedy(finding, account),
            finding.saved_us / finding.step_us,
            finding.saved_us,
            finding.step_us,
            (),
            "medium",
        )
        for finding in findings(account)
        if finding.saved_us >= _MATTERS * finding.step_us
    )


def name_findings(kernels: pd.DataFrame | None) -> tuple[NetworkFinding, ...]:
    """Return what the names of the kernels of a table say, where it has no counters.

    Parameters
    ----------
    kernels
        A Kernels table; of several iterations each counts.
    """
    if kernels is None or set(metric_columns(kernels)) - _FACTS:
        return ()
    timed = kernels.dropna(subset=["kernel", "time_us"])
    if timed.empty:
        return ()
    return step_findings(_sums(timed))


def _sums(kernels: pd.DataFrame) -> Account:
    """Return the times of kernels as an account without a clock: one step that is their sum."""
    launches = kernels["launches"] if "launches" in kernels.columns else 1
    rows = kernels.assign(n=launches, us=kernels["time_us"] * launches)
    groups = rows.groupby(["kernel", "layer"], dropna=False, sort=False)[["us", "n"]].sum()
    parts = tuple(map(_part, groups.reset_index().to_dict("records")))
    whole = sum(part.us for part in parts)
    step = DeviceTime(float(rows["n"].sum()), whole, whole, 0.0, 0.0)
    device = DeviceAccount(0, step, (step,), (), parts, (), step.launches)
    trains = any(_BACKWARD.search(str(name)) for name in rows["kernel"].unique())
    return Account("", (whole,), False, (device,), (), trains)


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
