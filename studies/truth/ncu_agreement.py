"""The results of Nsight Compute's own rules in a report or a details page."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from perfml.errors import InputError

ASKING = ("optimization", "warning")
"""Kinds of results that ask for something; the others inform."""


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
