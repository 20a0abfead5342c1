"""What a layer is described by: numbers from its shapes, from counters, and what holds the time.

Three tiers, each with ``shape``:

- ``shape``: kind, shapes, operations, bytes, precision, backend; known before anything runs;
- ``launched``: which kernels, how many, over which grids: what every trace has, without counters;
- ``counted``: launches and what counters count, which is the same however long it took.

A layer's kind is the class of its module (``Conv2d``, ``LlamaRMSNorm``) or the first operator
between modules (``add``). Libraries have hundreds of classes, which do a dozen kinds of work: one
that nobody measured still belongs to a family.

Durations, rates and cycles are in no tier: they are the time. Shares of cycles and of peaks give it
away beside a count (`perfml.metrics.clock_of`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError
from perfml.explain.roofs.peaks import DATA_SHEET, Peaks, known_peaks
from perfml.kernel_names import KernelTraits, kernel_traits
from perfml.metrics import clock_of, load_catalogue
from perfml.modeling.features import BOUND, LAUNCH_METRICS
from perfml.modeling.layer_shapes import average_copies, average_repeats, with_layer_facts
from perfml.tables import metric_columns
from perfml.util.typing import Floats

OTHER = "other"

_ELEMENTWISE = (
    "add|sub|mul|div|rsub|pow|exp|log|sqrt|rsqrt|neg|abs|sin|cos|where|gt|lt|ge|le|eq|ne|isinf|"
    "isnan|bitwise|logical|masked|fill|zero|zeros|ones|full|arange|erf|to|_?to_copy|"
    "positionalencoding"
)
_COPIES = (
    "cat|stack|copy|clone|contiguous|roll|flip|pad|constant_?pad|reflection|split|unbind|index|"
    "slice|permute|transpose|repeat|expand|im2col|unfold|fold|tril|triu|flatten|identity|dropout|"
    "droppath|window(?:de)?partition"
)
_PATTERNS = (
    # transformers has a linear layer of this name, with a capital D
    ("product", r"^Conv1D$"),
    # before convolutions: ConvNextLayerNorm
    ("normalization", r"(?i)norm|affine|scale(?:2d)?$"),
    ("convolution", r"(?i)conv(?!ert)"),
    ("attention", r"(?i)attention|scaled_dot_product|transformerencoderlayer"),
    ("recurrent", r"(?i)lstm|gru|rnn"),
    ("embedding", r"(?i)embed|index_select|gather"),
    ("pooling", r"(?i)pool"),
    ("resampling", r"(?i)upsampl|interpolat|pixel_?shuffle|grid_sampl|resize"),
    ("product", r"(?i)linear|(?:add|ba)?b?mm\b|matmul|einsum|projection"),
    ("softmax", r"(?i)softmax"),
    (
        "activation",
        r"(?i)relu|gelu|silu|swish|sigmoid|tanh|mish|elu\b|threshold|clamp|hardtanh|act",
    ),
    ("reduction", r"(?i)^(?:mean|sum|var|std|amax|amin|max|min|argmax|cumsum|any|all)$"),
    ("elementwise", rf"(?i)^(?:{_ELEMENTWISE})"),
    ("copy", rf"(?i)^(?:{_COPIES})"),
)
FAMILIES = (*dict.fromkeys(name for name, _ in _PATTERNS), OTHER)
"""All families, in the order in which they are looked for."""

_COMPILED = tuple((name, re.compile(pattern)) for name, pattern in _PATTERNS)


MIXED = "attention"
"""Family of what is several operators with products among them: attention that is written out, by
far the most of it."""

_PRODUCTS = frozenset({"convolution", "attention", "recurrent", "product"})

_USUAL = {
    "Conv2d": "conv",
    "ReLU": "relu",
    "ReLU6": "hardtanh",
    "GELU": "gelu|GELUActivation|PytorchGELUTanh",
    "SiLU": "silu|SiLUActivation",
    "LeakyReLU": "leaky_relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Hardswish": "hardswish",
    "Hardsigmoid": "hardsigmoid",
    "Softmax": "softmax",
    "BatchNorm2d": "(?:cudnn|native)_batch_norm",
    "LayerNorm": "native_layer_norm",
    # written in Python, several kernels; torch's own RMSNorm is one
    "LlamaRMSNorm": r"(?:\w+RMSNorm|T5LayerNorm)",
    "AvgPool2d": "avg_pool2d",
    "MaxPool2d": "max_pool2d_with_indices",
    "AdaptiveAvgPool2d": "adaptive_avg_pool2d",
    # transformers' layer of this name is a linear one
    "Linear": "Conv1D|addmm",
    "Embedding": "embedding",
    "scaled_dot_product_attention": r"scaled_dot_product_\w+",
}
_SYNONYMS = tuple((name, re.compile(pattern)) for name, pattern in _USUAL.items())


def usual_kind(kind: str | None) -> str | None:
    """Return the usual name of a kind: a module and its operator do the same work.

    Examples
    --------
    >>> [usual_kind(kind) for kind in ("relu", "conv", "Conv1D", "cudnn_batch_norm")]
    ['ReLU', 'Conv2d', 'Linear', 'BatchNorm2d']
    """
    if kind is None:
        return None
    return next((name for name, pattern in _SYNONYMS if pattern.fullmatch(kind)), kind)


def family_of(kind: str | None, flops: float = 0.0) -> str:
    """Return the family of a kind of layer.

    `kind` is the class of the module, or the first operator of what lies between modules. Only
    products, convolutions and attention count any `flops`, so a copy with some is the beginning of
    `MIXED`.

    Examples
    --------
    >>> [family_of(kind) for kind in ("Conv2d", "Conv1D", "LlamaRMSNorm", "add", "Mystery")]
    ['convolution', 'product', 'normalization', 'elementwise', 'other']
    >>> family_of("clone", flops=1e8)
    'attention'
    """
    if kind is None:
        return OTHER
    found = next((name for name, pattern in _COMPILED if pattern.search(kind)), OTHER)
    return MIXED if flops > 0 and found not in _PRODUCTS else found


TIERS = ("shape", "launched", "counted")

MOST = 0.5
"""Share of the rows that have to have a metric for it to be used."""

WHOLE = "graph"
"""Name of the one layer of a model that is compiled whole: no layer, and not compared."""

_LEAST_US = 1e-3
"""Added to bounds before their logarithm is taken: a nanosecond."""

_KIND_NETWORKS = 3
"""Networks that a kind needs for a column of its own; with fewer its family tells it."""

_OF_VECTORS = frozenset({"product", "attention", "recurrent", "embedding", "softmax"})
_VECTOR_NORMS = frozenset({"LayerNorm", "RMSNorm", "LlamaRMSNorm"})

_AMOUNTS = ("flops", "weight_bytes", "input_bytes", "output_bytes", "parameters")


@dataclass(frozen=True)
class Vocabulary:
    """What a reference table knows: the words and metrics that become columns.

    Attributes
    ----------
    kinds, precisions, backends, variants, launched
        Words with a column each; the last are what names of kernels tell.
    counted
        Metrics that do not hold the time.
    """

    kinds: tuple[str, ...]
    precisions: tuple[str, ...]
    backends: tuple[str, ...]
    variants: tuple[str, ...]
    launched: tuple[str, ...]
    counted: tuple[str, ...]

    @classmethod
    def of(cls, reference: pd.DataFrame, metrics: Sequence[str] | None = None) -> Vocabulary:
        """Read the words of a reference table.

        The table is as `prepare_layers` returns it; `metrics` are used of those that it has, by
        default all.
        """
        networks = reference.groupby("usual_kind")["workload"].nunique()
        usable = [
            name
            for name in metric_columns(reference)
            if (metrics is None or name in metrics) and reference[name].notna().any()
        ]
        return cls(
            kinds=tuple(sorted(map(str, networks.index[networks >= _KIND_NETWORKS]))),
            precisions=_words(reference, "precision"),
            backends=_words(reference, "backend"),
            variants=tuple(word for word in _words(reference, "variant") if word),
            launched=tuple(sorted({word for each in _traits(reference) for word in _told(each)})),
            counted=tuple(name for name in usable if clock_of(name) == "counted"),
        )


def _words(table: pd.DataFrame, column: str) -> tuple[str, ...]:
    return tuple(sorted(map(str, table[column].dropna().unique())))


def prepare_layers(
    layers: pd.DataFrame, provenance: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """Return one row a distinct layer and condition, with facts and bounds.

    Rows are means over repeats and over copies of a layer within a network; models that are
    compiled whole are left out. ``family`` is the kind's and ``usual_kind`` its usual name,
    ``copies`` how many layers a row is. `provenance` is the table's, for what the runs say of their
    layers.
    """
    told = with_layer_facts(layers, provenance or {})
    whole = (told["layer"] == WHOLE).fillna(value=False).to_numpy(dtype=bool)
    one = average_copies(average_repeats(told[~whole].reset_index(drop=True)))
    kinds = one["kind"].astype(object).where(one["kind"].notna(), None)
    flops = one["flops"].to_numpy(dtype=float, na_value=0.0)
    families = [family_of(kind, work) for kind, work in zip(kinds, flops, strict=True)]
    one["family"] = pd.array(families, dtype="string")
    one["usual_kind"] = pd.array([usual_kind(kind) for kind in kinds], dtype="string")
    return with_bounds(one)


def describe(rows: pd.DataFrame, words: Vocabulary, tier: str = "shape") -> pd.DataFrame:
    """Return the features of prepared rows, all numbers; NaN where something is not known.

    Rows are as `prepare_layers` returns them; `words` are of the reference, so that two tables get
    the same columns; `tier` is one of `TIERS`.
    """
    columns = _word_columns(rows, words)
    if tier == "launched":
        columns |= _launched_columns(rows, words.launched)
    if tier == "counted":
        columns |= _counted_columns(rows, words.counted)
    return shape_columns(rows).join(pd.DataFrame(columns, index=rows.index))


def shape_columns(rows: pd.DataFrame) -> pd.DataFrame:
    """Return sizes, amounts of work and bounds of prepared rows, as `describe` has them first."""
    output = [_sizes(text) for text in rows["output"]]
    kinds = rows[["family", "usual_kind"]].astype(object).to_numpy()
    groups, filters = _numbers(rows, "groups"), _numbers(rows, "filters")
    width = np.array(
        [_width(sizes, *names) for sizes, names in zip(output, kinds, strict=True)], dtype=float
    )
    # shapes that users give may lack the batch, and have their channels last; bytes are of all
    width = np.where(np.isnan(filters), width, filters)
    half = rows["precision"].isin(["fp16", "bf16"]).to_numpy(dtype=bool)
    outputs = np.maximum(_numbers(rows, "output_bytes") / np.where(half, 2, 4), 1.0)
    flops = _numbers(rows, "flops")
    with np.errstate(divide="ignore", invalid="ignore"):
        reduction = flops / (2 * outputs)
        found = {f"log {name}": np.log1p(_numbers(rows, name)) for name in _AMOUNTS}
        found |= {
            "log outputs": np.log(outputs),
            "log width": np.log(width),
            "log height": np.log(outputs / width),
            "log reduction": np.log1p(reduction),
            "log intensity": np.log1p(_numbers(rows, "arithmetic_intensity")),
        }
        for name in ("compute_us", "memory_us", BOUND):
            found[f"log {name}"] = np.log(_numbers(rows, name) + _LEAST_US)
    found["window"] = _products(rows["size"])
    found["stride"] = _products(rows["stride"])
    found["log groups"] = np.log1p(groups)
    depthwise = ((groups > 1) & (groups == filters)).astype(np.float64)
    found["depthwise"] = np.where(np.isnan(groups), np.nan, depthwise)
    found["batch"] = np.log2(_numbers(rows, "batch"))
    return pd.DataFrame(found, index=rows.index)


def _width(sizes: tuple[int, ...], family: object, kind: object) -> float:
    """Return the channels of a picture or the features of a vector."""
    if not sizes:
        return np.nan
    # these work on the last axis, also of pictures whose channels stand there
    of_vectors = family in _OF_VECTORS or kind in _VECTOR_NORMS
    is_picture = len(sizes) >= 4 or (family == "convolution" and len(sizes) == 3)
    return float(sizes[1] if is_picture and not of_vectors else sizes[-1])


def _word_columns(rows: pd.DataFrame, words: Vocabulary) -> dict[str, Floats]:
    vocabulary = {
        "family": FAMILIES,
        "usual_kind": words.kinds,
        "precision": words.precisions,
        "backend": words.backends,
        "variant": words.variants,
    }
    columns: dict[str, Floats] = {}
    for column, known in vocabulary.items():
        text = rows[column].astype(object)
        if column == "precision" and "bf16" not in known:
            text = text.replace("bf16", "fp16")  # as many bytes, and as fast
        for word in known:
            columns[f"{column.removeprefix('usual_')} {word}"] = np.array(
                [each == word for each in text], np.float64
            )
    return columns


def knows_launches(rows: pd.DataFrame) -> bool:
    """Return whether most rows say which kernels they launched, and over which grids."""
    needed = ("kernels", "kernel_names", *LAUNCH_METRICS)
    return all(name in rows and rows[name].notna().mean() > MOST for name in needed)


def _traits(rows: pd.DataFrame) -> list[list[KernelTraits]]:
    """Return what the names of each row's kernels tell, one entry a different name."""
    if "kernel_names" not in rows:
        return [[] for _ in range(len(rows))]
    texts = rows["kernel_names"].astype(object).fillna("")
    known = {
        text: [kernel_traits(name) for name in text.split("\n") if name] for text in set(texts)
    }
    return [known[text] for text in texts]


