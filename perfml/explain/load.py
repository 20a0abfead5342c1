"""From what a user names to the layers, and where they can be had, the launches behind them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from perfml.datasets.loading import read_given
from perfml.errors import InputError


def load_tables(
    dataset: str | Path, where: Sequence[str] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Load a Kernels or Layers table and the launches behind it.

    Parameters
    ----------
    dataset
        As for `perfml.datasets.load`.
    where
        Conditions ``COLUMN=VALUE`` that rows must meet.

    Returns
    -------
    tuple
        The table (Kernels where no launch has a layer, else Layers, with the shapes of its layers
        where they are known), and the launches, or None.

    Raises
    ------
    PerfmlError
        If it is no such thing, or no row meets a condition.
    """
    given = read_given(dataset, where=where)
    # without ranges the launches are the table; `make_side` makes one layer of them
    return given.table, given.kernels if given.ranged else None


def load_ncu_rules(path: str | Path) -> pd.DataFrame:
    """Return the results of Nsight Compute's own rules in a report or a details page.

    Raises
    ------
    InputError
        If the file is neither, or is damaged.
    """
    from perfml.readers import Source
    from perfml.readers.ncu import csv_page as ncu_csv
    from perfml.readers.ncu import report as ncu_report

    source = Source(Path(path))
    if ncu_report.recognises(source):
        return ncu_report.rules(source)
    if ncu_csv.recognises(source):
        return ncu_csv.rules(source)
    msg = "neither a report nor a details page of Nsight Compute"
    cure = "Export one with: ncu --import FILE.ncu-rep --csv --page details --print-details all"
    raise InputError(msg, where=str(path), cure=cure)
