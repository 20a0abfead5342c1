"""The tables of RESULTS.md and of the data card, from the data.

``python -m studies.attention.page`` writes them;
``python -m studies.attention.page gains tiles`` writes these tables only.
"""

from __future__ import annotations

import functools
import json
import sys
from itertools import pairwise
from pathlib import Path

from perfml.datasets import load
from studies.attention import counters as counters_of
from studies.attention.measure import RIVAL, blocks, teraflops
from studies.page_tables import markdown, write_tables
from studies.workloads.attention.variants import KV_TILES, LADDER, Q_TILES

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("RESULTS.md")
DATA = ROOT / "studies/data/h200-attention"
CARD = DATA / "README.md"
SIZES = {
    "t10": "b10_n2048_d64",
    "t11": "b13600_n128_d32",
    "t22": "b500_n2048_d64",
    "t29": "b4_n32768_d32",
    "t30": "b2_n32768_d64",
}
SEED_SECONDS = {
    "sequential": {"t10": 21.61},
    "separate": {"t10": 4.305},
    "fused": {"t10": 0.984},
    "shared_48k": {"t10": 0.434},
    "split_q": {"t10": 0.247, "t11": 0.832, "t22": 6.552, "t29": 8.055, "t30": 6.271},
    "float4": {"t11": 0.768, "t22": 2.516, "t29": 2.526, "t30": 2.124},
    "restructured": {"t11": 0.740, "t22": 2.348, "t29": 2.432, "t30": 1.846},
    "coalesced": {"t11": 0.739, "t22": 2.335, "t29": 2.412, "t30": 1.812},
    "lm_registers": {"t11": 0.741, "t22": 2.373, "t29": 2.441, "t30": 1.806},
    "no_conflicts": {"t11": 0.695, "t22": 1.598, "t29": 0.737, "t30": 1.043},
    "q_registers": {"t11": 0.658, "t22": 1.435, "t29": 0.668, "t30": 0.878},
}
"""Computing time on a GTX 1080 as its author printed it: allocation and copies included."""
SEED_REGISTERS = {
    16: (80, 91, 106, 116),
    32: (128, 148, 192, 202),
    64: (217, 255, 255, 255),
}
SEED_MS = {
    16: (222.01, 220.81, 222.49, 235.94),
    32: (198.58, 195.15, 196.7, 202.45),
    64: (200.47, 226.66, 322.45, 587.05),
}
"""Of the study's tables 3.3 and 3.5: rows by Q tile, columns by K/V tile; A100, 25K tokens."""
PUBLISHED_RANGES = {
    "warp_execution_efficiency": "1",
    "gld_efficiency": "0.54 to 0.94",
    "gst_efficiency": "0.57 to 1",
    "stall_inst_fetch": "0.03 to 0.12",
    "stall_exec_dependency": "0.08 to 0.32",
    "stall_memory_dependency": "0.1 to 0.5",
    "stall_sync": "0.08 to 0.22",
    "stall_pipe_busy": "0.01 to 0.06",
    "shared_efficiency": "0.37 to 0.77",
    "achieved_occupancy": "0.25 to 0.4",
    "l2_utilization": "0.13 to 0.29",
    "shared_utilization": "0.3 to 0.63",
    "ldst_fu_utilization": "0.16 to 0.27",
    "cf_fu_utilization": "0.1",
    "special_fu_utilization": "0.02 to 0.16",
    "tex_fu_utilization": "0.18 to 0.22",
    "single_precision_fu_utilization": "0.21 to 0.86",
    "double_precision_fu_utilization": "0",
    "dram_utilization": "0.37 to 0.89",
}
"""Of the study's table 2.2."""


@functools.cache
def benchmark(name="benchmark"):
    """Return what studies/attention/measure.py measured: `benchmark`, or `benchmark_small`."""
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def _times(name):
    return {
        (row["rung"], row["size"]): row["ms"] for row in benchmark(name)["ladder"] if "rung" in row
    }


def _rungs(name):
    """Time of every rung at every size, and how many times faster than the one before."""
    times = _times(name)
    sizes = list(dict.fromkeys(size for _, size in times))
    rows = []
    for before, rung in pairwise((None, *LADDER, "torch-efficient")):
        cells = []
        for size in sizes:
            now, old = times.get((rung, size)), times.get((before, size))
            gain = f" ({old / now:.2f})" if now and old and rung in LADDER else ""
            cells.append(f"{_ms(now)}{gain}" if now else "not run")
        rows.append([f"`{rung}`", *cells])
    return markdown(["version", *(f"`{size}`" for size in sizes)], rows)


def _ms(value):
    return f"{value:.3f}" if value < 1 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def rungs():
    return _rungs("benchmark")


def small():
    return _rungs("benchmark_small")


def gains():
    """How many times faster a step is: here, and (in brackets) where the seed measured it."""
    ours = _times("benchmark")
    rows = []
    for before, after in pairwise(LADDER):
        cells = []
        for case, size in SIZES.items():
            mine = [ours.get((rung, size)) for rung in (before, after)]
            seed = [SEED_SECONDS.get(rung, {}).get(case) for rung in (before, after)]
            here = f"{mine[0] / mine[1]:.2f}" if all(mine) else "-"
            there = f"{seed[0] / seed[1]:.2f}" if all(seed) else "-"
            cells.append(f"{here} ({there})")
        rows.append([f"`{before}` to `{after}`", *cells])
    return markdown(["step", *(f"{case} `{size}`" for case, size in SIZES.items())], rows)


