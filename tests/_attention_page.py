"""The tables of docs/attention.md and of the data card, from the data.

``python tests/_attention_page.py`` writes them;
``python tests/_attention_page.py gains tiles`` writes these tables only.
"""

from __future__ import annotations

import functools
import json
import sys
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT)]

import ladder as steps_of  # noqa: E402
from _page_tables import markdown, table_on, write_tables  # noqa: E402

from benchmarks.attention import RIVAL, blocks, teraflops  # noqa: E402
from collectors.workloads.attention.variants import KV_TILES, LADDER, Q_TILES  # noqa: E402
from perfml.tables import read_table  # noqa: E402

PAGE = ROOT / "docs/attention.md"
DATA = ROOT / "datasets/h200-attention"
CARD = DATA / "README.md"
PROFILED = ("b10_n1024_d64", "b1360_n128_d32")
"""Layers of the page: one with too few blocks for the GPU, one with enough."""
SIZES = {
    "t10": "b10_n2048_d64",
    "t11": "b13600_n128_d32",
    "t22": "b500_n2048_d64",
    "t29": "b4_n32768_d32",
    "t30": "b2_n32768_d64",
}
SEED_SECONDS = {
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
COUNTERS = {
    "achieved_occupancy": ("resident warps", "{:.1%}"),
    "sm_efficiency": ("SMs busy", "{:.1%}"),
    "inst_executed": ("instructions, M", "{:.1f}"),
    "gld_transactions": ("sectors loaded, M", "{:.1f}"),
    "gld_efficiency": ("of their bytes used", "{:.0%}"),
    "shared_utilization": ("shared memory busy", "{:.1%}"),
    "shared_load_transactions_per_request": ("wavefronts a shared load", "{:.1f}"),
    "stall_exec_dependency": ("waits for a result", "{:.0%}"),
    "stall_memory_dependency": ("for memory", "{:.0%}"),
    "stall_memory_throttle": ("for its queue", "{:.0%}"),
    "stall_sync": ("at a barrier", "{:.1%}"),
}
"""Metric to its heading and form; millions are divided where the heading says so."""


@functools.cache
def benchmark(name="benchmark"):
    """Return what benchmarks/attention.py measured: `benchmark`, or `benchmark_small`."""
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


def steps():
    """The steps that were profiled, with what `perfml explain` says of each."""
    found = steps_of.ladder(str(DATA), layers=PROFILED)["steps"]
    rows = [
        [
            f"`{row['layer']}`",
            f"`{row['before']}` to `{row['after']}`",
            f"{row['after_us']:,.0f}",
            f"{row['ratio']:.3f}",
            row["because"],
        ]
        for layer in PROFILED
        for row in found
        if row["layer"] == layer
    ]
    header = ["size", "step", "us", "times the step before", "what explains it most"]
    return markdown(header, rows)


def counters():
    """Metrics of every profiled rung."""
    frame = read_table(DATA / "layers.parquet", kind="layers").frame
    means = frame.groupby(["layer", "backend"])[list(COUNTERS)].mean()
    rows = []
    for layer in PROFILED:
        for rung in (rung for rung in LADDER if (layer, rung) in means.index):
            row = means.loc[(layer, rung)]
            cells = []
            for metric, (heading, form) in COUNTERS.items():
                value = row[metric] / (1e6 if heading.endswith(", M") else 1)
                cells.append("-" if value != value else form.format(value))
            rows.append([f"`{layer}`", f"`{rung}`", *cells])
    return markdown(["size", "version", *(heading for heading, _ in COUNTERS.values())], rows)


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


def times():
    """Median time of every profiled rung."""
    frame = read_table(DATA / "layers.parquet", kind="layers").frame
    medians = frame.groupby(["layer", "backend"], sort=False)["time_us"].median()
    rungs = [rung for rung in LADDER if rung in set(frame["backend"])]
    rows = [
        [f"`{layer}`", *(f"{medians[layer, rung]:,.0f}" for rung in rungs)]
        for layer in dict.fromkeys(frame["layer"])
    ]
    return markdown(["", *(f"`{rung}`" for rung in rungs)], rows)


TABLES = {
    each.__name__: each
    for each in (rungs, gains, steps, counters, small, tiles, tokens, variants, other, times)
}


def table_of(name, path=PAGE):
    return table_on(path, name)


if __name__ == "__main__":
    for each in (PAGE, CARD):
        write_tables(each, TABLES, sys.argv[1:])