def _told(kernels: Sequence[KernelTraits]) -> list[str]:
    return [word for kernel in kernels for word in (kernel.does, *kernel.traits) if word]


def _launched_columns(rows: pd.DataFrame, words: Sequence[str]) -> dict[str, Floats]:
    """Return launches by what their kernels do and how they are built, and their grids."""
    traits = _traits(rows)
    told = [Counter(_told(trait)) for trait in traits]
    bound = np.log(_numbers(rows, BOUND) + _LEAST_US)
    with np.errstate(divide="ignore"):
        kernels, threads, waves = (
            np.log(_numbers(rows, name)) for name in ("kernels", "threads", "waves_per_sm")
        )
    cores = [{kernel.tensor_cores for kernel in trait} for trait in traits]
    aligned = [[kernel.alignment for kernel in trait if kernel.alignment] for trait in traits]
    return {
        "log kernels": kernels,
        "different kernels": np.array([len(trait) for trait in traits], dtype=float),
        **{f"launched {word}": np.array([float(each[word]) for each in told]) for word in words},
        "tensor cores": np.array([1.0 if True in has else -float(False in has) for has in cores]),
        "alignment": np.array([min(each, default=np.nan) for each in aligned], dtype=float),
        "log threads": threads,
        "log threads / bound": threads - bound,
        "log waves": waves,
        "log shared memory": np.log1p(_numbers(rows, "shared_memory_per_block")),
        "registers_per_thread": _numbers(rows, "registers_per_thread"),
        "theoretical_occupancy": _numbers(rows, "theoretical_occupancy"),
    }


