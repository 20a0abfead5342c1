"""What Nsight Compute's sections call a metric, unless told ``--print-metric-name name``."""

from __future__ import annotations

from typing import Any

import numpy as np

LABELS = {
    "Duration": "gpu__time_duration.sum",
    "Achieved Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "Compute (SM) Throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "SM [%]": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "DRAM Throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "L1/TEX Hit Rate": "l1tex__t_sector_hit_rate.pct",
    "L2 Hit Rate": "lts__t_sector_hit_rate.pct",
    "Executed Ipc Active": "sm__inst_executed.avg.per_cycle_active",
    "Issued Ipc Active": "sm__inst_issued.avg.per_cycle_active",
    "Executed Instructions": "smsp__inst_executed.sum",
    "Issued Instructions": "smsp__inst_issued.sum",
    "Branch Efficiency": "smsp__sass_average_branch_targets_threads_uniform.pct",
    "Registers Per Thread": "launch__registers_per_thread",
    "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
    "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
    "Threads": "launch__thread_count",
    "Waves Per SM": "launch__waves_per_multiprocessor",
}
"""Only labels that mean one metric in whatever section they stand."""

_THREADS = "smsp__thread_inst_executed_per_inst_executed"
_THREADS_LABEL = "Avg. Active Threads Per Warp"
_WARP = 32.0


def metric_of(label: str) -> str:
    """Return ncu's name of what a section calls `label`; the label itself if it is not known.

    Examples
    --------
    >>> metric_of("Duration"), metric_of("dram__bytes.sum")
    ('gpu__time_duration.sum', 'dram__bytes.sum')
    """
    return f"{_THREADS}.ratio" if label == _THREADS_LABEL else LABELS.get(label, label)


def add_warp_size(columns: dict[str, Any], rows: int) -> None:
    """Add what the number of active threads is a part of, which no section shows."""
    if f"{_THREADS}.ratio" in columns:
        columns[f"{_THREADS}.max_rate"] = np.full(rows, _WARP)
