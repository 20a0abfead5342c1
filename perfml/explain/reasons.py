"""The causes in sentences: what made a layer slower or faster, with its numbers."""

from __future__ import annotations

import pandas as pd

from perfml.explain.causes import LANES
from perfml.explain.physical import APPEARED, LAUNCH_COUNT, VANISHED
from perfml.explain.results import Causes, Ratio

SMALL = 0.1
"""A cause below a tenth of the largest one is not told."""
MOST = 3

_SAID = {
    "wave fill": "blocks fill {after:.0%} of the waves they need, {before:.0%} in the baseline",
    "occupancy limit": "{after:.0%} of the warps fit on a multiprocessor, {before:.0%} in the "
    "baseline",
    "occupancy reached": "{after:.0%} of those that fit are resident, {before:.0%} in the baseline",
    "sectors per request": "a request touches {after:.3g} sectors, {before:.3g} in the baseline",
    "wavefronts per shared load": "a load takes {after:.3g} wavefronts, {before:.3g} in the "
    "baseline",
    LAUNCH_COUNT: "{after:.0f} launches, {before:.0f} in the baseline",
    LANES: "{after:.1%} of the lanes are active, {before:.1%} in the baseline",
}
_STALLS = "{after:.0%} of the stalls, {before:.0%} in the baseline"


def reasons(time: Ratio, causes: Causes) -> tuple[str, ...]:
    """Return what speaks for the measured difference, and what against it, largest first."""
    if time.verdict not in ("slower", "faster") or causes.terms.empty:
        return ()
    sign = 1.0 if time.log_ratio > 0 else -1.0
    terms = causes.terms.assign(towards=causes.terms["log_ratio"] * sign)
    limit = SMALL * float(terms["towards"].abs().max())
    found = []
    for heading, chosen in (
        (f"makes it {time.verdict}", terms[terms["towards"] > limit]),
        ("works against that", terms[terms["towards"] < -limit]),
    ):
        parts = [_cause(row, causes.by_kernel) for row in chosen.to_dict(orient="records")[:MOST]]
        if parts:
            found.append(f"{heading}: {'; '.join(parts)}")
    return tuple(found)


def _cause(row: dict[object, object], pieces: pd.DataFrame) -> str:
    cause, factor = str(row["cause"]), float(str(row["factor"]))
    mine = pieces[pieces["cause"] == cause]
    said = f"{cause} x{factor:.2f}"
    if mine.empty:
        return said
    piece = mine.iloc[int(mine["log_ratio"].abs().to_numpy().argmax())]
    before, after = float(piece["baseline"]), float(piece["target"])
    if cause in (VANISHED, APPEARED):
        total = float(mine["baseline" if cause == VANISHED else "target"].sum())
        largest = mine.loc[mine["log_ratio"].abs().sort_values(ascending=False).index, "kernels"]
        names = ", ".join(map(str, largest.head(MOST)))
        return f"{said} ({total:.3g} us: {names})"
    if cause in _SAID:
        return f"{said} ({_SAID[cause].format(before=before, after=after)})"
    if cause.startswith("stalls: "):
        return f"{said} ({_STALLS.format(before=before, after=after)})"
    if row["residual"]:
        return f"{said} (an unexplained rest)"
    return f"{said} ({before:.3g} -> {after:.3g})"
