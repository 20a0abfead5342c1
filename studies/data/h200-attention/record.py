"""Record this dataset: the fp32 ladder, tensor-core kernels and PyTorch's attention.

From the repository's root, on a machine with an H200 (or several)::

    PYTHONPATH=. python3 studies/data/h200-attention/record.py --out OUT --runs /tmp/h200-attention

Every version is compared with its reference first, and measured only if it is right. Ends with the
ladder's tables. Finished runs are kept in ``--runs``: a second call does what is missing.

Took 354 s on one H200 (2026-11-21): 319 for the runs, 15 to 21 each, 7 to 11 of them for the timing
pass; the rest was for compiling and the checks, which are now part of each run.
"""

from __future__ import annotations

import sys

from studies.ladders.recording import Recording, Wanted, main

SIZES = ("sizes=48x1600x64,48x6400x64,48x25600x64,48x6400x128",)
"""Of the tensor-core kernels; layers have no names of variants, so they align over backends."""
TILES = ("sizes=48x6400x64", "variants=q16_kv64,q32_kv64,q48_kv64,q64_kv64")
CONSUMERS = ("sizes=48x6400x64", "variants=kv128_c3_turns,kv128_c3,kv128_c2_turns")
FAST = "b1360_n128_d32|b50_n512_d64"
"""Where one block for all tiles of Q takes milliseconds: every pass repeats it."""

RECORDING = Recording(
    workload="attention",
    runs=(
        Wanted("no_conflicts"),
        Wanted("q_registers"),
        Wanted("o_registers"),
        Wanted("lm_registers"),
        Wanted("wmma", "fp16", settings=SIZES),
        Wanted("mma", "fp16", settings=SIZES),
        Wanted("wgmma", "fp16", settings=SIZES),
        Wanted("torch-fa2", "fp16", settings=SIZES),
        Wanted("torch-cudnn", "fp16", settings=SIZES),
        Wanted("wmma", "fp16", settings=TILES),
        Wanted("wgmma", "fp16", settings=CONSUMERS),
        Wanted("coalesced"),
        Wanted("restructured"),
        Wanted("float4"),
        Wanted("split_q"),
        Wanted("separate"),
        Wanted("shared_48k", layers=FAST),
        Wanted("fused", layers=FAST),
    ),
    metrics=(
        "published",
        "ldgsts_efficiency",
        "stalls",
        "roofline",
        "tensor_utilization",
        "issue_slot_utilization",
        "sm_efficiency",
        "ipc",
        "global_load_requests",
        "gld_transactions_per_request",
        "shared_load_transactions_per_request",
    ),
    settings=("sizes=small",),
    shown=("b10_n1024_d64", "b48_n6400_d64"),
    metric_iterations=1,
)

if __name__ == "__main__":
    sys.exit(main(RECORDING))
