"""Make ``studies/data/h200-ladders`` of runs: a table of launches a ladder, recorded as a whole.

``python -m studies.ladders.pack RUNS [--out studies/data/h200-ladders]``

What belongs to a ladder says its ``datasets/h200-NAME/sweep.yaml``; runs of no sweep are left out.
Names of machines and folders are struck out (`perfml.datasets.redact`); what was checked, and how
well it passed, stays in the table's provenance.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from collectors.sweep import read_sweep
from perfml.datasets.redact import redact_table
from perfml.ingest.profiles import IngestSettings, ingest
from perfml.readers.options import ReadOptions
from perfml.tables import Table, write_table

ROOT = Path(__file__).resolve().parents[2]
LADDERS = ("attention", "conv", "qkv")
OUT = ROOT / "studies/data/h200-ladders"
RAW = (
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
    "l1tex__data_pipe_lsu_wavefronts.sum",
    "smsp__sass_l1tex_tags_mem_global.sum",
)
"""Counters under the profiler's name that the sweeps ask for; all others have perfml's."""


@dataclass(frozen=True)
class Version:
    """What a run measured: ids of runs change with the metrics that a set has."""

    backend: str
    precision: str
    settings: tuple[str, ...]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Version:
        """Return that of a run's manifest."""
        words = record["options"]["workload_options"]
        pairs = tuple(sorted(each for each in words if each != "--set"))
        return cls(record["backend"], record["precision"], pairs)


def wanted(ladder: str) -> list[Version]:
    """Return what belongs to a ladder, in the order of its sweep."""
    runs = read_sweep(ROOT / "studies/data" / f"h200-{ladder}" / "sweep.yaml").runs.values()
    return [
        Version.of(
            {
                "backend": run.backend,
                "precision": run.precision,
                "options": run.settings.as_dict(),
            }
        )
        for run in runs
    ]


def packed(runs: Path, ladder: str) -> tuple[Table, list[Version]]:
    """Return the launches of a ladder, and what of it is not there."""
    there = {}
    for path in sorted(runs.glob(f"{ladder}-*/run.json")):
        there[Version.of(json.loads(path.read_text(encoding="utf-8")))] = path.parent
    versions = wanted(ladder)
    found = ingest(
        [there[each] for each in versions if each in there],
        settings=IngestSettings(options=ReadOptions(raw=True)),
    )
    names = [name for name in found.frame.columns if "__" not in name or name in RAW]
    frame = found.frame[names].dropna(axis="columns", how="all").reset_index(drop=True)
    table, _ = redact_table(Table(frame, "kernels", found.provenance))
    return table, [each for each in versions if each not in there]


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack; return 1 if a run is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    absent: list[Version] = []
    for ladder in LADDERS:
        table, missing = packed(given.runs, ladder)
        absent += missing
        path = given.out / f"{ladder}.parquet"
        write_table(table.frame, path, kind="kernels", provenance=table.provenance)
        runs = pd.unique(table.frame["run_id"]).size
        size = path.stat().st_size / 2**20
        sys.stdout.write(f"{path.name}: {runs} runs, {len(table.frame)} launches, {size:.2f} MiB\n")
    for each in absent:
        sys.stdout.write(f"not there: {each}\n")
    return int(bool(absent))


if __name__ == "__main__":
    sys.exit(main())
