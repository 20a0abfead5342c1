"""What rules of advice know of a layer as a whole.

Here to change: an input of rules of scope ``layer`` is a row of `LAYER_INPUTS` and a column of
`layer_table`.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd

from perfml.explain.advice.accesses import first_known
from perfml.explain.advice.inputs import values_of
from perfml.explain.advice.pressures import LEVELS, busiest
from perfml.explain.advice.rules import Rules
from perfml.explain.advice.slow_launch import START_US
from perfml.explain.roofs.peaks import Peaks
from perfml.explain.tree.library_kernels import is_full, is_product
from perfml.tables import PRODUCT_COLUMNS

_OFTEN = 4
"""Launches of one product from which on they are a loop's."""

_TILE = 32
"""Sizes below it are smaller than a tile."""
_ROW = 16
"""Bytes that one access moves at most (a vector load, cp.async), and that TMA asks of strides."""
_ALIGNED = re.compile(r"tensorop_\w*gemm\w*_align(\d+)\b")
"""In the name of a library's product (CUTLASS: ``..._s1688gemm_bf16_128x128_tn_align1``)."""
_ELEMENTS = {"f16": 2, "s8": 1, "u8": 1}
"""Bytes of an element by what a name holds; TF32 has four."""
_SMALL_GRID = 0.5
"""Of a wave: as in the rule ``small_grid``."""
_NEEDED = ("tensor_utilization", "tensor_cycles_utilization", "dram_utilization")
"""What works as long for a product whose rows are aligned."""

LAYER_INPUTS = {
    "launches": "launches of the layer",
    "layer_us": "the layer's time",
    "short_launches": "launches shorter than short_us, without the longest launch of the layer",
    "short_us": "their time",
    "short_share": "their share of the layer's time",
    "transform_launches": "launches whose kernel's name is that of a rearrangement",
    "transform_us": "their time",
    "transform_share": "their share of the layer's time",
    "repeated_launches": "launches of a library's product that others repeat, kernel and grid",
    "repeated_idle_us": "their time in which no unit is busy",
    "repeated_share": "their share of the layer's time",
    "product_n": "columns of the layer's largest product, or its filters",
    "product_k": "inner size of that product, or its channels",
    "row_bytes": "bytes, 16 at most, of which all rows of its matrices are a multiple",
    "row_elements": "elements in 16 bytes",
    "product_share": "share of the layer's time that a library's products take",
    "product_us": "their time (of those whose name says it, where no sizes are known)",
    "product_least_us": "what they take at the device's peak, or DRAM is busy in them if longer; "
    "or tensor cores, where no sizes are known",
}
"""Inputs of rules of scope ``layer``."""


def layer_table(launches: pd.DataFrame, rules: Rules, peaks: Peaks | None = None) -> pd.DataFrame:
    """Return the inputs of scope ``layer``, one row a layer.

    Parameters
    ----------
    launches
        Usual launches with the columns ``group, kernel, time_us, layer_us``.
    rules
        They say what counts as short, and what as a rearrangement.
    peaks
        As for `perfml.explain.advice.inputs.values_of`.

    Returns
    -------
    DataFrame
        Indexed by ``group``, columns as in `LAYER_INPUTS`.
    """
    groups = launches["group"]
    time = launches["time_us"].astype(float)
    names = launches["kernel"].astype("string").fillna("")
    turns = names.map(lambda name: bool(rules.transforms.search(name))).astype(bool)
    # the longest launch is the one that the others would be fused into, but none that only
    # rearranges data for another one
    alone = turns.groupby(groups).transform("all")
    others = pd.Series(True, index=launches.index)
    others[time.where(~turns | alone, -1.0).groupby(groups).idxmax()] = False
    marks = {"short": others & (time < rules.short_us), "transform": others & turns}
    table = pd.DataFrame(
        {"launches": groups.value_counts(sort=False), "layer_us": time.groupby(groups).sum()},
        dtype=float,
    )
    again = _repeated(launches)
    marks["repeated"] = again
    for name, mark in marks.items():
        table[f"{name}_launches"] = mark.astype(float).groupby(groups).sum()
        table[f"{name}_us"] = time.where(mark, 0.0).groupby(groups).sum()
        table[f"{name}_share"] = table[f"{name}_us"] / table["layer_us"]
    idle = time * (1 - busiest(launches))
    table["repeated_idle_us"] = idle.where(again, 0.0).groupby(groups).sum()
    if set(PRODUCT_COLUMNS) <= set(launches.columns):
        table = table.join(_products(launches, table["layer_us"], peaks))
    named = _told_by_names(launches, table["layer_us"])
    sized = table.get("product_n", pd.Series(np.nan, table.index)).notna()
    for name in named.columns.astype(str):
        known = table.get(name, pd.Series(np.nan, table.index))
        table[name] = known.where(sized | named[name].isna(), named[name])
    return table


