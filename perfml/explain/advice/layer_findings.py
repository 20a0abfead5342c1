"""What a layer's launches together can do without, which no single launch shows.

Here to change: a hazard of layers is a row ``[[layer]]`` of ``symptoms.toml`` and a function here.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from perfml.explain.advice.finding import Finding
from perfml.explain.advice.findings import Layer, as_one, finding_of
from perfml.explain.advice.symptoms import filled, load_symptoms, numbers_of, situation_of
from perfml.explain.launches import Launch, known
from perfml.explain.remedies import Person, person_of_all, remedy_for
from perfml.explain.tree.library_kernels import is_full, is_product
from perfml.explain.tree.thresholds import START_US

SHORT_US = 5.0  # a launch below it counts as short
_MANY, _PART, _OFTEN = 2, 0.25, 4
"""Short launches, and their part of the layer's time; launches of one product that are a loop's."""
_TENTH = 0.1
"""A part of the layer's time from which on rearranging data, or unaligned products, are told."""

_TRANSFORMS = re.compile(
    r"im2col|catarraybatchedcopy|col2im|nchwtonhwc|nhwctonchw|transpose|permute|direct_copy|convert|"
    r"reformat|addpadding|splitkreduce|split_k_kernel|\bpad",
    re.IGNORECASE,
)
_COMPUTES = re.compile(
    r"triton_[a-z]+_fused_(?:_|\d|(?:to_copy|clone|unsafe_view|view|transpose|permute|expand|copy|cat|"
    r"constant_pad_nd|slice|select|unsqueeze|squeeze|t)(?![a-z]))*+[a-z]\w*"
)
"""The name of an Inductor kernel that lists an operator which does more than move elements."""
_TILE, _ROW = 32, 16
"""Sizes below it are smaller than a tile; bytes that one access moves at most (a vector load,
cp.async), and that TMA asks of strides."""
_ALIGNED = re.compile(r"tensorop_\w*gemm\w*_align(\d+)\b")
"""In the name of a library's product (CUTLASS: ``..._s1688gemm_bf16_128x128_tn_align1``)."""
_ELEMENTS = {"f16": 2, "s8": 1, "u8": 1}  # bytes of an element by what a name holds; TF32 has four
_SMALL_GRID = 0.5  # of a wave: too few blocks for the device are its limit, whatever the rows are

_LEVELS = (
    *("dram_utilization", "l2_utilization", "shared_utilization", "issue_slot_utilization"),
    *("single_precision_fu_utilization", "double_precision_fu_utilization"),
    *("half_precision_fu_utilization", "special_fu_utilization", "ldst_fu_utilization"),
    *("tensor_utilization", "tensor_cycles_utilization"),
)
_OLDER = 0.5
"""Of the rate of a generation's tensor cores, that of instructions of the one before: on 9.0 mma
beside wgmma (1,024 of 2,048 operations of halves a cycle)."""
_DRAM, _TENSOR = "dram_utilization", ("tensor_utilization", "tensor_cycles_utilization")


_Told = tuple[Mapping[str, float], float, float]
"""The numbers of a hazard, and the part of the layer's time that goes without it, and at most."""


def _as_one(layer: Layer) -> float:
    """Return what goes at most of a layer whose launches become one."""
    return as_one(layer.launches) / layer.time_us


def _rearranges(kernel: str) -> bool:
    """Whether a kernel only rearranges or adds up data, by its name.

    The types in a product's template name iterators that transform tiles: its own name tells.
    """
    own = kernel.partition("<")[0] if is_product(kernel) else _COMPUTES.sub("", kernel)
    return _TRANSFORMS.search(own) is not None


def _beside(layer: Layer) -> list[Launch]:
    """Return all launches but the longest, which others would be fused into."""
    # That is none that only rearranges data for another one.
    own = [one for one in layer.launches if not _rearranges(one.kernel)]
    longest = max(own or layer.launches, key=lambda one: one.time_us)
    return [one for one in layer.launches if one is not longest]


def short_launches(layer: Layer) -> _Told | None:
    """Return what many launches take that are too short to fill the machine."""
    short = [one.time_us for one in _beside(layer) if one.time_us < SHORT_US]
    share = sum(short) / layer.time_us
    if len(short) < _MANY or share < _PART:
        return None
    numbers = {"short_launches": len(short), "short_us": sum(short)}
    return numbers, share, _as_one(layer)


def _repeated(layer: Layer) -> _Told | None:
    """Return what a library's product of one size takes that is launched again and again."""
    # Not that of one call that the largest grid cuts. What a larger call gains is the time in which
    # no unit is busy.
    products = [one for one in layer.launches if one.grid and is_product(one.kernel)]
    times = Counter((one.kernel, one.grid) for one in products)
    again = [
        one for one in products if times[one.kernel, one.grid] >= _OFTEN and not is_full(one.grid)
    ]
    share = sum(one.time_us for one in again) / layer.time_us
    if len(again) < _OFTEN or share < _PART or short_launches(layer) is not None:
        return None
    if all(math.isnan(one[level]) for one in again for level in _LEVELS):
        return None  # how busy they keep the device is not known, and unknown is not idle
    idle = sum(one.time_us * (1 - _busiest(one)) for one in again)
    numbers = {"repeated_launches": len(again), "repeated_share": share, "repeated_idle_us": idle}
    return numbers, idle / layer.time_us, _as_one(layer)


def _transforms(layer: Layer) -> _Told | None:
    """Return what kernels take that only rearrange or add up data for the main one."""
    turns = [one.time_us for one in _beside(layer) if _rearranges(one.kernel)]
    share = sum(turns) / layer.time_us
    if share < _TENTH:
        return None
    return {"transform_launches": len(turns), "transform_us": sum(turns)}, share, _as_one(layer)


