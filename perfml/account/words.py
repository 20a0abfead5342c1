"""The account of a step in sentences: how long it takes, where that goes, what to do first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from perfml.account.account import SUM, Account, DeviceAccount
from perfml.account.audit import IDLE
from perfml.account.causes import Finding
from perfml.account.ranks import Ranks, RankTime
from perfml.util.words import Readable, capital, count, micros

_SHOWN = 0.01
"""Parts of less than 1 % of a step have no words of their own."""
_ROUNDED = 0.0005
"""Parts of a step that add up to it: smaller ones are less than what numbers are rounded to."""
_IDLE = 0.1
"""From this part of a step on idle time is worth a word on what a profiler adds to it."""
_MORE = 1.1
"""A rank computes longer than the others from this factor on. Three ranks with one batch differ by
0.3 % in runs and 3 % in traces (four H200s, 2026-11-26)."""
_SYNCHRONISING = "synchronising"


def step_sentence(account: Account, name: str = "") -> str:
    """Say how long a step takes on the clock, and what passes in it.

    `name` is what its side is called; empty where there is one.
    """
    whose = f"{name}: " if name else ""
    what = f"{'the' if account.unit in ('recording', 'range') else 'a'} {account.unit} takes"
    several, unknown = len(account.devices) > 1, IDLE in account.unknown
    parts = " ".join(_of_device(each, several, unknown) for each in account.devices)
    clock = f"{what} {micros(account.step_us)} on the clock{steps_text(account)}"
    if account.unit == SUM:
        clock = f"kernels and copies add up to {micros(account.step_us)}"
    text = f"{whose}{clock}. {parts}"
    if account.bare_us is not None:
        text += f" Without a profiler a step takes {micros(account.bare_us)}."
    return capital(text) if not name else text


def profiled(account: Account) -> str:
    """Say how much of a step may be the profiler's, where nobody timed it without one."""
    idle = account.busiest.step.idle_us
    if not (account.host and account.pytorch and account.marked_by) or account.bare_us is not None:
        return ""
    if idle < _IDLE * account.step_us:
        return ""
    return (
        "The profiler makes idle time longer. Of 40 recorded steps the median took 1.39 times as "
        "long as without it, at most 2.24 times. perfml.time_step(step, trace) times a step alone."
    )


def steps_text(account: Account) -> str:
    """Say over which steps it is the mean, and what they differ by; in brackets."""
    kept = account.kept_us
    if len(account.walls_us) == 1:
        return ""
    low, high = micros(min(kept)), micros(max(kept))
    said = count(len(kept), account.unit) + (f", {low} to {high}" if low != high else "")
    if len(account.cut) == 1:
        (number,) = account.cut
        end = "first" if number == 0 else "last"
        wall = micros(account.walls_us[number])
        said += f"; the {end} one may be cut ({wall}), and is not counted"
    elif account.cut:
        said += f"; {len(account.cut)} at both ends may be cut, and are not counted"
    if account.warm_up:
        said += f"; the first recorded one took {micros(account.walls_us[0])}: warm-up, not counted"
    elif not account.agree:
        said += ", which disagree"
    return f" ({said})"


def _of_device(device: DeviceAccount, several: bool, unknown: bool) -> str:
    step = device.step
    beside = f" ({micros(step.both_us)} of it beside copies)"
    named = {
        "computing": (
            step.computing_us + step.both_us,
            beside * (step.both_us >= _SHOWN * step.wall_us),
        ),
        "copying": (step.copying_us, ""),
        "without a recorded operation" if unknown else "idle": (step.idle_us, ""),
    }
    # what is left out is less than the rounding of the rest
    shown = [
        f"{name} {micros(us)}{note}"
        for name, (us, note) in named.items()
        if us >= _ROUNDED * step.wall_us
    ]
    where = f"Device {device.device}" if several else "The device"
    return f"{where} is {', '.join(shown)}."


_RANK_COLUMNS = {
    "step": "step_us",
    "computing": "computing_us",
    "communication": "communication_us",
    "of it waiting": "waiting_us",
    "of it exposed": "exposed_us",
    "idle": "idle_us",
}


def rank_table(ranks: Ranks) -> tuple[str, tuple[str, ...], list[tuple[str, list[float]]]]:
    """Return title, columns and rows: each rank with its microseconds, as far as one has them."""
    known = {
        name: [getattr(each, attribute) for each in ranks.times]
        for name, attribute in _RANK_COLUMNS.items()
    }
    known = {name: us for name, us in known.items() if not all(map(math.isnan, us))}
    title = f"{'A step' if ranks.accounts else 'The median iteration'} of each rank, µs"
    rows = zip(ranks.times, zip(*known.values(), strict=True), strict=True)
    return title, tuple(known), [(f"{each.rank}", list(us)) for each, us in rows]


