"""Record this dataset.

From the repository's root, on a machine with an H200 (or several)::

    PYTHONPATH=. python3 studies/data/h200-qkv/record.py --out OUT --runs /tmp/h200-qkv

Every version is compared with its reference first, and measured only if it is right. Ends with the
ladder's tables. Finished runs are kept in ``--runs``: a second call does what is missing.
"""

from __future__ import annotations

import sys

from studies.ladders.recording import Recording, Wanted, main

RECORDING = Recording(
    workload="qkv",
    runs=tuple(
        Wanted(name)
        for name in ("base", "base_w2", "strip", "strip_w2", "base_lean", "strip_lean", "cublas")
    ),
    metrics=(
        "published",
        "ldgsts_efficiency",
        "stalls",
        "roofline",
        "issue_slot_utilization",
        "sm_efficiency",
        "ipc",
        "global_load_requests",
        "global_store_requests",
        "gld_transactions_per_request",
        "l2_global_load_bytes",
        "l2_local_global_store_bytes",
        "global_hit_rate",
        # what the seed's table calls BXW; not in perfml's catalogue, so under the profiler's name.
        # An H200 does not deliver the first; the second gives it as rounds a request.
        "l1tex__data_bank_conflicts_pipe_lsu_mem_global_op_ld.sum",
        "l1tex__data_pipe_lsu_wavefronts.sum",
    ),
    shown=("small_w16", "large_w16"),
    metric_iterations=1,
)

if __name__ == "__main__":
    sys.exit(main(RECORDING))