def _padding(layer: Layer) -> _Told | None:
    """Return what products take whose rows are no multiple of 16 bytes, by sizes or by names."""
    # Products on CUDA cores have no tiles of 16 bytes, and one that is smaller than a tile in any
    # direction is padded whatever its size is. A library's kernel for rows that begin anywhere is
    # called ``..._align1``; it may be of an older design, whose tensor cores are busy for longer.
    # So what is left is told by the device's peak where sizes are known.
    sizes = layer.product
    if sizes.get("product_n", math.nan) > 0:
        mine = [one for one in layer.launches if is_product(one.kernel)]
        row, least, best = _row_of_sizes(layer), math.nan, math.nan
        if layer.peak > 0:
            dram = sum(one.time_us * known(one[_DRAM]) for one in mine)
            least = best = max(1e6 * sizes["product_flops"] / layer.peak, dram)
    else:
        mine = [one for one in layer.launches if _unaligned(one)]
        row = min((_row_of_name(one.kernel) for one in mine), default=math.nan)
        least, best = (
            sum(
                max(
                    one.time_us * known(one[_DRAM]),
                    one.time_us * rate * _busiest(one, _TENSOR),
                    min(one.time_us, START_US),
                )
                for one in mine
            )
            for rate in (1.0, _OLDER)
        )
    taken = sum(one.time_us for one in mine)
    if not row < _ROW or taken < _TENTH * layer.time_us or math.isnan(least):
        return None
    numbers = {"row_bytes": row, "product_us": taken, "product_least_us": least}
    likely, most = ((taken - left) / layer.time_us for left in (least, best))
    return {**sizes, **numbers}, likely, most


def _row_of_sizes(layer: Layer) -> float:
    """Return the largest power of two of bytes that all rows are a multiple of; NaN if unknown."""
    sizes = [layer.product[f"product_{name}"] for name in "mnk"]
    if (
        layer.row.get("precision") == "fp32"
        or not min(sizes) >= _TILE
        or not layer.product["product_bytes"] > 0
    ):
        return math.nan
    rows = [size * layer.product["product_bytes"] for size in sizes[1:]]
    return max(size for size in (1, 2, 4, 8, _ROW) if all(row % size == 0 for row in rows))


def _row_of_name(kernel: str) -> float:
    """Return the bytes that rows of a tensor-core product are a multiple of; NaN if not said."""
    found = _ALIGNED.search(kernel)
    if found is None:
        return math.nan
    element = next((size for word, size in _ELEMENTS.items() if word in found.group(0)), 4)
    return float(int(found.group(1)) * element)


def _unaligned(launch: Launch) -> bool:
    """Return whether a product is for rows that begin anywhere, and that is its limit."""
    counted = any(not math.isnan(launch[name]) for name in _TENSOR)
    few = launch["waves_per_sm"] <= _SMALL_GRID
    return _row_of_name(launch.kernel) < _ROW and counted and not few


def _busiest(launch: Launch, levels: Sequence[str] = _LEVELS) -> float:
    return min(1.0, max(known(launch[name]) for name in levels))


_HAZARDS: Mapping[str, Callable[[Layer], _Told | None]] = {
    "launch_bound": short_launches,
    "repeated_products": _repeated,
    "padding_to_tiles": _padding,
    "transform_kernels": _transforms,
}


def layer_findings(layer: Layer) -> list[Finding]:
    """Return the findings of a layer as a whole."""
    # that products of one size are in one layer says nothing where a layer is all of a step's
    left_out = {"repeated_products"} if isinstance(layer.row.get("phase"), str) else set()
    found = ((name, hazard(layer)) for name, hazard in _HAZARDS.items() if name not in left_out)
    return [_finding(name, told, layer) for name, told in found if told is not None]


def launch_finding(layer: Layer) -> Finding | None:
    """Return the finding that many launches of a network are short; None where they are not.

    Those of one operation can be one launch. Those of many have work of their own, of which only
    the start of a launch goes where it is joined with another one, and their time at most.
    """
    told = short_launches(layer)
    if told is None:
        return None
    numbers, share, _ = told
    short = (one.time_us for one in _beside(layer) if one.time_us < SHORT_US)
    starts = sum(min(time, START_US) for time in short)
    return _finding("launch_bound", (numbers, starts / layer.time_us, share), layer)


def _finding(name: str, told: _Told, layer: Layer) -> Finding:
    symptom = load_symptoms()[1][name]
    numbers, gain, most = told
    values = {"launches": len(layer.launches), "layer_us": layer.time_us, **numbers}

    def value(quantity: str) -> float:
        return values.get(quantity, math.nan)

    longest = max(layer.launches, key=lambda one: one.time_us)
    person = person_of_all(one.kernel for one in layer.launches)
    here = situation_of(longest, person, convolves=layer.convolves)
    said = {}
    if (
        name == "launch_bound"
        and layer.row.get("time_source") == "torch"
        and person is Person.AUTHOR
    ):
        # whoever wrote the kernels, it is PyTorch that launches them
        remedy = remedy_for(name, replace(here, reader=Person.PYTORCH))
        said = {"mitigation": remedy.say, "command": remedy.line, "cost": remedy.cost}
    return finding_of(
        layer,
        name,
        (gain, gain, max(gain, most)),
        here,
        **said,
        rules=(name,),
        hazard=symptom.hazard,
        evidence=filled(symptom.evidence, value),
        numbers=numbers_of(symptom.evidence, value),
    )
