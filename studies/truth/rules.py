"""What Nsight Compute's own rules say of the slow launches that were recorded."""

from __future__ import annotations

import lzma
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from studies.truth.ncu_agreement import load_ncu_rules
from studies.truth.scores import GENERAL


@dataclass(frozen=True)
class Remark:
    """A result of a rule.

    Attributes
    ----------
    text
        ``RULE: message``.
    speedup
        Estimated, as a fraction of the launch's time; None where the rule gives none.
    """

    text: str
    speedup: float | None


def planted_remarks(folder: Path) -> dict[str, tuple[Remark, ...]]:
    """Return the remarks on each layer of a dataset: those on its longest launch."""
    names = [f"rules_{page}.csv.xz" for page in ("raw", "details")]
    # a data set may hold another one in a folder of its own
    packed = [sorted(folder.glob(name)) or sorted(folder.rglob(name)) for name in names]
    return _on_longest(*(found[0] for found in packed)) if all(packed) else {}


def exam_remarks(folder: Path) -> dict[str, tuple[Remark, ...]]:
    """Return the remarks on the slow side of each pair of an exam: those on its longest launch.

    Only the page of details was kept of an exam; it says the launches' times, too.
    """
    packed = sorted(folder.glob("rules_*.csv.xz"))
    return _on_longest(packed[0], packed[0]) if packed else {}


def _on_longest(raw: Path, details: Path) -> dict[str, tuple[Remark, ...]]:
    from perfml.ingest.profiles import ingest

    with tempfile.TemporaryDirectory() as place:
        texts = []
        for found in (raw, details):
            texts.append(Path(place) / found.name.removesuffix(".xz"))
            texts[-1].write_bytes(lzma.decompress(found.read_bytes()))
        kernels, results = ingest([texts[0]]).frame, load_ncu_rules(texts[1])
    longest = kernels.groupby(kernels["layer"].astype(str))["time_us"].idxmax()
    return {str(layer): _remarks(results, int(launch)) for layer, launch in longest.items()}


def report_remarks(path: Path, launch: int) -> tuple[Remark, ...]:
    """Return the remarks on a launch of a report."""
    return _remarks(load_ncu_rules(path), launch)


def _remarks(results: pd.DataFrame, launch: int) -> tuple[Remark, ...]:
    """Return results that ask for something, the largest speedup first.

    Remarks on a symptom (all pipes are idle) are passed over, as a reader may.
    """
    mine = results[
        (results["launch"] == launch)
        & results["kind"].isin(["optimization", "warning"])
        & ~results["rule"].isin([*GENERAL, "MemoryL2Compression"])
    ]
    speedups = pd.to_numeric(mine["speedup"], errors="coerce")
    order = speedups.fillna(-1.0).sort_values(ascending=False, kind="stable").index
    return tuple(
        Remark(
            f"{mine.at[row, 'rule']}: {mine.at[row, 'message']}",
            None if pd.isna(speedups[row]) else float(speedups[row]) / 100,
        )
        for row in order
    )
