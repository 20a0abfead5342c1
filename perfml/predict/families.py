"""Families of kinds of layers: a kind that nobody measured still belongs to one.

A layer's kind is the class of its module (``Conv2d``, ``LlamaRMSNorm``) or the first operator
between modules (``add``). Libraries have hundreds of classes, which do a dozen kinds of work.
"""

from __future__ import annotations

import re

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
