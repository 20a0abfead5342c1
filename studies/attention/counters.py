"""Tables of RESULTS.md that rest on counters: steps, and what stands behind them."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path

from perfml.datasets import load
from perfml.explain import explain, load_tables, make_side
from perfml.util.words import Readable
from studies.ladders import measure as steps_of
from studies.ladders.reasons import because, causes_in_words
from studies.page_tables import markdown
from studies.workloads.attention.variants import LADDER, VARIANTS

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "studies/data/h200-attention"
PROFILED = ("b50_n512_d64", "b1360_n128_d32")
"""Sizes of the ladder: one with fewer blocks than fit on the GPU, one with enough."""
TENSOR = ("b48_n25600_d64", "b48_n6400_d128")
KERNELS = ("wmma", "mma", "wgmma", "torch-fa2", "torch-cudnn")
PAIRS = "wmma:mma,mma:wgmma,torch-fa2:wmma,torch-fa2:wgmma,torch-cudnn:wgmma,torch-fa2:torch-cudnn"
VERSIONS = "b48_n6400_d64"
"""Size at which versions of a kernel were profiled: a layer each, named after the version."""
VERSION_STEPS = (
    ("wmma", "q16_kv64", "q32_kv64"),
    ("wmma", "q32_kv64", "q48_kv64"),
    ("wmma", "q48_kv64", "q64_kv64"),
    ("wgmma", "kv128_c2_turns", "kv128_c3_turns"),
    ("wgmma", "kv128_c3", "kv128_c3_turns"),
)
PRODUCTS = 4096
"""fp16 operations a multiprocessor's tensor cores can do in a cycle."""
MULTIPROCESSORS = 132


@functools.cache
def rows_of(layer):
    """Return the means of a layer's metrics and the medians of its times, a row a backend."""
    frame = load(DATA).frame
    found = frame[frame["layer"] == layer].groupby("backend").mean(numeric_only=True)
    found["time_us"] = frame[frame["layer"] == layer].groupby("backend")["time_us"].median()
    return found


