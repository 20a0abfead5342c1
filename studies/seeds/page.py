"""The tables of RESULTS.md: what was measured, and the list of everything, row by row.

``python -m studies.seeds.page`` writes them anew, with names of tables those alone.
"""

from __future__ import annotations

import functools
import json
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path

from perfml.datasets import load
from perfml.tables import read_table
from perfml.util.words import Readable
from studies.attention.page import SEED_SECONDS, SIZES
from studies.page_tables import markdown, write_tables
from studies.seeds.darknet_runs import RESULTS as DARKNET
from studies.seeds.results import RESULTS
from studies.seeds.steps import ANEW
from studies.seeds.steps import LADDERS as WHOLE
from studies.seeds.steps import RESULTS as STEPS
from studies.workloads.attention.problems import Problem
from studies.workloads.attention.variants import LADDER

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("RESULTS.md")
LIST = Path(__file__).with_name("list.toml")
STATES = ("works", "partly", "cannot")
DOCUMENTS = {
    "study": "study, chapter 2",
    "attention": "attention, chapter 3",
    "convolution": "convolution",
    "fp32": "fp32 attention",
    "qkv": "QKV",
}
SIZE = Problem(48, 6400, 64)


@functools.cache
def results():
    return json.loads(RESULTS.read_text(encoding="utf-8"))


@functools.cache
def rows_of_list():
    """Document to its rows: where, what, state, answer."""
    return tomllib.loads(LIST.read_text(encoding="utf-8"))


def layer(backend, name):
    """The row of a backend and layer."""
    return next(
        row for row in results()["layers"] if (row["backend"], row["layer"]) == (backend, name)
    )


# ---- what was measured ---------------------------------------------------------------------------

VARIANTS = {
    "q32_kv64": "as it is: `cp.async.cg`, padded by 8",
    "q32_kv64_through_l1": "`cp.async.ca`",
    "q32_kv64_no_pad": "not padded",
    "q32_kv64_no_pad_through_l1": "`cp.async.ca`, not padded",
    "q32_kv64_thesis_flags": "the thesis' compiler flags",
}


def variants():
    """The WMMA kernel with one thing changed."""
    first = layer("wmma", f"{SIZE.name}_q32_kv64")
    rows = []
    for name, what in VARIANTS.items():
        row = layer("wmma", f"{SIZE.name}_{name}")
        rows.append(
            [
                what, f"{row['us']:,.0f}", f"{row['us'] / first['us']:.2f}",
                f"{row['registers']:.0f}", f"{row['wavefronts_a_load']:.1f}",
                f"{row['conflicts'] / 1e6:,.1f}", f"{row['shared_wavefronts'] / 1e6:,.1f}",
                f"{row['l2_reads'] / 1e6:,.0f}",
            ]
        )  # fmt: skip
    header = ["version", "us", "x", "registers", "rounds a load", "conflicts, M"]
    return markdown([*header, "rounds, M", "L2 sectors read, M"], rows)


def standard():
    """PyTorch's attention without fusion beside FlashAttention-2 and our kernel."""
    rows = []
    names = {"torch-math": "standard", "torch-fa2": "FlashAttention-2"}
    for tokens in (1600, 6400):
        fast = layer("torch-fa2", f"b48_n{tokens}_d64")["us"]
        for backend, what in names.items():
            row = layer(backend, f"b48_n{tokens}_d64")
            moved = row["dram_read_bytes"] + row["dram_write_bytes"]
            cells = [f"{row['us']:,.0f}", f"{row['us'] / fast:.1f}", f"{row['kernels']:.0f}"]
            rate = moved / row["us"] / 1e6
            rows.append([f"{tokens:,}", what, *cells, f"{moved / 1e9:.2f}", f"{rate:.2f}"])
    header = ["tokens", "attention", "us", "x", "kernels", "DRAM, GB", "TB/s"]
    return markdown(header, rows)


COPIED = ("unroll", "streams", "fused", "fused_streams")


