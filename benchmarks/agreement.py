"""How far counters through CUPTI agree with Nsight Compute's, metric by metric.

``python -m benchmarks.agreement --iterations A.csv --again B.csv --ncu C.csv --flushed D.csv``
reads tables of the same network, measured in one run of the machine: through CUPTI by iterations,
once more, and by Nsight Compute with ``--cache-control none`` and ``all``. ``--out`` keeps the
result as JSON; `benchmarks.counters_page` writes it into the page.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from collectors.profilers.cupti import COMPUTED
from perfml.kernel_names import function_name
from perfml.readers import ReadOptions, read
from perfml.util.files import write_text

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "agreement-h200.json"

PAIRS = {
    "iterations to ncu, no flush": ("iterations", "ncu"),
    "iterations to ncu, flush": ("iterations", "flushed"),
    "ncu, flush to no flush": ("ncu", "flushed"),
    "iterations, repeated": ("iterations", "again"),
}
"""What is compared: relative differences, of the larger of the two."""

SUMS = {
    "kernel time, us": ("gpu__time_duration.sum", 1e-3),
    "read from device memory, MB": ("dram__bytes_read.sum", 1e-6),
    "written to device memory, MB": ("dram__bytes_write.sum", 1e-6),
}

Numbers = npt.NDArray[np.float64]


def _begins(*words: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(words)


CLASSES: dict[str, Callable[[str], bool]] = {
    "of instrumented code (`smsp__sass_...`)": lambda name: "__sass_" in name,
    "that count work: instructions, requests and sectors of L1, shared wavefronts": lambda name: (
        name.endswith(".sum")
        and name.startswith(("smsp__inst_executed", "l1tex__t_", "l1tex__data_pipe"))
    ),
    "occupancy achieved": _begins("sm__warps_active"),
    "duration": _begins("gpu__time_duration"),
    "L2 sectors": lambda name: name.startswith("lts__t_sectors_op"),
    "reasons to stall": _begins("smsp__warp_issue_stalled"),
    "device memory": _begins("dram__"),
    "rates: how busy units are, instructions a cycle, cycles": lambda name: True,
}
"""Kinds of metrics, the first that fits; what is no ``.sum`` of these is a rate."""


def kind_of(metric: str) -> str:
    """Return the kind of a metric, a key of `CLASSES`."""
    return next(kind for kind, fits in CLASSES.items() if fits(metric))


def table_of(path: Path) -> pd.DataFrame:
    """Return the launches of the first measured iteration of a table, under raw names."""
    frame: pd.DataFrame = read(path, ReadOptions(raw=True)).frame
    iterations = frame["iteration"]
    first: pd.DataFrame = frame[iterations.isna() | (iterations == iterations.min())]
    return first.reset_index(drop=True)


def difference(left: Numbers, right: Numbers) -> Numbers:
    """Return relative differences of launches for which the two are known and not both zero."""
    larger = np.fmax(np.abs(left), np.abs(right))
    known = np.isfinite(left) & np.isfinite(right) & (larger > 0)
    return np.asarray(np.abs(left - right)[known] / larger[known])


def compare(tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Return what `main` keeps.

    Parameters
    ----------
    tables
        ``iterations``, ``again``, ``ncu`` and ``flushed``.

    Raises
    ------
    ValueError
        If two tables do not have the same kernels in the same order.
    """
    kernels = {name: frame["kernel"].map(function_name).tolist() for name, frame in tables.items()}
    for name, each in kernels.items():
        if each != kernels["iterations"]:
            msg = f"other kernels in {name}: {len(each)} and {len(kernels['iterations'])} launches"
            raise ValueError(msg)
    shared = set.intersection(*(set(frame.columns) for frame in tables.values()))
    names = [
        name
        for name in tables["iterations"].columns
        if name in shared
        and "__" in name
        and not name.startswith("launch__")
        and name not in COMPUTED
    ]
    metrics: dict[str, dict[str, list[float] | int]] = {}
    each_of: dict[str, dict[str, list[Numbers]]] = {}
    for name in names:
        row: dict[str, list[float] | int] = {}
        for pair, (one, other) in PAIRS.items():
            values = [tables[side][name].to_numpy(dtype=float) for side in (one, other)]
            apart = difference(values[0], values[1])
            each_of.setdefault(kind_of(name), {}).setdefault(pair, []).append(apart)
            row["launches"] = len(apart)
            row[pair] = [_rounded(np.median(apart)), _rounded(apart.max())] if len(apart) else []
        metrics[name] = row
    kinds = {}
    for kind, pairs in each_of.items():
        together = {pair: np.concatenate(parts) for pair, parts in pairs.items()}
        kinds[kind] = {
            "metrics": sum(kind_of(name) == kind for name in names),
            **{
                pair: [_rounded(np.median(each)), _rounded(each.max())] if len(each) else []
                for pair, each in together.items()
            },
        }
    sums = {
        what: {side: round(float(tables[side][name].sum()) * scale, 1) for side in tables}
        for what, (name, scale) in SUMS.items()
    }
    launches = len(tables["iterations"])
    return {"launches": launches, "kinds": kinds, "sums": sums, "metrics": metrics}


def _rounded(value: float) -> float:
    return float(f"{value:.2g}")


def _cell(numbers: Sequence[float]) -> str:
    if not numbers:
        return "all 0"
    return _shown(numbers[0]) if numbers[1] >= 1e-3 else "0"


def kinds_table(result: Mapping[str, Any]) -> str:
    """Return the table of kinds of metrics: medians, and 0 for no difference above 0.001."""
    lines = [f"| metrics | {' | '.join(PAIRS)} |", "|---|" + "---|" * len(PAIRS)]
    for kind in (kind for kind in CLASSES if kind in result["kinds"]):
        row = result["kinds"][kind]
        cells = [_cell(row[pair]) for pair in PAIRS]
        lines.append(f"| {row['metrics']} {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def metrics_table(result: Mapping[str, Any]) -> str:
    """Return the table of metrics: median and largest difference; then those that are all 0."""
    head = "metric | launches | " + " | ".join(PAIRS)
    lines = [f"| {head} |", "|---|" + "---|" * (1 + len(PAIRS))]
    metrics = result["metrics"]
    for kind in CLASSES:
        for name in (name for name in sorted(metrics) if kind_of(name) == kind):
            row = metrics[name]
            if not row["launches"]:
                continue
            cells = [" / ".join(map(_shown, row[pair])) for pair in PAIRS]
            lines.append(f"| `{name}` | {row['launches']} | {' | '.join(cells)} |")
    silent = sorted(f"`{name}`" for name, row in metrics.items() if not row["launches"])
    return "\n".join([*lines, "", f"0 in every launch, everywhere: {', '.join(silent)}."])


def _shown(number: float) -> str:
    return "0" if number < 1e-6 else f"{number:.2g}" if number >= 1e-3 else f"{number:.0e}"


def sums_table(result: Mapping[str, Any]) -> str:
    """Return the sums over the network."""
    lines = ["| | iterations | ncu, no flush | ncu, flush |", "|---|---|---|---|"]
    for what, row in result["sums"].items():
        cells = [f"{row[side]:,.1f}" for side in ("iterations", "ncu", "flushed")]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, keep and show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for side in ("iterations", "again", "ncu", "flushed"):
        parser.add_argument(f"--{side}", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    sides = {side: getattr(given, side) for side in ("iterations", "again", "ncu", "flushed")}
    result = compare({side: table_of(path) for side, path in sides.items()})
    write_text(given.out, json.dumps(result) + "\n")
    print(kinds_table(result), sums_table(result), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
