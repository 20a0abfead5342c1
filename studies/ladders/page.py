"""The tables of CONVOLUTION.md and QKV.md beside this file, from the recorded data.

``python -m studies.ladders.page`` writes them anew, with names of tables those alone.
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

import pandas as pd

from perfml.tables import read_table
from studies.ladders import measure
from studies.ladders.qkv_columns import qkv_columns
from studies.page_tables import markdown, write_tables
from studies.workloads.qkv.shapes import SHAPES

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent
CONV, QKV = ROOT / "studies/data/h200-conv", ROOT / "studies/data/h200-qkv"
SEEDS = ROOT / "tests/data/ladders"
SIZES = [f"conv{n}_b{batch}" for n in (1, 2) for batch in (100, 1000, 10000)]
CONV_LAYERS = [*SIZES, "yolo03_b1", "yolo20_b1"]
CONV_VERSIONS = [
    ("unroll", "fp32"),
    ("streams", "fp32"),
    ("fused", "fp32"),
    ("restrict", "fp32"),
    ("constant", "fp32"),
    ("rolled", "fp32"),
    ("unrolled", "fp32"),
    ("tile8", "fp32"),
    ("tile32", "fp32"),
    ("wmma_tf32", "tf32"),
    ("wmma_fp16", "fp16"),
    ("cudnn", "fp32"),
    ("cudnn", "tf32"),
    ("cudnn", "fp16"),
]
QKV_VERSIONS = ("base", "base_w2", "strip", "strip_w2")
WARPS = (1, 2, 3, 4, 8, 16, 32)
CHANGES = ("faster", "slower")


@functools.cache
def kernels(folder):
    return read_table(folder / "kernels.parquet", kind="kernels").frame


@functools.cache
def times(folder):
    """Microseconds of (backend, precision, layer): the median sum of an iteration's kernels."""
    keys = ["backend", "precision", "layer"]
    sums = kernels(folder).groupby([*keys, "iteration"])["time_us"].sum()
    return sums.groupby(keys).median()


@functools.cache
def busy():
    """Microseconds in which conv had a kernel running: (backend, precision, layer)."""
    runs = kernels(CONV).drop_duplicates("run_id").set_index("run_id")[["backend", "precision"]]
    return {(*runs.loc[run], layer): us for (run, layer), us in measure.busy_times(CONV).items()}


def spans(backend, layer):
    """Microseconds from the first launch's start to the last one's end, median of iterations."""
    run = kernels(CONV).query("backend == @backend")["run_id"].iloc[0]
    rows = pd.read_csv(CONV / "runs" / run / "timing.csv.xz").query("layer == @layer")
    ends = (rows["start_us"] + rows["time_us"]).groupby(rows["iteration"]).max()
    return float((ends - rows.groupby("iteration")["start_us"].min()).median())


def _conv_us(backend, precision, layer):
    key = (backend, precision, layer)
    if key not in times(CONV).index:
        return None
    return busy()[key] if backend == "streams" else float(times(CONV).loc[key])


def _named(backend, precision):
    return f"{backend} {precision}" if backend == "cudnn" else backend


def _number(value, digits=3):
    if value is None or value != value:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def conv_times():
    """Time of every version on every problem."""
    rows = [
        [_named(*version), *(_number(_conv_us(*version, layer)) for layer in CONV_LAYERS)]
        for version in CONV_VERSIONS
    ]
    return markdown(["version", *CONV_LAYERS], rows)


@functools.cache
def conv_ladder(layers=("conv1_b1000", "conv2_b1000", "yolo03_b1", "yolo20_b1")):
    return measure.ladder("h200-conv", layers=layers)["steps"]


@functools.cache
def qkv_ladder(layers=("small_w4", "small_w32", "large_w4", "large_w32")):
    return measure.ladder("h200-qkv", layers=layers)["steps"]


def _step(row):
    precision = row["precision"].split(" ")[-1]
    return f"{row['before']} -> {_named(row['after'], precision)}"


def _why(steps, layer):
    rows = []
    for row in steps:
        if row["layer"] != layer or row["verdict"] not in CHANGES:
            continue
        time, ratio = row["after_us"], row["ratio"]
        if row["after"] == "streams":
            time, ratio = row["busy_us"], row["busy_ratio"]
        rows.append([_step(row), _number(time), _number(ratio), row["because"]])
    return markdown(["step", "us", "x", "perfml: what explains it"], rows)


def conv1():
    """Steps on the first layer of the course project."""
    return _why(conv_ladder(), "conv1_b1000")


def conv2():
    """Steps on the second layer."""
    return _why(conv_ladder(), "conv2_b1000")


def yolo03():
    """Steps on a layer of YOLOv4-Tiny."""
    return _why(conv_ladder(), "yolo03_b1")


def yolo20():
    """Steps on another layer of YOLOv4-Tiny."""
    return _why(conv_ladder(), "yolo20_b1")