def copies():
    """Convolution with copies of images and outputs: milliseconds, without them in brackets."""
    found = {(r["size"], r["version"], r["copies"]): r["ms"] for r in results()["conv"]}
    rows = []
    for size in dict.fromkeys(row["size"] for row in results()["conv"]):
        cells = [
            f"{found[size, version, True]:.2f} ({found[size, version, False]:.2f})"
            for version in COPIED
        ]
        gains = [
            f"{found[size, after, True] / found[size, before, True]:.2f}"
            for before, after in (("unroll", "streams"), ("fused", "fused_streams"))
        ]
        rows.append([size, *cells, *gains])
    return markdown(["problem", *COPIED, "streams, x", "fused_streams, x"], rows)


PAIRS = (
    ("unrolling at tile 8", "rolled_tile8", "tile8", "rolled", "restrict"),
    ("unrolling at tile 32", "rolled_tile32", "tile32", "rolled", "restrict"),
    ("constant memory at tile 8", "tile8", "constant_tile8", "restrict", "constant"),
)
"""What is looked at: the step with the other one made, and without it (before, after each)."""


@functools.cache
def conv_times():
    """Microseconds of conv: what was measured here, else what the data set has."""
    frame = load(ROOT / "studies/data/h200-conv").frame
    frame = frame[frame["precision"] == "fp32"]
    found = dict(frame.groupby(["backend", "layer"])["time_us"].median())
    found |= {
        (row["backend"], row["layer"]): row["us"]
        for row in results()["layers"]
        if row["workload"] == "conv"
    }
    return found


def together():
    """A step of the convolution with and without another one."""
    rows = []
    for what, before, after, alone_before, alone_after in PAIRS:
        for name in ("conv1_b1000", "conv2_b1000"):
            of = {each: conv_times()[each, name] for each in
                  (before, after, alone_before, alone_after)}  # fmt: skip
            both, alone = of[after] / of[before], of[alone_after] / of[alone_before]
            cells = [f"{of[each]:,.0f}" for each in (before, after)]
            rows.append([what, name, *cells, f"{both:.2f}", f"{alone:.2f}"])
    header = ["step", "problem", "us before", "us after", "x", "x at tile 16"]
    return markdown(header, rows)


def strips():
    """QKV versions with fewer instructions a multiply-add."""
    rows = []
    for row in results()["qkv"]:
        rows.append(
            [
                row["backend"], row["layer"], f"{row['insn_per_iteration']:.2f}",
                f"{row['issue']:.1f}", f"{row['resident_warps']:.1f}",
                f"{row['sectors_per_request']:.2f}", f"{row['rounds_a_load']:.3f}",
                f"{row['cycles_per_request']:.2f}", f"{row['reads']:,.4g}",
                f"{row['gb_per_s']:,.0f}", f"{row['time_us']:,.1f}",
            ]
        )  # fmt: skip
    header = ["version", "layer", "/itr", "%", "ac", "SW", "rounds a load", "cyc/req", "N-Rd"]
    return markdown([*header, "GB/s", "us"], rows)


def files():
    """fp32 attention from file to file: seconds of computing, the report's in brackets."""
    found = {
        (row["version"], row["case"]): row
        for row in (*results()["attention"], *results()["sequential"])
    }
    rows = []
    for version in ("sequential", *LADDER):
        cells = []
        for case in SIZES:
            row, theirs = found.get((version, case)), SEED_SECONDS.get(version, {}).get(case)
            ours = "-" if row is None else f"{row['computing_s']:.3f}"
            cells.append(f"{ours} ({theirs})" if theirs is not None else ours)
        whole = [found.get((version, case)) for case in SIZES]
        cells += ["-" if row is None else f"{row['total_s']:.3f}" for row in whole]
        rows.append([version, *cells])
    computing = [f"computing {case}" for case in SIZES]
    return markdown(["version", *computing, *(f"total {case}" for case in SIZES)], rows)


THROUGHPUTS = {
    "float4": (3942.2, 75.713, 55.181),
    "restructured": (3995.3, 62.873, 55.923),
    "coalesced": (4041.2, 60.082, 56.567),
    "lm_registers": (4006.6, 59.131, 55.647),
    "no_conflicts": (1923.2, 223.98, 210.76),
    "q_registers": (1265.0, 138.90, 123.41),
}
"""The report's GB/s at t29 (4 x 32768 x 32): shared loads, global loads, global stores."""
OURS = "b1360_n128_d32"


