"""Ranks of one job: what a step of each takes, and which of them the others wait for.

Times of ranks are never added up. Waits are those of `perfml.account.collectives`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np
import pandas as pd

from perfml.account.account import ACCOUNT, Account
from perfml.account.collectives import RANK, RankOfJob, waits_of
from perfml.account.device_time import busy_on_one_device
from perfml.util.json_values import json_object

_WORTH = 0.01
"""Waits of less than 1 % of a step name no slowest rank."""
_EXPLAINS = 0.5
"""What a rank computes more explains the waits for it if it is at least this part of them."""
_MOST = 0.5
"""One rank is the slowest if it causes more than this part of all waits."""


@dataclass(frozen=True)
class RankTime:
    """A step of one rank; microseconds, means of the steps that count.

    Attributes
    ----------
    rank
        Its number.
    step_us
        On the clock; NaN of runs, which have the kernels of modules alone.
    computing_us
        While a kernel ran that is no communication.
    communication_us
        While a kernel of communication ran, beside computing or not; NaN of runs.
    waiting_us
        Of `communication_us`, until the last rank came; NaN where collectives do not match.
    exposed_us
        Of `communication_us`, while nothing was computed.
    idle_us
        While no kernel and no copy ran.
    caused_us
        What the others wait at most for this rank, over its collectives; NaN as `waiting_us`.
    """

    rank: int
    step_us: float
    computing_us: float
    communication_us: float
    waiting_us: float
    exposed_us: float
    idle_us: float
    caused_us: float


@dataclass(frozen=True)
class Ranks:
    """The ranks of one job, by number.

    Attributes
    ----------
    world_size
        How many the job has.
    times
        A step of each that has a trace, or an iteration of each that has a run.
    accounts
        Of each trace; empty of runs.
    steps
        Recorded steps whose collectives are the same on all of them; waits are of these.
    """

    world_size: int
    times: tuple[RankTime, ...]
    accounts: tuple[Account, ...]
    steps: int

    @property
    def missing(self) -> int:
        """How many ranks have no trace here."""
        return self.world_size - len(self.times)

    @property
    def slowest(self) -> RankTime | None:
        """The rank that the others wait for; None where they take turns, or hardly wait."""
        if not self.steps:
            return None
        first = max(self.times, key=lambda each: each.caused_us)
        caused = math.fsum(each.caused_us for each in self.times)
        long = first.caused_us >= _WORTH * first.step_us
        return first if long and first.caused_us > _MOST * caused else None

    @property
    def waits_most(self) -> RankTime:
        """Of the ranks beside the last one, the one that waits longest."""
        others = [each for each in self.times if each is not self.last]
        return max(others, key=lambda each: each.waiting_us)

    @property
    def computes_more(self) -> bool:
        """Whether what the last rank computes more explains the waits for it."""
        others = [each.computing_us for each in self.times if each is not self.last]
        return self.last.computing_us - max(others) >= _EXPLAINS * self.waits_most.waiting_us

    @property
    def last(self) -> RankTime:
        """The slowest rank, else the one with the longest step."""
        return self.slowest or max(self.times, key=lambda each: each.step_us)

    @property
    def account(self) -> Account:
        """The account of `last`: what shortens its step shortens that of all."""
        return self.accounts[self.times.index(self.last)]

    JSON: ClassVar = ("world_size", "steps", ("slowest", "slowest_rank"), ("ranks", "times"))
    to_dict = json_object

    @property
    def slowest_rank(self) -> int | None:
        """The number of `slowest`."""
        return None if self.slowest is None else self.slowest.rank


def account_in(provenance: Mapping[str, Any]) -> Account | None:
    """Return the account of the one run that a whole table was read from; None without one.

    Processes that ran the program one after another are its repeats. Of ranks of one job it is
    that of the rank which the others wait for.
    """
    sources = [each for each in provenance.get("sources", ()) if isinstance(each, Mapping)]
    timed = [each for each in sources if ACCOUNT in each]
    # timing passes of one run, a process each
    runs = {(each.get("run_id"), each.get("format"), RANK in each) for each in timed}
    run = timed[0].get("run_id") if timed else None
    if "where" not in provenance and (len(timed) == 1 or runs == {(run, "timing-csv", False)}):
        return Account.of_processes([Account.from_dict(each[ACCOUNT]) for each in timed])
    ranks = ranks_in(provenance)
    return None if ranks is None else ranks.account


def ranks_in(provenance: Mapping[str, Any]) -> Ranks | None:
    """Return the ranks of the one job that a whole table was read from; None of anything else."""
    sources = [each for each in provenance.get("sources", ()) if isinstance(each, Mapping)]
    if len(sources) < 2 or "where" in provenance:
        return None
    if any(RANK not in each or ACCOUNT not in each for each in sources):
        return None
    traces = [(msgspec.convert(each[RANK], RankOfJob), each[ACCOUNT]) for each in sources]
    traces.sort(key=lambda trace: trace[0].rank)
    jobs = [job for job, _ in traces]
    if len({job.world_size for job in jobs}) > 1 or len({job.rank for job in jobs}) < len(jobs):
        return None
    return ranks_of(jobs, [Account.from_dict(account) for _, account in traces])


def ranks_of_runs(kernels: pd.DataFrame | None, runs: Sequence[Mapping[str, Any]]) -> Ranks | None:
    """Return ranks of one job, each of which is a run; None where the launches are of others.

    `kernels` is the Kernels table, `runs` are the manifests. A run has the launches of modules
    without communication: what its kernels compute in the median iteration is all it tells.
    """
    known = {
        str(run.get("run_id")): run
        for run in runs
        if all(isinstance(run.get(name), int) for name in ("rank", "world_size"))
    }
    if kernels is None or len(known) < 2 or not {"start_us", "gap_us"} <= set(kernels.columns):
        return None
    numbers = sorted((run["rank"], name) for name, run in known.items())
    sizes = {run["world_size"] for run in known.values()}
    alone = len({rank for rank, _ in numbers}) == len(numbers) and len(sizes) == 1
    if not alone or set(kernels["run_id"].astype(str)) != set(known):
        return None
    busy = busy_on_one_device(kernels, ["run_id", "iteration"]).dropna().reset_index()
    computing = busy.groupby(busy["run_id"].astype(str))["time_us"].median()
    if not set(known) <= set(computing.index):  # one without a start or a time
        return None
    lacking = dict.fromkeys(
        ("step_us", "communication_us", "waiting_us", "exposed_us", "idle_us", "caused_us"),
        math.nan,
    )
    times = (
        RankTime(rank=rank, computing_us=float(computing[name]), **lacking)
        for rank, name in numbers
    )
    return Ranks(sizes.pop(), tuple(times), (), 0)


def ranks_of(jobs: Sequence[RankOfJob], accounts: Sequence[Account]) -> Ranks:
    """Put the traces of one job together; both are in the order of ranks."""
    first = int(any(each.warm_up for each in accounts))
    until = min(len(each.walls_us) for each in accounts)
    waiting, caused, steps = np.zeros(len(jobs)), np.zeros(len(jobs)), 0
    for step in range(first, until):
        waits = waits_of([[each for each in job.collectives if each.step == step] for job in jobs])
        if waits is not None:
            waiting, caused, steps = waiting + waits[0], caused + waits[1], steps + 1
    # without a step that matches, none of it was measured
    mean = 1 / steps if steps else math.nan
    times = tuple(
        _rank_time(job, account, waiting[at] * mean, caused[at] * mean)
        for at, (job, account) in enumerate(zip(jobs, accounts, strict=True))
    )
    return Ranks(jobs[0].world_size, times, tuple(accounts), steps)


def _rank_time(job: RankOfJob, account: Account, waiting: float, caused: float) -> RankTime:
    device = account.busiest
    step = device.step
    exposed = math.fsum(part.us for part in device.parts if part.zone == "communication")
    return RankTime(
        rank=job.rank,
        step_us=account.step_us,
        computing_us=step.computing_us + step.both_us - exposed,
        communication_us=device.communication_us,
        waiting_us=float(waiting),
        exposed_us=exposed,
        idle_us=step.idle_us,
        caused_us=float(caused),
    )
