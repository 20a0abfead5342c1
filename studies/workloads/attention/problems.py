"""Problems: independent rows of tokens with a head dimension, and what they cost."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from perfml.errors import InputError

SETS = {
    "small": "10x1024x64,1360x128x32,50x512x64,4x2048x32,2x1024x64",
    "published": "10x2048x64,13600x128x32,500x2048x64,4x32768x32,2x32768x64",
    "tokens": "48x1600x64,48x3200x64,48x6400x64,48x12800x64,48x25600x64",
}
"""Names for ``sizes``: `published` is the fp32 ladder's, `small` fits counters in many passes,
`tokens` is batch 4 with 12 heads over the number of tokens."""
_SIZE = re.compile(r"(\d+)x(\d+)x(\d+)")


@dataclass(frozen=True)
class Problem:
    """Attention of `count` independent problems.

    Attributes
    ----------
    count
        Batch times heads.
    tokens
        Rows of Q, K and V.
    dim
        Head dimension: columns.
    causal
        Whether a token sees only itself and those before it.
    """

    count: int
    tokens: int
    dim: int
    causal: bool = False

    @property
    def name(self) -> str:
        """Name of the layer, ``b48_n25600_d64``."""
        mask = "_causal" if self.causal else ""
        return f"b{self.count}_n{self.tokens}_d{self.dim}{mask}"

    @property
    def elements(self) -> int:
        """Elements of each of Q, K, V and O."""
        return self.count * self.tokens * self.dim

    @property
    def flops(self) -> int:
        """Two products of 2 n² d operations each; half of them with a causal mask."""
        full = 4 * self.count * self.tokens**2 * self.dim
        return full // 2 if self.causal else full

    def about(self, element_bytes: int) -> dict[str, Any]:
        """Return JSON values: operations and the fewest bytes to move."""
        return {
            "problems": self.count,
            "tokens": self.tokens,
            "head_dim": self.dim,
            "causal": self.causal,
            "flops": self.flops,
            "input_bytes": 3 * self.elements * element_bytes,
            "output_bytes": self.elements * element_bytes,
        }


def parse_sizes(text: str) -> tuple[Problem, ...]:
    """Read sizes: names of `SETS` or ``PROBLEMSxTOKENSxDIM``, separated by commas.

    Raises
    ------
    InputError
        If a word is neither, a number is 0, or a size comes twice.

    Examples
    --------
    >>> parse_sizes("10x2048x64")[0].name
    'b10_n2048_d64'
    """
    words = [word.strip() for part in text.split(",") for word in _expand(part.strip())]
    found = []
    for word in words:
        match = _SIZE.fullmatch(word)
        numbers = [int(number) for number in match.groups()] if match else []
        if not numbers or 0 in numbers:
            what = "a size is PROBLEMSxTOKENSxDIM or the name of a set"
            cure = f"Sets: {', '.join(SETS)}. Example: --set sizes=10x2048x64."
            raise InputError(what, where="--set sizes", found=word, cure=cure)
        found.append(Problem(numbers[0], numbers[1], numbers[2]))
    if len(set(found)) < len(found):
        what = "a size is given twice"
        raise InputError(what, where="--set sizes", found=text)
    return tuple(found)


def _expand(word: str) -> list[str]:
    return SETS[word].split(",") if word in SETS else [word]


def times(problem: Problem, batch: int) -> Problem:
    """Return `batch` times as many problems."""
    return replace(problem, count=problem.count * batch)


def reference(q: Any, k: Any, v: Any, *, causal: bool) -> Any:
    """Return attention in double precision, of tensors as they are.

    Parameters
    ----------
    q, k, v
        torch tensors of shape (problems, tokens, dim), on any device.

    Returns
    -------
    torch.Tensor
        float64, of the same shape. Scores are held for one problem and some rows at a time.
    """
    import torch

    count, tokens, dim = q.shape
    out = torch.empty((count, tokens, dim), dtype=torch.float64, device=q.device)
    rows = max(1, min(tokens, _SCORES // tokens))
    group = max(1, _SCORES // (rows * tokens))
    columns = torch.arange(tokens, device=q.device)
    for first in range(0, count, group):
        problems = slice(first, first + group)
        keys, values = k[problems].double(), v[problems].double()
        for start in range(0, tokens, rows):
            part = slice(start, min(start + rows, tokens))
            scores = q[problems, part].double() @ keys.transpose(1, 2)
            scores *= dim**-0.5
            if causal:
                seen = columns[None, :] <= columns[part, None]
                scores.masked_fill_(~seen, float("-inf"))
            out[problems, part] = torch.softmax(scores, dim=-1) @ values
    return out


_SCORES = 1 << 27
"""Scores held at once: a gibibyte of doubles."""
