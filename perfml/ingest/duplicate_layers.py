"""Layers that were measured once for several (``perfml collect --dedupe``) become rows again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

OCCURRENCE = re.compile(r"#\d+$")
"""What tells the second and later entry of a range within an iteration apart."""


def expand_twins(frame: pd.DataFrame, record: dict[str, Any]) -> pd.DataFrame:
    """Return measured launches with a row for every twin they stand for.

    Parameters
    ----------
    frame
        Kernels table of the measured launches.
    record
        What `DuplicateLayers.as_dict` gave, from the run's ``run.json``.

    Returns
    -------
    DataFrame
        The launches of each measured layer again under the name of each of its twins, with the
        column ``stands_for``: how many timed launches the measurement stands for.
    """
    import pandas as pd

    base = frame["layer"].astype("string").str.replace(OCCURRENCE, "", regex=True)
    measured = set(base.dropna())
    repeats = record["stands_for"] / max(
        1, sum(int((base == name).sum()) * len(each) for name, each in record["groups"].items())
    )
    parts = [frame.assign(stands_for=pd.array([1] * len(frame), dtype="Int64"))]
    for layer, members in record["groups"].items():
        rows = frame[base == layer]
        count = round(len(members) * repeats)
        parts[0].loc[base == layer, "stands_for"] = count
        for twin in members[1:]:
            if twin in measured:
                continue
            copy = rows.assign(stands_for=pd.array([count] * len(rows), dtype="Int64"))
            copy["layer"] = rows["layer"].str.replace(layer, twin, regex=False)
            parts.append(copy)
    whole = pd.concat(parts, ignore_index=True)
    whole["kernel_index"] = whole.groupby("iteration").cumcount()
    return whole