COUNTERS = {
    "instructions, M": ("inst_executed", 1e-6),
    "issue %": ("issue_slot_utilization", 100),
    "occupancy %": ("achieved_occupancy", 100),
    "L1 hit %": ("global_hit_rate", 100),
    "L2 reads, MB": ("l2_read_transactions", 32e-6),
    "DRAM, MB": (("dram_read_bytes", "dram_write_bytes"), 1e-6),
    "shared %": ("shared_utilization", 100),
    "tensor %": ("tensor_utilization", 100),
    "operand stalls %": ("stall_exec_dependency", 100),
    "barrier stalls %": ("stall_sync", 100),
    "memory stalls %": ("stall_memory_dependency", 100),
}
ONE_KERNEL = [each for each in CONV_VERSIONS if each[0] not in ("unroll", "streams", "cudnn")]


@functools.cache
def conv_counters(layer):
    """Return the counters of the versions that are one kernel: a frame by version."""
    found = {}
    for backend, precision in [*ONE_KERNEL, ("cudnn", "fp32")]:
        rows = kernels(CONV).query("backend == @backend and precision == @precision")
        means = rows[rows["layer"] == layer].mean(numeric_only=True)
        found[_named(backend, precision)] = {
            title: means[[name] if isinstance(name, str) else list(name)].sum() * scale
            for title, (name, scale) in COUNTERS.items()
        }
    return pd.DataFrame(found).T


def _counters(layer):
    table = conv_counters(layer)
    rows = [[name, *(_number(value) for value in row)] for name, row in table.iterrows()]
    return markdown(["version", *table], rows)


def counters1():
    """Counters on the first layer."""
    return _counters("conv1_b1000")


def counters2():
    """Counters on the second layer."""
    return _counters("conv2_b1000")


@functools.cache
def conv_seed():
    """Return the seed's times over its baseline's, both layers: a frame by (version, batch)."""
    table = pd.read_csv(SEEDS / "conv_seed.csv").set_index(["version", "batch"])
    return table / table.loc["baseline"].reindex(table.index.get_level_values("batch")).to_numpy()


def batches():
    """Times over the baseline's, beside the seed's."""
    rows = []
    for version in dict.fromkeys(conv_seed().index.get_level_values("version")):
        if version == "baseline":
            continue
        precision = dict(CONV_VERSIONS)[version]
        cells = [version]
        for number, column in ((1, "op1_ms"), (2, "op2_ms")):
            for batch in (100, 1000, 10000):
                layer = f"conv{number}_b{batch}"
                ours = _conv_us(version, precision, layer) / _conv_us("fused", "fp32", layer)
                cells.append(f"{ours:.2f} ({conv_seed().loc[(version, batch), column]:.2f})")
        rows.append(cells)
    return markdown(["version", *SIZES], rows)


def streams():
    """The same images in four streams: sum over kernels, busy, and from first to last."""
    rows = []
    for layer in SIZES:
        pair = [("unroll", "fp32", layer), ("streams", "fp32", layer)]
        sums = [float(times(CONV).loc[each]) for each in pair]
        spent = [busy()[each] for each in pair]
        lasted = [spans(each[0], layer) for each in pair]
        cells = [f"{_number(a)} -> {_number(b)} (×{b / a:.2f})" for a, b in (sums, spent, lasted)]
        rows.append([layer, *cells])
    return markdown(["layer", "sum over kernels, us", "GPU busy, us", "first to last, us"], rows)


def library():
    """What cuDNN launched: kernels above a hundredth of the layer's time."""
    rows = []
    for layer in ("conv1_b100", "conv1_b1000", "conv2_b1000", "yolo20_b1"):
        for precision in ("fp32", "tf32", "fp16"):
            mine = kernels(CONV).query("backend == 'cudnn' and precision == @precision")
            launches = mine[mine["layer"] == layer].groupby("kernel_index")
            us = launches["time_us"].median()
            names = [
                f"{_short(launches['kernel'].first()[index])} {_number(value)}"
                for index, value in us.items()
                if value > 0.01 * us.sum()
            ]
            rows.append([layer, precision, ", ".join(names)])
    return markdown(["layer", "precision", "kernels, us"], rows)


def _short(name):
    """Return the part of a kernel's name that tells what it is."""
    name = re.sub(r"^void ", "", name)
    if "cutlass" in name and "<" in name:
        return re.sub(r".*<(\w+?)_nhwc.*", r"\1", name)
    name = re.sub(r"[<(].*", "", name).split("::")[-1]
    return re.sub(r"_(nhwckrsc|nchwkcrs)_.*", "", name)


@functools.cache
def columns():
    """Return the seed's columns by (version, shape, warps)."""
    table = qkv_columns(kernels(QKV))
    shape = table["layer"].str.partition("_")[0]
    return table.assign(shape=shape).set_index(["backend", "shape", "warps"])


