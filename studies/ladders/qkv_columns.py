"""The columns that the QKV ladder is read by: instructions, L1 requests, L1-L2 traffic, bars."""

from __future__ import annotations

import math
import re
from typing import Any

import pandas as pd

from collectors.workloads import workload
from perfml.errors import PerfmlError
from perfml.explain import known_peaks
from studies.workloads.qkv.shapes import SHAPES, Shape

CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_global_op_ld.sum"
"""Not in perfml's catalogue: `perfml ingest --raw` keeps it."""
METRICS = (
    "inst_executed",
    "ipc",
    "gld_transactions",
    "gld_transactions_per_request",
    "l2_global_load_bytes",
    "l2_local_global_store_bytes",
)
COLUMNS = {
    "insn_per_iteration": "/itr",
    "issue": "issue %",
    "sectors_per_request": "SW",
    "conflicts_per_request": "BXW",
    "cycles_per_request": "cyc/req",
    "reads": "N-Rd",
    "writes": "N-Wr",
    "gb_per_s": "GB/s",
    "time_us": "t/us",
    "fp": "FP %",
    "insn": "insn %",
    "data": "data %",
    "bars": "FP+ insn- data*",
}
NEEDED = 3
"""Instructions an iteration cannot do without: two loads and a multiply-add."""
LANES = 32
_LAYER = re.compile(r"([a-z]+)_w([1-9][0-9]*)(?:_n[1-9][0-9]*)?")
SCHEDULERS = 4
"""Of a multiprocessor since Volta; each issues an instruction a cycle at most. A block of fewer
warps leaves some of them idle, which ``issue_slot_utilization`` does not count."""


def qkv_columns(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return one row a version and layer, in the order of the ladder; empty without such layers.

    Parameters
    ----------
    kernels
        Kernels table of the workload qkv with `METRICS`; columns whose metric is missing are NaN.
    """
    rows = []
    keys = ["backend", "precision", "layer"]
    for (backend, precision, layer), some in kernels.groupby(keys, sort=False):
        parsed = parse_layer(str(layer))
        if parsed is None:
            continue
        whole = some.groupby(["run_id", "iteration"])["time_us"].sum()
        row = {"backend": backend, "precision": precision, "layer": layer, "warps": parsed[1]}
        means = {name: _mean(some, name) for name in (*METRICS, CONFLICTS)}
        rows.append(
            row | _row(parsed[0], float(whole.median()), means, str(some["device"].iloc[0]))
        )
    order = {name: place for place, name in enumerate(workload("qkv").backends())}
    rows.sort(key=lambda row: order.get(row["backend"], len(order)))
    return pd.DataFrame(rows)


def _mean(rows: pd.DataFrame, name: str) -> float:
    """Return a launch's mean, summed over the launches of an iteration where it is a count."""
    if name not in rows.columns:
        return math.nan
    values = pd.to_numeric(rows[name], errors="coerce")
    launches = rows.groupby(["run_id", "iteration"]).size().median()
    additive = name in (CONFLICTS, "inst_executed", "gld_transactions") or name.endswith("bytes")
    return float(values.mean() * (launches if additive else 1))


def _row(shape: Any, time_us: float, of: dict[str, float], device: str) -> dict[str, Any]:
    per_iteration = of["inst_executed"] * LANES / shape.iterations
    requests = of["gld_transactions"] / of["gld_transactions_per_request"]
    read, written = of["l2_global_load_bytes"], of["l2_local_global_store_bytes"]
    seconds = time_us * 1e-6
    fp = insn = data = math.nan
    try:
        peaks = known_peaks(device, "data sheet").values
        fp = 2 * shape.iterations / peaks["fp32"] / seconds
        data = (shape.read_bytes + shape.write_bytes) / peaks["dram"] / seconds
    except (PerfmlError, KeyError):
        pass  # an unknown device has no bars of these two
    if per_iteration > 0:
        insn = of["ipc"] / SCHEDULERS * min(1.0, NEEDED / per_iteration)
    return {
        "insn_per_iteration": per_iteration,
        "issue": 100 * of["ipc"] / SCHEDULERS,
        "sectors_per_request": of["gld_transactions_per_request"],
        "conflicts_per_request": of[CONFLICTS] / requests,
        "cycles_per_request": of["inst_executed"] / of["ipc"] / requests,
        "reads": read / shape.read_bytes,
        "writes": written / shape.write_bytes,
        "gb_per_s": (read + written) / seconds / 1e9,
        "time_us": time_us,
        "fp": 100 * fp,
        "insn": 100 * insn,
        "data": 100 * data,
        "bars": bars({"+": fp, "-": insn, "*": data}),
    }


def bars(shares: dict[str, float], width: int = 24) -> str:
    """Draw shares of a whole as one line: a mark reaches as far as its share, shorter ones on top.

    Examples
    --------
    >>> bars({"+": 0.25, "-": 0.75, "*": 0.5}, width=8)
    '++**--'
    """
    line = ""
    known = {mark: share for mark, share in shares.items() if math.isfinite(share)}
    for mark, share in sorted(known.items(), key=lambda each: each[1]):
        line += mark * (min(width, round(share * width)) - len(line))
    return line


def parse_layer(name: str) -> tuple[Shape, int] | None:
    """Return shape and warps a block of a layer's name; None if it is no layer of this workload."""
    match = _LAYER.fullmatch(name)
    if match is None or match[1] not in SHAPES:
        return None
    return SHAPES[match[1]], int(match[2])