def throughputs():
    """GB/s of the fp32 ladder, the report's in brackets."""
    frame = load(ROOT / "studies/data/h200-attention").frame
    means = frame[frame["layer"] == OURS].groupby("backend").mean(numeric_only=True)
    rows = []
    for version, told in THROUGHPUTS.items():
        row = means.loc[version]
        rounds = row["shared_load_transactions_per_request"] * row["inst_executed_shared_loads"]
        moved = (128 * rounds, 32 * row["gld_transactions"], 32 * row["gst_transactions"])
        cells = [
            f"{each / row['time_us'] / 1e3:,.0f} ({theirs:,.0f})"
            for each, theirs in zip(moved, told, strict=True)
        ]
        rows.append([version, *cells])
    return markdown(["version", "shared loads", "global loads", "global stores"], rows)


@functools.cache
def step_rows():
    return json.loads(STEPS.read_text(encoding="utf-8"))


def _said(row):
    """Return what explain said; answers of 2026-11-22 lack the word before ncu's names."""
    return re.sub(r"^(stall_\w+) \((?!ncu: )", r"\1 (ncu: ", row["explain"] or "no difference")


def steps():
    """Every step of the ladders: author, explain, and the time expected from the slower side."""
    rows = []
    for row in step_rows():
        place = "first" if row["place"] == 1 else row["place"] or ("no" if row["explain"] else "-")
        rows.append(
            [
                row["ladder"].removeprefix("h200-"), row["step"], f"`{row['layer']}`",
                row["author"] or "(ours)", _said(row),
                place if row["author"] else "-", f"{row['ratio']:.2f}",
                "-" if row["expected"] is None else f"{row['expected']:.2f}",
            ]
        )  # fmt: skip
    header = ["ladder", "step", "layer", "the author", "explain first", "the author's cause"]
    return markdown([*header, "x", "x expected"], rows)


def judged():
    """Rows with a reason of the author's and a difference of time: how many, how many first."""
    rows = [row for row in step_rows() if row["author"] and row["explain"]]
    return len(rows), sum(row["place"] == 1 for row in rows)


def changed():
    """Pairs of rows, of the data set and of the ladders recorded anew, whose answer is another."""
    keys = ("ladder", "step", "layer")
    again = {tuple(row[key] for key in keys): row for row in anew_rows()}
    pairs = [(row, again[tuple(row[key] for key in keys)]) for row in step_rows()]
    return [pair for pair in pairs if pair[0]["explain"] != pair[1]["explain"]]


@functools.cache
def anew_rows():
    return json.loads(ANEW.read_text(encoding="utf-8"))


def anew():
    """Steps of which explain names another cause first since the ladders were recorded anew."""
    rows = [
        [
            one["ladder"].removeprefix("h200-"), one["step"], f"`{one['layer']}`",
            _said(one), _said(two),
            f"{one['ratio']:.2f}", f"{two['ratio']:.2f}",
        ]
        for one, two in changed()
    ]  # fmt: skip
    header = ["ladder", "step", "layer", "explain first", "anew", "x", "x anew"]
    return markdown(header, rows)


# ---- what the ladders recorded as a whole have beside --------------------------------------------


@functools.cache
def whole_times(name):
    """Microseconds of a ladder: the median sum of an iteration, by backend, precision, layer."""
    frame = read_table(WHOLE / f"{name}.parquet", kind="kernels").frame
    keys = ["backend", "precision", "layer"]
    sums = frame.groupby([*keys, "iteration"], observed=True)["time_us"].sum()
    return dict(sums.groupby(keys, observed=True).median())


FAST = ("torch-fa2", "triton", "wmma", "mma", "wgmma")
TOKENS = (1600, 3200, 6400, 12800, 25600)


def triton():
    """Triton's kernel beside PyTorch's FlashAttention-2 and ours."""
    of = whole_times("attention")
    rows = []
    for tokens, dim in (*((tokens, 64) for tokens in TOKENS), (6400, 128)):
        us = [of[name, "fp16", f"b48_n{tokens}_d{dim}"] for name in FAST]
        cells = [f"{each:,.0f}" for each in us]
        rows.append([f"{tokens:,}", dim, *cells, *(f"{us[at] / us[0]:.2f}" for at in (1, 2))])
    heads = [f"`{name}`" for name in FAST]
    return markdown(["tokens", "d", *heads, "`triton`, x", "`wmma`, x"], rows)


