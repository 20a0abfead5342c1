"""The physical attribution in sentences: what made a layer slower or faster, with its numbers."""

from __future__ import annotations

import pandas as pd

from perfml.explain.physical import APPEARED, LAUNCH_COUNT, VANISHED
from perfml.explain.results import Physical, Ratio

SMALL = 0.1
"""A term below a tenth of the largest one is not told."""
MOST = 3

_SAID = {
    "wave fill": "blocks fill {after:.0%} of the waves they need, {before:.0%} in the baseline",
    "occupancy limit": "{after:.0%} of the warps fit on a multiprocessor, {before:.0%} in the "
    "baseline",
    "occupancy reached": "{after:.0%} of those that fit are resident, {before:.0%} in the baseline",
    "sectors per request": "a request touches {after:.3g} sectors, {before:.3g} in the baseline",
    LAUNCH_COUNT: "{after:.0f} launches, {before:.0f} in the baseline",
}


def reasons(time: Ratio, physical: Physical) -> tuple[str, ...]:
    """Return what speaks for the measured difference, and what against it, largest first."""
    if time.verdict not in ("slower", "faster") or physical.terms.empty:
        return ()
    sign = 1.0 if time.log_ratio > 0 else -1.0
    terms = physical.terms.assign(towards=physical.terms["log_ratio"] * sign)
    limit = SMALL * float(terms["towards"].abs().max())
    found = []
    for heading, chosen in (
        (f"makes it {time.verdict}", terms[terms["towards"] > limit]),
        ("works against that", terms[terms["towards"] < -limit]),
    ):
        parts = [_term(row, physical.by_kernel) for row in chosen.to_dict(orient="records")[:MOST]]
        if parts:
            found.append(f"{heading}: {'; '.join(parts)}")
    return tuple(found)


def _term(row: dict[object, object], pieces: pd.DataFrame) -> str:
    term, factor = str(row["term"]), float(str(row["factor"]))
    mine = pieces[pieces["term"] == term]
    said = f"{term} x{factor:.2f}"
    if mine.empty:
        return said
    piece = mine.iloc[int(mine["log_ratio"].abs().to_numpy().argmax())]
    before, after = float(piece["baseline"]), float(piece["target"])
    if term in (VANISHED, APPEARED):
        total = float(mine["baseline" if term == VANISHED else "target"].sum())
        largest = mine.loc[mine["log_ratio"].abs().sort_values(ascending=False).index, "kernels"]
        names = ", ".join(map(str, largest.head(MOST)))
        return f"{said} ({total:.3g} us: {names})"
    if term in _SAID:
        return f"{said} ({_SAID[term].format(before=before, after=after)})"
    if row["residual"]:
        return f"{said} (an unexplained rest)"
    return f"{said} ({before:.3g} -> {after:.3g})"
