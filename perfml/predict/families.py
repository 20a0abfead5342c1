"""Families of kinds of layers: a kind that nobody measured still belongs to one.

A layer's kind is the class of its module (``Conv2d``, ``LlamaRMSNorm``) or the first operator
between modules (``add``). Libraries have hundreds of classes, which do a dozen kinds of work.
"""

from __future__ import annotations

import re

OTHER = "other"

_ELEMENTWISE = (
    "add|sub|mul|div|rsub|pow|exp|log|sqrt|rsqrt|neg|abs|sin|cos|where|gt|lt|ge|le|eq|ne|isinf|"
    "isnan|bitwise|logical|masked|fill|zero|zeros|ones|full|arange|erf|to|_?to_copy"
)
_COPIES = (
    "cat|stack|copy|clone|contiguous|roll|flip|pad|constant_pad|reflection|split|unbind|index|"
    "slice|permute|transpose|repeat|expand|im2col|unfold|fold|tril|triu|flatten|identity|dropout|"
    "droppath"
)
_PATTERNS = (
    # transformers has a linear layer of this name, with a capital D
    ("product", r"^Conv1D$"),
    ("convolution", r"(?i)conv(?!ert)"),
    ("attention", r"(?i)attention|scaled_dot_product|transformerencoderlayer"),
    ("recurrent", r"(?i)lstm|gru|rnn"),
    ("normalization", r"(?i)norm|affine|scale$"),
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


def family_of(kind: str | None) -> str:
    """Return the family of a kind of layer.

    Examples
    --------
    >>> [family_of(kind) for kind in ("Conv2d", "Conv1D", "LlamaRMSNorm", "add", "Mystery")]
    ['convolution', 'product', 'normalization', 'elementwise', 'other']
    """
    if kind is None:
        return OTHER
    return next((name for name, pattern in _COMPILED if pattern.search(kind)), OTHER)