def _counted_columns(rows: pd.DataFrame, metrics: Sequence[str]) -> dict[str, Floats]:
    catalogue = load_catalogue()
    bound = np.log(_numbers(rows, BOUND) + _LEAST_US)
    columns = {"log kernels": np.log(_numbers(rows, "kernels"))}
    for name in metrics:
        values = _numbers(rows, name)
        if catalogue[name].merge == "sum":
            columns[f"log {name}"] = np.log1p(np.maximum(values, 0.0))
            # how much more than the bound's worth: what a tree would need many splits for
            columns[f"log {name} / bound"] = columns[f"log {name}"] - bound
        else:
            columns[name] = values
    return columns


def _numbers(rows: pd.DataFrame, name: str) -> Floats:
    if name not in rows.columns:
        return np.full(len(rows), np.nan)
    return np.asarray(rows[name].to_numpy(dtype=float, na_value=np.nan), dtype=np.float64)


def _sizes(text: object) -> tuple[int, ...]:
    """Return the sizes in ``1x64x56x56``; none where it is no such text."""
    if not isinstance(text, str):
        return ()
    parts = text.split("x")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def _products(column: pd.Series[Any]) -> Floats:
    """Return the elements of windows such as ``3x3``; a single number is a square's side."""
    found = []
    for text in column:
        sizes = _sizes(text)
        found.append(
            float(sizes[0] ** 2 if len(sizes) == 1 else math.prod(sizes or (0,))) or np.nan
        )
    return np.array(found, dtype=float)