@functools.cache
def recorded_variants():
    """Return what was the default when a backend was recorded: backend, layer, variant."""
    found = {name: {} for name in VARIANTS}
    for path in sorted((DATA / "runs").glob("*/run.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["backend"] in found:
            kernels = record["settings"]["kernels"].items()
            found[record["backend"]] |= {layer: about["variant"] for layer, about in kernels}
    return found


def _step(row, where, names, count=1):
    first = row["because"] if count == 1 else "; ".join(row["speaking"][:count])
    return [
        *where,
        names,
        f"{row['after_us']:,.0f}",
        f"{row['ratio']:.3f}",
        first or row["verdict"],
        next(iter(row["against"]), "-"),
    ]


STEP = ["us", "times the step before", "what explains it most", "what works against that most"]


def steps():
    """The steps of the fp32 ladder, with what `perfml explain` says of each."""
    found = steps_of.ladder(str(DATA), layers=PROFILED)["steps"]
    rows = [
        _step(row, [f"`{row['layer']}`"], f"`{row['before']}` to `{row['after']}`")
        for layer in PROFILED
        for row in found
        if row["layer"] == layer
    ]
    return markdown(["size", "step", *STEP], rows)


def tensor_steps():
    """One tensor-core kernel against another, with what `perfml explain` says."""
    found = steps_of.ladder(str(DATA), PAIRS, layers=TENSOR)["steps"]
    rows = [
        _step(row, [f"`{row['layer']}`"], f"`{row['before']}` to `{row['after']}`", 2)
        for layer in TENSOR
        for row in found
        if row["layer"] == layer
    ]
    return markdown(["size", "from, to", "us", "ratio", *STEP[2:]], rows)


def version_steps():
    """One version of a kernel against another: their layers are given one name."""
    rows = []
    for backend, *versions in VERSION_STEPS:
        sides = [_side(backend, version) for version in versions]
        (detail,) = explain(*sides, layers=[VERSIONS], model=None).details
        speaking, against = causes_in_words(detail)
        row = {
            "after_us": detail.time.target_us,
            "ratio": detail.time.ratio,
            "because": because(detail, sides, (math.nan, math.nan)),
            "speaking": speaking,
            "against": against,
            "verdict": detail.time.verdict,
        }
        rows.append(_step(row, [f"`{backend}`"], " to ".join(f"`{each}`" for each in versions), 2))
    return markdown(["kernel", "from, to", "us", "ratio", *STEP[2:]], rows)


@functools.cache
def _tables():
    return load_tables(str(DATA))


def _side(backend, version):
    kept = [
        frame[(frame["backend"] == backend) & (frame["layer"] == f"{VERSIONS}_{version}")]
        for frame in _tables()
    ]
    return make_side(version, *(frame.assign(layer=VERSIONS) for frame in kept))


def _per_instruction(metric):
    """Return a column: cycles a warp waits for this reason for every instruction it executes."""
    return lambda row: f"{row[metric] / row['stall_selected']:.1f}"


def _millions(metric):
    return lambda row: f"{row[metric] / 1e6:.1f}"


def _share(metric, digits=0):
    return lambda row: f"{Readable(row[metric]):.{digits}%}"


COUNTERS = {
    "registers": lambda row: f"{row['registers_per_thread']:.0f}",
    "resident warps": _share("achieved_occupancy", 1),
    "SMs busy": _share("sm_efficiency"),
    "instructions, M": _millions("inst_executed"),
    "cycles an instruction": lambda row: f"{1 / row['stall_selected']:.1f}",
    "waiting for a result": _per_instruction("stall_exec_dependency"),
    "for memory": _per_instruction("stall_memory_dependency"),
    "for its queue": _per_instruction("stall_memory_throttle"),
    "for a busy pipe": _per_instruction("stall_pipe_busy"),
    "at a barrier": _per_instruction("stall_sync"),
    "sectors loaded, M": _millions("gld_transactions"),
    "stored, M": _millions("gst_transactions"),
    "shared memory busy": _share("shared_utilization"),
    "shared loads, M": _millions("inst_executed_shared_loads"),
    "wavefronts a load": lambda row: f"{row['shared_load_transactions_per_request']:.1f}",
}


def counters():
    """Metrics of every version of the fp32 ladder."""
    rows = []
    for layer in PROFILED:
        found = rows_of(layer)
        for rung in LADDER:
            cells = [form(found.loc[rung]) for form in COUNTERS.values()]
            known = ("-" if cell in ("nan", "<NA>") else cell for cell in cells)
            rows.append([f"`{layer}`", f"`{rung}`", *known])
    return markdown(["size", "version", *COUNTERS], rows)


def cycles(row):
    """Return the cycles in which a multiprocessor was active."""
    return row["inst_executed"] / row["ipc"] / MULTIPROCESSORS


def size_of(layer):
    """Return tokens and head dimension of a layer of 48 problems."""
    _, tokens, dim = layer.split("_")[:3]
    return int(tokens[1:]), int(dim[1:])


def clock(row):
    """Return the GHz under the profiler."""
    return cycles(row) / row["sm_efficiency"] / row["ncu_time_us"] / 1e3


def tensor_share(row, layer):
    """Return the share of the tensor cores' peak in active cycles: work done, not a counter."""
    tokens, dim = size_of(layer)
    return 4 * 48 * tokens**2 * dim / (PRODUCTS * MULTIPROCESSORS * cycles(row))


def tensor_instructions(row):
    """Return warp instructions of the tensor pipe; its peak is two a cycle."""
    return 2 * row["tensor_utilization"] * cycles(row) * MULTIPROCESSORS


def least_wavefronts(backend, version, layer):
    """Return the wavefronts of 128 bytes that the bytes read from shared memory take at least.

    A warp reads every tile of K and V; wmma reads its rows of Q again for each, mma keeps them.
    """
    tokens, dim = size_of(layer)
    made = VARIANTS[backend][version]
    warps = made.threads // 32
    rows, tile = made.query_rows // warps, made.defines["KV_ROWS"]
    read = (2 * tile + (rows if backend == "wmma" else 0)) * dim * 2 / 128
    return 48 * math.ceil(tokens / made.query_rows) * warps * math.ceil(tokens / tile) * read


def _wavefronts(backend, version, row, layer):
    counted = row["shared_load_transactions"] / 1e6
    if backend not in ("wmma", "mma"):
        return f"{counted:,.1f}"
    return f"{counted:,.1f} ({least_wavefronts(backend, version, layer) / 1e6:,.1f})"


def _tensor_cells(backend, version, row, layer):
    tensor, special = tensor_share(row, layer), row["special_fu_utilization"]
    ours = tensor_instructions(row)
    return [
        f"{row['time_us']:,.0f}",
        f"{cycles(row) / 1e6:.2f}",
        f"{clock(row):.2f}",
        f"{row['inst_executed'] / 1e6:,.0f}",
        f"{ours / 1e6:,.0f}",
        f"{(row['inst_executed'] - ours) / 1e6:,.0f}",
        f"{Readable(tensor):.0%}",
        f"{Readable(special):.0%}",
        f"{Readable(tensor + special):.0%}",
        f"{Readable(row['single_precision_fu_utilization']):.0%}",
        f"{Readable(row['issue_slot_utilization']):.0%}",
        f"{64 * row['achieved_occupancy']:.1f}",
        f"{Readable(row['stall_exec_dependency']):.0%}",
        f"{Readable(row['stall_memory_dependency']):.0%}",
        f"{Readable(row['stall_sync']):.0%}",
        _wavefronts(backend, version, row, layer),
        f"{row['l2_read_transactions'] / 1e6:,.0f}",
    ]


TENSOR_HEADER = [
    "us",
    "cycles, M",
    "GHz",
    "instructions, M",
    "of the tensor cores",
    "others",
    "tensor cores",
    "special functions",
    "both",
    "FP32 pipe",
    "issue slots",
    "warps an SM",
    "waits for a result",
    "for memory",
    "at a barrier",
    "shared wavefronts, M (least)",
    "L2 sectors read, M",
]


def tensor_counters():
    """Metrics of the tensor-core kernels and the yardsticks."""
    rows = []
    for layer in TENSOR:
        found = rows_of(layer)
        for name in KERNELS:
            version = recorded_variants()[name][layer] if name in VARIANTS else ""
            cells = _tensor_cells(name, version, found.loc[name], layer)
            rows.append([f"`{layer}`", f"`{name}` {version}".strip(), *cells])
    return markdown(["size", "kernel", *TENSOR_HEADER], rows)


def version_counters():
    """Metrics of tiles of wmma and of wgmma's consumers."""
    rows = []
    for backend, version in dict.fromkeys(
        (backend, version) for backend, *versions in VERSION_STEPS for version in versions
    ):
        row = rows_of(f"{VERSIONS}_{version}").loc[backend]
        cells = _tensor_cells(backend, version, row, VERSIONS)
        written = [row["l2_write_transactions"], row["dram_read_bytes"] + row["dram_write_bytes"]]
        more = [f"{row['registers_per_thread']:.0f}", *(f"{each / 1e6:,.0f}" for each in written)]
        rows.append([f"`{backend}`", f"`{version}`", *cells, *more])
    more = ["registers", "L2 sectors written, M", "DRAM, MB"]
    return markdown(["kernel", "version", *TENSOR_HEADER, *more], rows)


TABLES = (steps, counters, tensor_steps, tensor_counters, version_steps, version_counters)
