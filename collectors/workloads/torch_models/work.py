"""Record what each layer of a model computes, reads and writes, from one call of it.

A dispatch mode of torch sees every operator below autograd, in the range that is open when it is
called. FLOPs are those of torch's own counter (`torch.utils.flop_counter`): matrix products,
convolutions and attention, a multiply-add as two; everything else counts 0, as in the field's
usual count. Bytes are the least a layer can move: every tensor that comes from outside is read
once, every tensor that somebody else reads is written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from collectors.workloads.module_ranges import ModuleRanges

_LOOKUPS = frozenset({"embedding", "index", "index_select", "gather"})
"""Operators that read of their first tensor only what they return."""

_ALLOCATIONS = frozenset({"empty", "empty_like", "empty_strided", "new_empty"})
"""Operators that only make room for another one's result, and are no kind of work."""

_RECURRENT = frozenset({"_cudnn_rnn", "miopen_rnn", "mkldnn_rnn_layer"})
_SELF_ATTENTION = frozenset({"_transformer_encoder_layer_fwd", "_native_multi_head_attention"})
"""Operators that do many products in one, which torch's counter does not know."""

_FACTORS = {"mm": (0, 1), "addmm": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2)}
"""Which arguments of an operator are the matrices that it multiplies."""


@dataclass
class _Reads:
    """What a layer reads of one storage."""

    size: int
    views: dict[tuple[Any, ...], int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes, each view once; views of one storage may overlap."""
        return min(sum(self.views.values()), self.size)


@dataclass
class _Work:
    """What the operators of one layer did."""

    flops: int | None = 0
    operators: list[str] = field(default_factory=list)
    reads: dict[int, _Reads] = field(default_factory=dict)
    writes: dict[int, int] = field(default_factory=dict)
    products: dict[tuple[Any, ...], int] = field(default_factory=dict)
    first_input: str = ""
    last_output: str = ""


def layer_rows(model: Any, named: ModuleRanges, call: Callable[[], Any]) -> list[dict[str, Any]]:
    """Call a model once and return a row for each of its layers that does something.

    `named` are the model's ranges, installed; `call` runs it once and returns its outputs. The rows
    are JSON values: ``layer``, ``kind`` (the module's class, or the first operator between
    modules), ``input`` and ``output`` (shapes), ``parameters``, ``flops`` (None where an operator
    is not known), ``weight_bytes``, ``input_bytes``, ``output_bytes``, ``products`` (of matrices:
    ``operator``, ``m``, ``n``, ``k``, ``dtype`` and how many; of a convolution ``n`` and ``k`` are
    the channels of a group); of a convolution also ``size, stride, pad, filters, groups``.
    """
    recorder = _recorder(lambda: named.current)
    facts: dict[str, dict[str, Any]] = {}
    handles = list(_watch_modules(named, facts))
    try:
        with recorder:
            outputs = call()
    finally:
        for handle in handles:
            handle.remove()
    weights = {
        _storage(tensor): tensor.nbytes for tensor in (*model.parameters(), *model.buffers())
    }
    trained = {_storage(tensor): tensor.numel() for tensor in model.parameters()}
    readers: dict[int, set[str]] = {_storage(tensor): {""} for tensor in tensors(outputs)}
    for name, work in recorder.layers.items():
        for key in work.reads:
            readers.setdefault(key, set()).add(name)
    rows = []
    for name, work in recorder.layers.items():
        own = [key for key in work.reads if key in weights]
        outside = [key for key in work.reads if key not in weights]
        row = {
            "layer": name,
            "kind": next(iter(work.operators), "empty"),
            "input": work.first_input,
            "output": work.last_output,
            "parameters": sum(trained.get(key, 0) for key in own),
            "flops": work.flops,
            "weight_bytes": sum(work.reads[key].bytes for key in own),
            "input_bytes": sum(work.reads[key].bytes for key in outside),
            "output_bytes": sum(
                size for key, size in work.writes.items() if readers.get(key, set()) - {name}
            ),
        }
        if work.products:
            names = ("operator", "m", "n", "k", "dtype")
            row["products"] = [
                {**dict(zip(names, product, strict=True)), "count": count}
                for product, count in work.products.items()
            ]
        rows.append(row | facts.get(name, {}))
    return rows


def tensors(value: Any) -> Iterator[Any]:
    """Yield the tensors in nested mappings, lists and tuples."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors(part)


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _shape(tensor: Any) -> str:
    return "x".join(str(size) for size in tensor.shape) or "1"


def _recorder(current: Callable[[], str]) -> Any:
    """Return a dispatch mode that files every operator under the layer that is current."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        """Its class needs torch, so it is made where torch is."""

        def __init__(self) -> None:
            super().__init__()
            self.layers: dict[str, _Work] = {}
            self._alive: list[Any] = []

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            given = list(tensors([args, kwargs or {}]))
            made = list(tensors([result]))
            # a storage that is freed gives its address to another one
            self._alive += made
            storages = {_storage(tensor) for tensor in given}
            fresh = [tensor for tensor in made if _storage(tensor) not in storages]
            if not func._schema.is_mutable and not fresh:
                return result  # a view
            work = self.layers.setdefault(current(), _Work())
            _file(work, func, args, kwargs or {}, result, given, made)
            return result

    return Recorder()


def _file(
    work: _Work,
    func: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    result: Any,
    given: list[Any],
    made: list[Any],
) -> None:
    """Add one operator to a layer's work."""
    name = func._schema.name.partition("::")[2]
    if name not in _ALLOCATIONS:
        work.operators.append(name.strip("_"))
    flops = _flops(func, name, args, kwargs, result)
    work.flops = None if flops is None or work.flops is None else work.flops + flops
    for number, tensor in enumerate(given):
        key = _storage(tensor)
        if key in work.writes:
            continue
        reads = work.reads.setdefault(key, _Reads(tensor.untyped_storage().nbytes()))
        view = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        looked_up = number == 0 and name in _LOOKUPS
        reads.views[view] = min(tensor.nbytes, made[0].nbytes) if looked_up else tensor.nbytes
    for tensor in made:
        work.writes[_storage(tensor)] = max(tensor.nbytes, work.writes.get(_storage(tensor), 0))
    product = _product(name, args, kwargs, made)
    if product is not None:
        work.products[product] = work.products.get(product, 0) + 1
    if given and not work.first_input:
        work.first_input = _shape(given[0])
    if made:
        work.last_output = _shape(made[0])


def _product(
    name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], made: list[Any]
) -> tuple[str, int, int, int, str] | None:
    """Return operator, m, n, k and data type of a product of matrices; None for other operators."""
    if name in _FACTORS:
        left, right = (args[place] for place in _FACTORS[name])
        m, k, n = (int(size) for size in (left.shape[-2], left.shape[-1], right.shape[-1]))
    elif name == "convolution" and made:
        left, right = args[0], args[1]
        groups = int(args[8] if len(args) > 8 else kwargs.get("groups", 1))
        m = int(made[0].numel() // made[0].shape[1])
        n, k = int(right.shape[0]) // groups, int(right.shape[1])
    else:
        return None
    return name, m, n, k, str(left.dtype).removeprefix("torch.")


def _flops(
    func: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
) -> int | None:
    from torch.utils.flop_counter import flop_registry

    if "scaled_dot_product" in name:
        return _attention_flops(*(tensor.shape for tensor in args[:3]))
    count = flop_registry.get(func.overloadpacket)
    if count is not None:
        return int(count(*args, **kwargs, out_val=result))
    if name in _RECURRENT | _SELF_ATTENTION:
        return _sequence_flops(args, attends=name in _SELF_ATTENTION)
    return 0


def _attention_flops(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> int:
    """Count the scores and their sum over the values, of all heads of the queries.

    Shapes end in length and width. There may be fewer heads of keys than of queries (grouped
    queries), which torch's own count refuses.
    """
    return int(2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1]))