LEAST_BYTES = 32.0
"""Bytes of one sector: what a layer moves at least, so that no bound is 0."""


def with_bounds(layers: pd.DataFrame, peaks: Mapping[str, Peaks] | None = None) -> pd.DataFrame:
    """Add the time that the peaks of each row's GPU allow at least, in microseconds.

    `layers` have the amounts of work (`perfml.modeling.with_layer_facts`). `peaks`, by device, are
    for those that are not tabulated. The vendor's are taken for all others, measured ones only
    where these are missing: bounds of two GPUs have to be comparable. ``bound_us`` is the larger of
    ``compute_us`` and ``memory_us`` (S. Williams et al., "Roofline", CACM 52, 2009); missing where
    the work, the GPU's peaks or the peak of the precision are not known.
    """
    given = dict(peaks or {})
    devices = layers["device"].astype(object).where(layers["device"].notna(), None)
    roofs = {device: given.get(str(device)) or _tabulated(device) for device in set(devices)}
    precisions = layers["precision"].astype(object)
    pairs = list(zip(devices, precisions, strict=True))
    known = {pair: _rates(roofs[pair[0]], pair[1]) for pair in set(pairs)}
    rates = np.array([known[pair] for pair in pairs], dtype=float).reshape(-1, 2)
    moved = _column(layers, "input_bytes", "weight_bytes", "output_bytes")
    found = layers.copy()
    found["compute_us"] = _column(layers, "flops") / rates[:, 0] * 1e6
    found["memory_us"] = np.maximum(moved, LEAST_BYTES) / rates[:, 1] * 1e6
    # operations that nobody counts leave the bytes as the bound
    memory, compute = (found[name].to_numpy(dtype=float) for name in ("memory_us", "compute_us"))
    found[BOUND] = np.where(np.isnan(memory), np.nan, np.fmax(memory, compute))
    return found


def _rates(peaks: Peaks | None, precision: object) -> tuple[float, float]:
    if peaks is None:
        return (np.nan, np.nan)
    return (peaks.values.get(str(precision), np.nan), peaks.values.get("dram", np.nan))


def _tabulated(device: object) -> Peaks | None:
    """Return a device's peaks by its data sheet, else whatever is known of it."""
    for kind in (DATA_SHEET, None):
        try:
            return known_peaks(str(device), kind)
        except PerfmlError:
            continue
    return None


def _column(layers: pd.DataFrame, *names: str) -> Floats:
    total = np.zeros(len(layers))
    for name in names:
        total = total + layers[name].to_numpy(dtype=float, na_value=np.nan)
    return total
