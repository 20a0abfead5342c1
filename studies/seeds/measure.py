"""Measure on a GPU what the four documents claim and the ladders' datasets do not hold yet.

From the repository's root, on a machine with torch, cupy, nvcc and Nsight Compute::

    PYTHONPATH=. python3 -m studies.seeds.measure --out OUT --seconds 190

Runs go one after another, the most telling first, and none is begun that would not end in time.
Every kernel is compared with its reference before it is measured. OUT gets ``seeds.tar.xz``: the
runs, the JSON of `totals`, and what was done in ``state.json``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from studies.ladders.recording import KEPT, Recording, Wanted

PACKED = "seeds.tar.xz"
CONFLICTS = (
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
)
"""Of shared memory: what padding is there for. Not in perfml's catalogue."""
L1 = ("l1tex__data_pipe_lsu_wavefronts.sum", "smsp__sass_l1tex_tags_mem_global.sum")
"""Rounds of L1's data and its tag look-ups: a kernel without shared memory has one round a request
where no two of its sectors collide."""
COMMON = (
    "published", "ldgsts_efficiency", "stalls", "roofline", "issue_slot_utilization",
    "sm_efficiency", "ipc", "global_load_requests", "gld_transactions_per_request",
)  # fmt: skip
SHARED = ("shared_load_transactions_per_request", "global_hit_rate", *CONFLICTS)
QKV = (
    "global_store_requests", "l2_global_load_bytes", "l2_local_global_store_bytes",
    "global_hit_rate", *L1,
)  # fmt: skip
TENSOR = ("sizes=48x1600x64,48x6400x64",)
THESIS = ",".join(
    f"q32_kv64{each}"
    for each in ("", "_through_l1", "_no_pad", "_no_pad_through_l1", "_thesis_flags")
)
VARIANTS = ("sizes=48x6400x64", f"variants={THESIS}")
FEW = ("shapes=small,large", "warps=4,32")
IMAGES = ("sizes=conv1_b1000,conv2_b1000",)
RECORDINGS = {
    "attention": Recording("attention", (), (*COMMON, *SHARED), metric_iterations=1),
    "conv": Recording("conv", (), (*COMMON, *SHARED), metric_iterations=1, settings=IMAGES),
    "qkv": Recording("qkv", (), (*COMMON, *QKV), metric_iterations=1, settings=FEW),
}


@dataclass(frozen=True)
class Part:
    """One thing to measure.

    Attributes
    ----------
    name
        Of the workload, or of a part of `totals`.
    seconds
        What it takes at most on an H200, for the decision whether to begin it.
    run
        What to collect; None for a part of `totals`.
    """

    name: str
    seconds: float
    run: Wanted | None = None


PARTS = (
    Part("attention", 30, Wanted("wmma", "fp16", settings=VARIANTS)),
    Part("qkv", 25, Wanted("base_lean")),
    Part("qkv", 25, Wanted("strip_lean")),
    Part("qkv", 25, Wanted("base_w2")),
    Part("qkv", 25, Wanted("strip_w2")),
    Part("conv totals", 60),
    Part("attention totals", 60),
    Part("attention", 25, Wanted("triton", "fp16", settings=TENSOR)),
    Part("attention", 25, Wanted("torch-math", "fp16", settings=TENSOR)),
    Part("attention", 25, Wanted("torch-fa2", "fp16", settings=TENSOR)),
    Part("qkv", 25, Wanted("base_lean", settings=(*FEW, "blocks=-2"))),
    Part("conv", 25, Wanted("rolled_tile8")),
    Part("conv", 25, Wanted("constant_tile8")),
    Part("conv", 25, Wanted("rolled_tile32")),
    Part("conv", 25, Wanted("fused_streams")),
    Part("slow totals", 120),
)  # fmt: skip


def command(part: Part, folder: Path, left: float) -> list[str]:
    """Return the command of a part; `folder` gets its files."""
    if part.run is not None:
        return RECORDINGS[part.name].command(part.run, folder / "runs")
    name = part.name.split()[0]
    out = folder / f"{name}.json"
    seconds = f"{min(part.seconds, left):.0f}"
    words = ["-m", "studies.seeds.totals", "--part", name, "--out", str(out), "--seconds", seconds]
    return [sys.executable, *words]


def measure(folder: Path, seconds: float, parts: Sequence[Part] = PARTS) -> list[dict[str, object]]:
    """Run the parts that there is time for; return what became of each."""
    end = time.monotonic() + seconds
    state: list[dict[str, object]] = []
    for part in parts:
        label = f"{part.name} {part.run}" if part.run else part.name
        left = end - time.monotonic()
        if left < part.seconds:
            state.append({"part": label, "what": "no time left"})
            continue
        began = time.monotonic()
        try:
            words = command(part, folder, left)
            done = subprocess.run(words, capture_output=True, text=True, timeout=left, check=False)
            what, told = f"exit {done.returncode}", (done.stdout + done.stderr)[-600:]
        except subprocess.TimeoutExpired:
            what, told = "cut", ""
        took = round(time.monotonic() - began, 1)
        row: dict[str, object] = {"part": label, "what": what, "seconds": took}
        state.append(row | ({"told": told} if what != "exit 0" else {}))
        sys.stdout.write(f"{label}: {what}, {took} s\n{told if what != 'exit 0' else ''}")
        sys.stdout.flush()
    return state


def pack(folder: Path, out: Path) -> None:
    """Write the archive."""
    with tarfile.open(out / PACKED, "w:xz") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and (path.name in KEPT or path.parent == folder):
                archive.add(path, path.relative_to(folder))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if a part failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help=f"folder: gets {PACKED}")
    parser.add_argument("--seconds", type=float, default=190.0, help="nothing ends later")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        state = measure(folder, given.seconds)
        (folder / "state.json").write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
        pack(folder, given.out)
    for row in state:
        sys.stdout.write(f"{row['part']}: {row['what']}\n")
    return 0 if all(row["what"] in ("exit 0", "no time left") for row in state) else 1


if __name__ == "__main__":
    sys.exit(main())
