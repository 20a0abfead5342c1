"""What the code that calls PyTorch or a library can do about a cause in a kernel, by its name.

Names tell what a kernel was chosen for: ``align1`` that rows begin anywhere, ``nchwToNhwc`` that
a layout is turned around, ``direct_copy_kernel`` that ``.to()`` or ``.contiguous()`` was called.

Here to change: a call that PyTorch has a better one for is a row of `_CALLS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfml.explain.tree.causes import ONE_SIDED, Kind, Term

_SCATTERED = ("sectors_per_request", "uncoalesced_loads", "uncoalesced_stores")
_REQUESTS = (*_SCATTERED, "global_requests", "narrow_access")
_MOVED = (*_REQUESTS, "dram_bytes", "dram_bytes_per_sector", "l2_sectors", "l1_sectors")


@dataclass(frozen=True)
class _Call:
    """A case: where it applies, the kernels by a part of their names, and what to do."""

    applies: Callable[[Term], bool]
    kernel: re.Pattern[str]
    say: str


def _case(applies: Callable[[Term], bool], kernel: str, say: str) -> _Call:
    return _Call(applies, re.compile(kernel), say)


def _of(*terms: str) -> Callable[[Term], bool]:
    return lambda term: term.id in terms


_launches = _of(*ONE_SIDED)


def _of_size(term: Term) -> bool:
    return term.kind in (Kind.WAVES, Kind.OCCUPANCY)


def _any(term: Term) -> bool:
    return term.id not in ONE_SIDED


_CALLS = (
    _case(
        _launches,
        "CatArrayBatchedCopy",
        "write into a tensor that is made once, where torch.cat copies all in every step",
    ),
    _case(
        _launches,
        "nchwToNhwc|nhwcToNchw",
        "keep model and input in one layout (memory_format=torch.channels_last): these launches "
        "turn tensors around for the convolution and back",
    ),
    _case(
        _launches,
        "im2col|col2im",
        "let one convolution do it (F.conv2d), which does not write the unfolded input",
    ),
    _case(
        _launches,
        "direct_copy_kernel|float16_copy_kernel|convert",
        "convert or copy once, before the loop: .to(), .float(), .contiguous() and expanded "
        "indices write a tensor anew in every step",
    ),
    _case(
        _launches,
        "index_elementwise|DeviceSelect|DeviceCompact|nonzero",
        "multiply by the mask, or use torch.where: to index by a mask it is first counted, and the "
        "host waits for that",
    ),
    _case(
        _launches,
        "RadixSort|bitonicSort|DeviceMergeSort",
        "do not sort all where some are wanted: torch.topk, torch.kthvalue, or a histogram",
    ),
    _case(
        _launches,
        "multi_tensor_apply|lerp_|addcdiv|addcmul",
        "let one call update all tensors (fused=True or foreach=True of the optimizer, "
        "torch._foreach_ functions)",
    ),
    _case(
        _launches,
        "elementwise_kernel|reduce_kernel|softmax_warp|SoftMaxForward|SoftMaxBackward",
        "fuse them (torch.compile), or call the one function that does it all (as F.gelu, "
        "F.layer_norm, F.cross_entropy, F.scaled_dot_product_attention do): each of these writes "
        "what the next one reads",
    ),
    _case(
        _of(*_SCATTERED),
        "(?i)index|gather|embedding|scatter",
        "sort the index, so that neighbours are looked up together, or reorder the table",
    ),
    _case(
        _of(*_MOVED),
        "(?i)gather|embedding",
        "let one call look up and add up (F.embedding_bag, nn.EmbeddingBag; a gather and a sum "
        "write every row), or fuse it with what reads it (torch.compile)",
    ),
    _case(
        _of(*_REQUESTS),
        r"(?<![A-Za-z_])elementwise_kernel<",
        "keep all its tensors contiguous in one order (.contiguous() once, one memory_format): "
        "PyTorch takes this kernel where one of them is strided or broadcast, and otherwise "
        "vectorized_elementwise_kernel",
    ),
    _case(
        _of(*_SCATTERED, "theoretical_occupancy"),
        "SpatialSoftMax",
        "let the dimension of the softmax be the last, contiguous one",
    ),
    _case(
        _of_size,
        "scan_outer_dim",
        "scan along the contiguous dimension: a thread walks alone along any other one (turn the "
        "tensor once, as in x.mT.contiguous().cumsum(-1).mT)",
    ),
    _case(
        _of("fp64_pipe_time"),
        "",
        "find what makes it float64, and make it float32 (.float()): an array of NumPy is, and one "
        "such operand makes the whole expression so",
    ),
    _case(
        _of("global_atomics"),
        "",
        "add up without atomics: index_add_, scatter_add_ and the backward pass of indexing send "
        "one for each value; sort by the index once, and sum its runs (torch.segment_reduce, or a "
        "view and a sum)",
    ),
)

_LIBRARY_CALLS = (
    _case(
        _any,
        r"align[12](?!\d)",
        "pad rows to a multiple of 16 bytes (8 values of fp16 or bf16, 4 of fp32; better 128 "
        "bytes): this is the library's kernel for rows that begin anywhere",
    ),
    _case(
        lambda term: term.id == "tensor_unused" or term.id.startswith("fp32_"),
        r"(?i)f32f32_f32f32|sgemm|simt",
        "allow tensor cores: TF32 (in PyTorch torch.set_float32_matmul_precision('high')), or fp16 "
        "and bf16 (torch.autocast)",
    ),
    _case(
        _launches,
        "nchwToNhwc|nhwcToNchw",
        "keep model and input in one layout (in PyTorch memory_format=torch.channels_last): these "
        "launches turn tensors around for the convolution and back",
    ),
    _case(
        _launches,
        "(?i)addpadding",
        "give channels (or rows) as a multiple of 8 values in fp16 and bf16, 4 in fp32: the "
        "library pads the tensor in every call, since its tensor-core kernels take no other",
    ),
    _case(
        _of("tensor_pipe_time"),
        "",
        "ask for fewer products: leave out those that are thrown away (padded rows of a batch, "
        "masked pairs); multiply a chain in the order with the fewest operations, as A(Bx) for "
        "(AB)x; or use a smaller type",
    ),
    _case(
        _any,
        "gemv|gemmSN|batched",
        "do products this small point by point and add up (in PyTorch a product and a sum, fused "
        "by torch.compile); or make one large product of them",
    ),
    _case(
        _launches,
        "",
        "call the one function that does it all (as F.scaled_dot_product_attention with its fused "
        "backends, nn.LSTM, F.conv2d do); or take away what makes these launches necessary",
    ),
)


def in_pytorch(term: Term, kernel: str) -> str | None:
    """Return what the code that calls PyTorch can do about a cause in one of its kernels.

    Examples
    --------
    >>> from perfml.explain.tree.causes import TERMS
    >>> in_pytorch(TERMS["kernels_appeared"], "at::native::CatArrayBatchedCopy<float>")[:30]
    'write into a tensor that is ma'
    """
    return _first(_CALLS, term, kernel)


def of_library(term: Term, kernel: str) -> str | None:
    """Return what the code that calls a library can do about a cause in one of its kernels.

    Examples
    --------
    >>> from perfml.explain.tree.causes import TERMS
    >>> of_library(TERMS["instructions"], "cutlass_75_tensorop_bf16_nn_align1")[:8]
    'pad rows'
    """
    return _first(_LIBRARY_CALLS, term, kernel)


def _first(cases: Sequence[_Call], term: Term, kernel: str) -> str | None:
    found = (each for each in cases if each.applies(term) and each.kernel.search(kernel))
    return next((each.say for each in found), None)