def _sequence_flops(args: tuple[Any, ...], *, attends: bool) -> int | None:
    """Count an operator in which every weight matrix meets every vector of a sequence.

    That is ``2 * elements * vectors``; attention of the sequence to itself adds
    ``4 * vectors * length * width`` (scores, and their sum over the values).
    """
    sequence = args[0]
    if sequence.dim() != 3:  # batch, length, width; a nested one has no lengths
        return None
    vectors = sequence.shape[0] * sequence.shape[1]
    # a mask is a matrix too, but is not trained
    weights = [tensor for tensor in tensors(list(args[1:])) if tensor.requires_grad]
    matrices = [tensor for tensor in weights if tensor.dim() == 2]
    if not matrices:
        return None
    elements = sum(tensor.numel() for tensor in matrices)
    attention = 4 * vectors * sequence.shape[1] * sequence.shape[2] if attends else 0
    return int(2 * vectors * elements + attention)


def _watch_modules(named: ModuleRanges, facts: dict[str, dict[str, Any]]) -> Iterator[Any]:
    """Note class and shapes of each module whose whole work is in the one range of its path."""
    opened: list[str] = []

    def before(*_: Any) -> None:
        opened.append(named.current)

    def after(module: Any, inputs: Any, output: Any) -> None:
        name = opened.pop()
        if name != named.current:  # it has submodules: its ranges are its own work only
            return
        shapes = {
            key: _shape(next(tensors([value])))
            for key, value in (("input", inputs), ("output", output))
            if any(True for _ in tensors([value]))
        }
        facts[name] = {"kind": type(module).__name__, **shapes, **_window(module)}

    for _, module in named.modules():
        yield module.register_forward_pre_hook(before)
        # before the hook that closes the range
        yield module.register_forward_hook(after, prepend=True)


def _window(module: Any) -> dict[str, Any]:
    """Return the window of a convolution or a pooling, under the names the report reads."""
    kept = {
        "size": "kernel_size",
        "stride": "stride",
        "pad": "padding",
        "filters": "out_channels",
        "groups": "groups",
    }
    if not hasattr(module, "kernel_size"):
        return {}
    values = {key: getattr(module, attribute, None) for key, attribute in kept.items()}
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in values.items()
        if value is not None
    }