@functools.cache
def qkv_seed():
    return pd.read_csv(SEEDS / "qkv_seed.csv").set_index(["version", "shape", "warps"])


QKV_CELLS = {
    "/itr": "insn_per_iteration",
    "%": "issue",
    "SW": "sectors_per_request",
    "cyc/req (1 + BXW)": "cycles_per_request",
    "N-Rd": "reads",
    "N-Wr": "writes",
    "GB/s": "gb_per_s",
    "us": "time_us",
}


def _qkv_table(shape):
    rows = []
    for version in (*QKV_VERSIONS, "cublas"):
        for warps in WARPS if version != "cublas" else (16,):
            ours, key = columns().loc[(version, shape, warps)], (version, shape, warps)
            cells = []
            for column in QKV_CELLS.values():
                told = _number(ours[column])
                if key in qkv_seed().index:
                    seed = qkv_seed().loc[key]
                    name = "conflicts_per_request"
                    value = 1 + seed[name] if column == "cycles_per_request" else seed[column]
                    told += f" ({value:,g})"
                cells.append(told)
            label = version if version == "cublas" else f"{version}, {warps}"
            rows.append([label, *cells, f"`{ours['bars']}`" if ours["bars"] else ""])
    return markdown(["version, warps", *QKV_CELLS, "FP+ insn- data*"], rows)


def lines_a_request(version, shape):
    """Return how many cache lines the lanes of a request touch: mean of weights and words."""
    model, across = SHAPES[shape].model, SHAPES[shape].qkv
    strip, rearranged = version.startswith("strip"), version.endswith("_w2")
    lanes = range(32)
    outputs = [lane % 8 if strip else lane for lane in lanes]
    words = [lane // 8 if strip else 0 for lane in lanes]
    step = 1
    weights = {(step * across + i if rearranged else i * model + step) * 4 // 128 for i in outputs}
    return (len(weights) + len({(word * model + step) * 4 // 128 for word in words})) / 2


def lines():
    """What the lanes of a request touch, and how long L1 takes for it with 32 warps."""
    rows = []
    for version in QKV_VERSIONS:
        cells = [version]
        for shape in SHAPES:
            key = (version, shape, 32)
            ours = columns().loc[key]
            cells += [
                f"{lines_a_request(version, shape):g}",
                _number(ours["sectors_per_request"]),
                _number(ours["cycles_per_request"]),
                f"{1 + qkv_seed().loc[key, 'conflicts_per_request']:.3g}"
                if key in qkv_seed().index
                else "-",
            ]
        rows.append(cells)
    names = ("lines", "sectors", "cycles", "1 + BXW")
    return markdown(["version", *(f"{shape}: {name}" for shape in SHAPES for name in names)], rows)


def small():
    """The seed's table for the small layer, beside its own values."""
    return _qkv_table("small")


def large():
    """The seed's table for the large layer, beside its own values."""
    return _qkv_table("large")


def _qkv_steps(shape):
    rows = []
    for row in qkv_ladder():
        layer_shape, _, warps = row["layer"].partition("_w")
        if layer_shape != shape:
            continue
        seed = "-"
        keys = [(row[side], shape, int(warps)) for side in ("before", "after")]
        if all(key in qkv_seed().index for key in keys):
            before, after = (qkv_seed().loc[key, "time_us"] for key in keys)
            seed = _number(after / before)
        step = f"{row['before']} -> {row['after']}, {warps}"
        rows.append([step, _number(row["after_us"]), _number(row["ratio"]), seed, row["because"]])
    return markdown(["step, warps", "us", "x", "x of the seed", "perfml: what explains it"], rows)


def smallsteps():
    """Steps on the small layer."""
    return _qkv_steps("small")


def largesteps():
    """Steps on the large layer."""
    return _qkv_steps("large")


def cold():
    """Times without counters, and Nsight Compute's, which flushes the caches first."""
    rows = []
    for version in QKV_VERSIONS:
        mine = kernels(QKV).query("backend == @version").groupby("layer")
        cells = []
        for warps in WARPS:
            timed, profiled = (mine[name].median() for name in ("time_us", "ncu_time_us"))
            layer = f"small_w{warps}"
            cells.append(f"{_number(timed[layer])} / {_number(profiled[layer])}")
        rows.append([version, *cells])
    return markdown(["version", *(f"small_w{each}" for each in WARPS)], rows)


PAGES = {
    FOLDER / "CONVOLUTION.md": (
        conv_times,
        conv1,
        conv2,
        yolo03,
        yolo20,
        counters1,
        counters2,
        batches,
        streams,
        library,
    ),
    FOLDER / "QKV.md": (lines, small, large, smallsteps, largesteps, cold),
}
TABLES = {each.__name__: each for page in PAGES.values() for each in page}


if __name__ == "__main__":
    for each in PAGES:
        write_tables(each, TABLES, sys.argv[1:])