def tiles():
    """Tiles of wmma beside the study's."""
    data = benchmark()
    known = {row["variant"]: row for row in data["variants"] if row["backend"] == "wmma"}
    rows = []
    for q in Q_TILES:
        for place, kv in enumerate(KV_TILES):
            row = known[f"q{q}_kv{kv}"]
            rates = data["rates"][row["variant"]]
            dram, l2 = (
                rates[f"{unit}.sum.per_second"] / 1e9 for unit in ("dram__bytes", "lts__t_bytes")
            )
            theirs = SEED_REGISTERS[q][place] if q in SEED_REGISTERS else "-"
            cells = [
                f"{row['registers']} ({theirs})",
                row["spill_stores"] + row["spill_loads"],
                f"{row['shared_bytes'] / 1024:.0f}",
                blocks(row),
                f"{row['ms']:.2f}",
                f"{SEED_MS[q][place]:.2f}" if q in SEED_MS else "-",
                f"{teraflops(row):.0f}",
                f"{dram:,.0f}",
                f"{l2:,.0f}",
            ]
            rows.append([f"{q} x {kv}", *cells])
    header = [
        "Q x K/V rows",
        "registers (A100)",
        "spilled bytes",
        "shared KiB",
        "blocks an SM",
        "ms",
        "ms, A100",
        "TFLOP/s",
        "DRAM GB/s",
        "L2 GB/s",
    ]
    return markdown(header, rows)


def variants():
    """Other versions of mma and wgmma, and those of wmma that are no tile of the study."""
    rows = [
        [
            f"`{row['backend']}`",
            f"`{row['variant']}`",
            row["registers"],
            row["spill_stores"] + row["spill_loads"],
            blocks(row),
            f"{row['error']:.1e}",
            f"{row['ms']:.2f}",
            f"{teraflops(row):.0f}",
        ]
        for row in benchmark()["variants"]
        if row["backend"] != "wmma" or row["variant"].count("_") > 1
    ]
    header = ["kernel", "version", "registers", "spilled bytes", "blocks an SM", "error", "ms"]
    return markdown([*header, "TFLOP/s"], rows)


def _beside_rival(name, tokens):
    at = {row["backend"]: row for row in benchmark(name)["tokens"] if row["tokens"] == tokens}
    return {backend: at[RIVAL]["ms"] / row["ms"] for backend, row in at.items()}


def tokens():
    """TFLOP/s over the number of tokens, and the ratio to FlashAttention-2 on two machines."""
    measured = benchmark()["tokens"]
    counts = sorted({row["tokens"] for row in measured})
    found = {(row["backend"], row["tokens"]): row for row in measured}
    last = counts[-1]
    ratios = [_beside_rival(name, last) for name in ("benchmark", "benchmark_small")]
    rows = []
    for backend in dict.fromkeys(row["backend"] for row in measured):
        row = found[backend, last]
        rows.append(
            [
                f"`{backend}` {row['variant']}".strip(),
                *(f"{teraflops(found[backend, each]):.0f}" for each in counts),
                f"{row['spread']:.2f}",
                *(f"{ratio[backend]:.2f}" for ratio in ratios),
                f"{row['error']:.1e}",
            ]
        )
    header = ["kernel", *(f"{each:,}" for each in counts), "spread", "x FA2", "x FA2, machine 2"]
    return markdown([*header, "error"], rows)


def other():
    """Causal masks and head dimension 128."""
    rows = [
        [
            f"`{row['backend']}` {row['variant']}".strip(),
            row["dim"],
            "causal" if row["causal"] else "none",
            f"{row['error']:.1e}",
            f"{row['ms']:.2f}",
            f"{teraflops(row):.0f}",
        ]
        for row in sorted(benchmark()["other"], key=lambda row: (row["dim"], row["causal"]))
    ]
    return markdown(["kernel", "d", "mask", "error", "ms", "TFLOP/s"], rows)


def _medians(names):
    frame = load(DATA).frame
    wide = frame.pivot_table(
        index="layer", columns="backend", values="time_us", aggfunc="median", sort=False
    )[list(names)].dropna(how="all")
    rows = [
        [f"`{layer}`", *("-" if each != each else f"{each:,.0f}" for each in wide.loc[layer])]
        for layer in wide.index
    ]
    return markdown(["", *(f"`{name}`" for name in names)], rows)


def times():
    """Median time of every version of the fp32 ladder."""
    return _medians(LADDER)


def times_fp16():
    """Median time of the tensor-core kernels and the yardsticks."""
    return _medians(counters_of.KERNELS)


def ranges():
    """Least and largest value of the published metrics, beside those of another workload."""
    frame = load(DATA).frame
    rows = []
    for metric, published in PUBLISHED_RANGES.items():
        low, high = (f"{value:.2f}" for value in (frame[metric].min(), frame[metric].max()))
        rows.append([metric, low if low == high else f"{low} to {high}", published])
    return markdown(["metric", "here", "published (table 2.2, GTX 1050 Ti)"], rows)


TABLES = {
    each.__name__: each
    for each in (
        *counters_of.TABLES,
        *(rungs, gains, small, tiles, tokens, variants, other),
        *(times, times_fp16, ranges),
    )
}


if __name__ == "__main__":
    for each in (PAGE, CARD):
        write_tables(each, TABLES, sys.argv[1:])