def longest_computing(ranks: Ranks) -> RankTime | None:
    """Return the rank that computes longest; None where ranks compute alike."""
    *others, last = sorted(ranks.times, key=lambda each: each.computing_us)
    return last if last.computing_us > _MORE * others[-1].computing_us else None


def rank_sentences(ranks: Ranks) -> tuple[str, ...]:
    """Say which rank the others wait for, how long, and what it does meanwhile."""
    last = ranks.slowest
    if last is not None:
        others = [each for each in ranks.times if each is not last]
        waits, work = (
            _between([getattr(each, name) for each in others])
            for name in ("waiting_us", "computing_us")
        )
        idle = f"its device is idle {micros(last.idle_us)}"
        said = [
            f"Rank {last.rank} is the slowest: other ranks wait {waits} of a step for the last.",
            f"It computes {micros(last.computing_us)} a step, the others {work}; {idle}.",
        ]
    elif ranks.steps:
        most = max(each.waiting_us for each in ranks.times)
        said = [f"No rank is always the slowest: one waits at most {micros(most)} of a step."]
    elif not ranks.accounts:
        said = list(_computing(ranks))
    else:
        said = ["What ranks wait for each other is not known: their collectives do not match."]
    if ranks.missing:
        are = count(ranks.missing, "rank has", "ranks have")
        said.append(f"{are} no trace here, of {ranks.world_size}.")
    return tuple(said)


def _computing(ranks: Ranks) -> Iterator[str]:
    """Say which rank computes longest, where no communication was recorded."""
    last = longest_computing(ranks)
    work = _between([each.computing_us for each in ranks.times if each is not last])
    if last is None:
        yield f"Ranks compute alike: {work} an iteration."
    else:
        longest = f"Rank {last.rank} computes longest: {micros(last.computing_us)} an iteration"
        yield f"{longest}, the others {work}."
    yield "Runs record kernels of modules, no communication: traces of torch.profiler tell waits."


def _between(us: Sequence[float]) -> str:
    low, high = micros(min(us)), micros(max(us))
    return low if low == high else f"{low} to {high}"


def evidence(finding: Finding, account: Account) -> str:
    """Say what of a step a cause takes, and where."""
    amount = finding.amount
    parts = []
    for name, us in (
        ("idle", amount.idle_us),
        ("copies", amount.copying_us),
        ("kernels", amount.computing_us),
    ):
        if us >= _SHOWN * finding.step_us:
            alone = " beside no kernel" if name == "copies" and account.unit != SUM else ""
            parts.append(f"{name} {micros(us)}{alone}")
    said = f"{', '.join(parts) or micros(amount.us)} of {_whole(account.bare)}"
    if amount.place:
        said += f", most in {amount.place}"
    if amount.operator not in ("", amount.place) and amount.computing_us >= amount.idle_us:
        said += f" ({amount.operator})"
    if finding.cause.id == _SYNCHRONISING and account.waits:
        first = account.waits[0]
        times = first.times / len(account.kept_us)
        at = f"{first.operator} ({first.call})" if first.operator else first.call
        said += f"; {times:,.0f} × {at}{' a step' if account.marked_by else ''}"
    return said


def _whole(account: Account) -> str:
    """Say how long a step takes, or the recording where nothing marks steps."""
    each = "" if account.unit in ("recording", SUM) else f" a {account.unit}"
    return f"{micros(account.step_us)}{each}"


def longest_kernel(account: Account) -> str:
    """Say which kernel takes most of the busiest device's time; empty where there is one."""
    rows = kernel_rows(account)
    if len(rows) < 2:
        return ""
    name, _, _, share = rows[0]
    return f"The longest kernel, {name}, takes {Readable(share):.0%} of the time of all kernels."


def kernel_rows(account: Account) -> list[tuple[str, float, float, float]]:
    """Return each kernel of a step: its label, launches, microseconds, share of all.

    The longest comes first. Times are those in which nothing runs that is counted before it.
    """
    sums: dict[str, tuple[float, float]] = {}
    for part in account.busiest.parts:
        launches, us = sums.get(part.kernel, (0.0, 0.0))
        sums[part.kernel] = (launches + part.launches, us + part.us)
    whole = sum(us for _, us in sums.values())
    rows = [(name, n, us, us / whole) for name, (n, us) in sums.items() if us > 0]
    return sorted(rows, key=lambda row: -row[2])
