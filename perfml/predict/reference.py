"""The table that a profile is compared with: the atlas, or any other of many networks."""

from __future__ import annotations

import functools

import pandas as pd

from perfml.datasets import find, read_input
from perfml.datasets.parts import read_parts
from perfml.errors import PerfmlError
from perfml.predict.describe import prepare_layers
from perfml.predict.learned import Kept, folders_of, kept_in

ATLAS = "atlas"
"""The data set that comes with perfml."""


@functools.lru_cache(maxsize=1)
def reference(name: str = ATLAS) -> pd.DataFrame:
    """Return prepared rows to compare with (`perfml.predict.prepare_layers`).

    `name` is ``atlas``, or a Layers table, run or folder of runs of other networks. Raises
    `PerfmlError` if it is no such thing, or does not say what its layers compute.
    """
    folder = find(ATLAS) if name == ATLAS else None
    if folder is not None:
        # without the launches, which take longer to read than all else
        tables = [read_parts(each, "layers") for each in folders_of(folder)]
        parts = [prepare_layers(table.frame, table.provenance) for table in tables]
        if parts:
            return pd.concat(parts, ignore_index=True)
    given = read_input(name)
    rows = prepare_layers(given.layers, given.provenance)
    if rows["kind"].isna().all():
        msg = "this cannot be compared with: it does not say what its layers compute"
        cure = "Runs of perfml collect torch:... do, and tables that were made of them."
        raise PerfmlError(msg, where=name, cure=cure)
    return rows


@functools.lru_cache(maxsize=1)
def kept(name: str = ATLAS) -> Kept | None:
    """Return what was fitted on the whole atlas and is kept beside it; None for other tables.

    Raises `PerfmlError` if it is damaged.
    """
    folder = find(ATLAS) if name == ATLAS else None
    return None if folder is None else kept_in(folder)
