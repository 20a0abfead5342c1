"""Write a table in several files, as `perfml.datasets.table_files` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.datasets.table_files import part_files
from perfml.errors import InputError
from perfml.tables import write_table

LARGEST = 4 << 20
"""Bytes that a part has at most."""


def write_parts(
    frame: pd.DataFrame,
    folder: Path,
    *,
    kind: str,
    provenance: Mapping[str, Any],
    largest: int = LARGEST,
) -> list[Path]:
    """Write a table in parts of whole runs, none larger than `largest` bytes.

    Parts of an older table in the folder are removed once all new ones are written.

    Raises
    ------
    InputError
        If a single run is larger, or there would be more than a hundred parts.
    """
    old = set(part_files(folder, kind))
    runs = list(dict.fromkeys(frame["run_id"]))
    manifests = {run.get("run_id"): run for run in provenance.get("runs", [])}
    shared = {name: value for name, value in provenance.items() if name != "runs"}
    written: list[Path] = []
    while runs:
        path = folder / f"{kind}-{len(written):02d}.parquet"
        fitting = len(runs)
        while True:
            chosen = runs[:fitting]
            told = {**shared, "runs": [manifests[run] for run in chosen if run in manifests]}
            rows = frame[frame["run_id"].isin(chosen)].reset_index(drop=True)
            write_table(rows, path, kind=kind, provenance=told)
            size = path.stat().st_size
            if size <= largest:
                break
            if fitting == 1 or len(written) > 98:
                path.unlink()
                msg = "a part would be too large"
                found = f"{size / 2**20:.1f} MiB for {fitting} runs"
                raise InputError(msg, where=str(path), found=found, cure="Keep fewer columns.")
            # a little below what the measured size promises, so that one try more is enough
            fitting = max(1, min(fitting - 1, int(fitting * largest / size * 0.95)))
        written.append(path)
        runs = runs[fitting:]
    for path in old - set(written):
        path.unlink()
    return written