def _products(launches: pd.DataFrame, layer_us: pd.Series, peaks: Peaks | None) -> pd.DataFrame:
    """Return the inputs that tell sizes which tensor cores have to pad.

    Products on CUDA cores (fp32) have no tiles of 16 bytes, and one that is smaller than a tile in
    any direction is padded whatever its size is. A kernel for rows that begin anywhere may be of an
    older design, whose tensor cores are busy for longer than another's: what is left of the time is
    told by the device's peak, not by them.
    """
    groups = launches["group"]
    sizes = launches[list(PRODUCT_COLUMNS)].astype(float).groupby(groups).first()
    fits = (sizes[["product_m", "product_n", "product_k"]] >= _TILE).all(axis=1)
    if "precision" in launches.columns:
        fits &= launches["precision"].astype("string").ne("fp32").groupby(groups).first()
    element = sizes["product_bytes"].where(fits)
    table = sizes[["product_n", "product_k"]].assign(row_elements=_ROW / element)
    # the largest power of two that divides both rows
    rows = [(sizes[name] * element).where(fits) for name in ("product_n", "product_k")]
    table["row_bytes"] = np.nan
    for size in (1, 2, 4, 8, _ROW):
        whole = (rows[0] % size == 0) & (rows[1] % size == 0)
        table["row_bytes"] = table["row_bytes"].where(~whole, size)
    mine = launches["kernel"].astype("string").fillna("").map(is_product).astype(bool)
    time = launches["time_us"].astype(float).where(mine, 0.0)
    table["product_us"] = time.groupby(groups).sum()
    table["product_share"] = table["product_us"] / layer_us
    peak = values_of(launches, "peak_precision", peaks)
    if isinstance(peak, str):
        return table
    reached = pd.Series(peak, launches.index).groupby(groups).first()
    dram = time * busiest(launches, [name for name in LEVELS if name != "dram_utilization"])
    computes = 1e6 * sizes["product_flops"] / reached
    table["product_least_us"] = np.maximum(computes, dram.groupby(groups).sum())
    return table


def _told_by_names(launches: pd.DataFrame, layer_us: pd.Series) -> pd.DataFrame:
    """Return the same where a library's kernel says how its rows are aligned, by layer.

    A product of cuBLAS's or CUTLASS's for rows that begin anywhere is called ``..._align1``: one
    element. It loads element by element, and may be of an older design. What its tensor cores are
    busy for, the products take at most, whatever the rows are (or DRAM, if that is busy longer).
    """
    names = launches["kernel"].astype("string").fillna("")
    bytes_of = {name: _row_of(name) for name in names.unique()}
    row = names.map(bytes_of).astype(float)
    mine = row < _ROW
    if "waves_per_sm" in launches.columns:
        # too few blocks for the device are its limit, whatever the rows are
        mine &= ~(launches["waves_per_sm"].astype(float) <= _SMALL_GRID)
    # and what nobody counted is not known to be free
    mine &= ~np.isnan(first_known(launches, *_NEEDED[:2]))
    time = launches["time_us"].astype(float).where(mine, 0.0)
    needed = time * busiest(launches, [name for name in LEVELS if name not in _NEEDED])
    needed = needed.clip(lower=time.clip(upper=START_US))
    table = pd.DataFrame({"row_bytes": row.where(mine), "groups": launches["group"]})
    table = table.groupby("groups")[["row_bytes"]].min()
    for name, values in (("product_us", time), ("product_least_us", needed)):
        table[name] = values.groupby(launches["group"]).sum().where(table["row_bytes"].notna())
    return table.assign(product_share=table["product_us"] / layer_us)


def _row_of(kernel: str) -> float:
    """Return the bytes that rows of a tensor-core product are a multiple of; NaN if not said."""
    found = _ALIGNED.search(kernel)
    if found is None:
        return math.nan
    element = next((size for word, size in _ELEMENTS.items() if word in found.group(0)), 4)
    return float(int(found.group(1)) * element)


def _repeated(launches: pd.DataFrame) -> pd.Series:
    """Return which launches a library makes for one product again and again, in one layer.

    Not those of one call that the largest grid cuts.
    """
    products = launches["kernel"].astype("string").fillna("").map(is_product).astype(bool)
    if "grid" not in launches.columns:
        return products & False
    alike = [launches[name].astype("string").fillna("") for name in ("kernel", "grid")]
    often = products.groupby([launches["group"], *alike]).transform("size") >= _OFTEN
    return products & often & ~alike[1].map(is_full).astype(bool)
