"""The metric values of an exported nvprof profile, which numbers its metrics and names none.

CUPTI gives a metric another number on every kind of device (the same achieved_occupancy has been
seen as 19923062 on one), and the file maps numbers to names nowhere. The values can be read; what
they measure cannot be known from the file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.errors import InputError
from perfml.readers.sqlite_database import Database

METRIC, METRIC_INSTANCE = "CUPTI_ACTIVITY_KIND_METRIC", "CUPTI_ACTIVITY_KIND_METRIC_INSTANCE"
_UNUSABLE = 0b11
"""CUPTI's flags of a metric: bit 0, a counter overflowed; bit 1, the value is invalid."""
_BYTES = 8


def metric_numbers(profile: Database) -> list[int]:
    """Return the CUPTI numbers of the metrics collected, sorted."""
    numbers: set[int] = set()
    for table in (METRIC, METRIC_INSTANCE):
        numbers |= set(profile.integers(table, ("id",))["id"].tolist())
    return sorted(numbers)


def metric_values(profile: Database, correlations: Sequence[int]) -> pd.DataFrame:
    """Return the values of the metrics that have one a launch.

    Parameters
    ----------
    profile
        The exported profile.
    correlations
        The correlation id of each launch.

    Returns
    -------
    pandas.DataFrame
        One row a launch, in the order of `correlations`; one column ``cupti_metric_NUMBER`` a
        metric, in CUPTI's unit. Missing where a launch has no value, or one that CUPTI calls
        overflowed or invalid. A metric with values per instance of a unit (one a multiprocessor)
        has no column.

    Raises
    ------
    InputError
        If a value is no 8 bytes.
    """
    rows = profile.integers(METRIC, ("id", "correlationId", "flags"))
    rows["value"] = _decoded(profile.frame(METRIC, ("value",))["value"].tolist(), profile.where)
    rows["value"] = rows["value"].where(rows["flags"] & _UNUSABLE == 0)
    rows = rows.drop_duplicates(["correlationId", "id"])
    table = rows.pivot_table(
        index="correlationId", columns="id", values="value", aggfunc="first", dropna=False
    )
    table = table.reindex(list(correlations)).reset_index(drop=True)
    table.columns = pd.Index([f"cupti_metric_{number}" for number in table.columns])
    return table.astype(float)


def _decoded(cells: Sequence[object], where: str) -> npt.NDArray[np.float64]:
    """Return stored values, each a double or an unsigned integer of 64 bits, as numbers.

    The file does not say which. Counts are below 2**52, whose bits as a double are subnormal
    (below 1e-307): no ratio, percentage or rate is, so each is read as what it can be.
    """
    values = [cell for cell in cells if isinstance(cell, bytes) and len(cell) == _BYTES]
    if len(values) < len(cells):
        wrong = next(cell for cell in cells if cell not in values)
        msg = f"a value of {METRIC} is no {_BYTES} bytes"
        cure = "The file is damaged; export the profile again."
        raise InputError(msg, where=where, found=repr(wrong)[:80], cure=cure)
    stored = b"".join(values)
    doubles = np.frombuffer(stored, dtype="<f8")
    integers = np.frombuffer(stored, dtype="<u8").astype(float)
    numbers = np.where(np.abs(doubles) < np.finfo(float).tiny, integers, doubles)
    return np.where(np.isfinite(numbers), numbers, np.nan)
