"""Record this dataset.

From the repository's root, on a machine with an H200 (or several)::

    PYTHONPATH=. python3 studies/data/h200-conv/record.py --out OUT --runs /tmp/h200-conv

Every version is compared with its reference first, and measured only if it is right. Ends with the
ladder's table. Finished runs are kept in ``--runs``: a second call does what is missing.
"""

from __future__ import annotations

import sys

from studies.ladders.recording import Recording, Wanted, main

RECORDING = Recording(
    workload="conv",
    runs=(
        Wanted("fused"),
        Wanted("restrict"),
        Wanted("wmma_tf32", "tf32"),
        Wanted("wmma_fp16", "fp16"),
        Wanted("cudnn"),
        Wanted("cudnn", "tf32"),
        Wanted("cudnn", "fp16"),
        Wanted("unroll"),
        # twelve launches a layer: counters of one batch are enough
        Wanted("streams", layers="conv[12]_b1000"),
        Wanted("constant"),
        Wanted("tile8"),
        Wanted("tile32"),
        Wanted("rolled"),
        Wanted("unrolled"),
        Wanted("fused_streams", layers="conv[12]_b1000"),
        Wanted("rolled_tile8"),
        Wanted("rolled_tile32"),
        Wanted("constant_tile8"),
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
        "global_hit_rate",
    ),
    shown=("conv1_b1000", "conv2_b1000", "yolo20_b1"),
    metric_iterations=1,
)

if __name__ == "__main__":
    sys.exit(main(RECORDING))