LOOPS = {
    "wmma_fp16": "as it is: 16 x 64, the loop left to the compiler",
    "wmma_fp16_rolled": "kept a loop",
    "wmma_fp16_unrolled": "unrolled four times",
    "wmma_fp16_tile16": "16 x 16: a warp has its tile to itself",
}


def loops():
    """The convolution on tensor cores in FP16, its loop and its tile changed."""
    of = whole_times("conv")
    sizes = [f"conv{each}_b{images}" for images in (1000, 10000) for each in (1, 2)]
    rows = []
    for name, what in LOOPS.items():
        us = [of[name, "fp16", size] for size in sizes]
        first = [of["wmma_fp16", "fp16", size] for size in sizes]
        cells = [f"{one:,.0f} ({one / as_is:.2f})" for one, as_is in zip(us, first, strict=True)]
        rows.append([what, *cells])
    return markdown(["version", *sizes], rows)


@functools.cache
def darknet_results():
    return json.loads(DARKNET.read_text(encoding="utf-8"))


def darknet():
    """Darknet's paths: microseconds of all convolutions and of two."""
    rows = []
    for name, run in darknet_results()["runs"].items():
        us = run["us"]
        slowest = ", ".join(str(int(each[5:])) for each in sorted(us, key=us.get)[:-4:-1])
        cells = [f"{us[layer]:.1f}" for layer in ("conv_03", "conv_20")]
        rows.append([name, f"{sum(us.values()):,.0f}", *cells, slowest])
    return markdown(["path", "21 layers, us", "layer 3", "layer 20", "slowest"], rows)


def darknet_kernels():
    """The kernels of layer 3 under Darknet's cuBLAS path, and Winograd's in cuDNN."""
    rows = []
    for name in ("cublas", "cudnn", "cudnn, Winograd not fused"):
        for row in darknet_results()["runs"][name]["kernels"]["conv_03"]:
            if "activate" in row["kernel"] or "add_bias" in row["kernel"]:
                continue
            short = re.sub(r"[<(].*", "", row["kernel"]).rpartition("::")[2].removeprefix("void ")
            rows.append(
                [
                    name, f"`{short[:48]}`", f"{row['time_us']:.1f}",
                    f"{row['registers_per_thread']:.0f}",
                    f"{row['shared_memory_per_block'] / 1024:.1f}",
                    f"{Readable(row['dram_utilization']):.0%}",
                    f"{Readable(row['l2_utilization']):.0%}",
                    f"{Readable(row['single_precision_fu_utilization']):.0%}",
                    f"{Readable(row['ldst_fu_utilization']):.0%}",
                ]
            )  # fmt: skip
    header = ["path", "kernel", "us", "registers", "shared, KiB", "DRAM", "L2", "FP32", "LSU"]
    return markdown(header, rows)


# ---- the list ------------------------------------------------------------------------------------


def tally():
    """How many rows of each document stand where."""
    rows, total = [], Counter()
    for name, title in DOCUMENTS.items():
        counts = Counter(row[2] for row in rows_of_list()[name])
        total += counts
        rows.append([title, *(counts[state] for state in STATES), counts.total()])
    rows.append(["all", *(total[state] for state in STATES), total.total()])
    return markdown(["document", *STATES, "rows"], rows)


def _document(name):
    def table():
        return markdown(["where", "what", "", "here"], rows_of_list()[name])

    table.__name__ = f"{name}_rows"
    table.__doc__ = f"The rows of a document: {name}."
    return table


MEASURED = (
    tally, variants, standard, copies, together, strips, files, throughputs, steps, anew, triton,
    loops, darknet, darknet_kernels,
)  # fmt: skip
TABLES = {each.__name__: each for each in (*MEASURED, *(_document(name) for name in DOCUMENTS))}
_COMMAND = re.compile(r"`((?:perfml|python -m) [^`]+)`")


def commands():
    """Every command of the list, once, in order."""
    texts = [row[3] for rows in rows_of_list().values() for row in rows]
    return list(dict.fromkeys(word for text in texts for word in _COMMAND.findall(text)))


if __name__ == "__main__":
    write_tables(PAGE, TABLES, sys.argv[1:])
