"""The two layer shapes, the layers' names, and the least work that a product takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfml.errors import InputError

FLOAT = 4
"""Bytes of a value."""


@dataclass(frozen=True)
class Shape:
    """One product: ``out[word][i] = sum over m of weights[i][m] * in[word][m]``.

    Attributes
    ----------
    name
        ``small`` or ``large``.
    model
        Length of the sums.
    qkv
        Outputs a word: queries, keys and values of all heads.
    words
        Words of all samples.
    """

    name: str
    model: int
    qkv: int
    words: int

    @property
    def iterations(self) -> int:
        """Multiply-adds, one an iteration of the innermost loop."""
        return self.model * self.qkv * self.words

    @property
    def read_bytes(self) -> int:
        """Bytes read if every weight and every input were read once."""
        return FLOAT * self.model * (self.qkv + self.words)

    @property
    def write_bytes(self) -> int:
        """Bytes written if every output is written once."""
        return FLOAT * self.qkv * self.words

    def about(self) -> dict[str, Any]:
        """Return JSON values for ``run.json``."""
        return {
            "d_model": self.model,
            "d_qkv": self.qkv,
            "d_ws": self.words,
            "flops": 2 * self.iterations,
            "input_bytes": self.read_bytes,
            "output_bytes": self.write_bytes,
        }


SHAPES = {
    "small": Shape("small", model=32, qkv=96, words=29700),
    "large": Shape("large", model=512, qkv=1536, words=2970),
}
WARPS = (1, 2, 3, 4, 8, 16, 32)
MOST_WARPS = 32
MOST_RESIDENT = 32
"""Blocks that a multiprocessor holds at once."""


def layer_name(shape: Shape, warps: int, blocks: int = 0) -> str:
    """Return the layer of a shape, warps a block and ``blocks`` as asked for.

    Examples
    --------
    >>> layer_name(SHAPES["small"], 4), layer_name(SHAPES["small"], 4, -2)
    ('small_w4', 'small_w4_n2')
    """
    several = f"_n{-blocks}" if blocks < -1 else ""
    return f"{shape.name}_w{warps}{several}"


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Read ``--set shapes=``: ``small``, ``large`` or both, comma-separated."""
    names = [each.strip() for each in text.split(",")]
    for name in names:
        if name not in SHAPES or names.count(name) > 1:
            what, cure = "not a list of layer shapes", f"There are: {', '.join(SHAPES)}."
            raise InputError(what, where="--set shapes", found=text, cure=cure)
    return tuple(SHAPES[name] for name in names)


def parse_warps(text: str) -> tuple[int, ...]:
    """Read ``--set warps=``: warps a block, 1 to 32, comma-separated."""
    words = [each.strip() for each in text.split(",")]
    good = all(word.isascii() and word.isdigit() and 1 <= int(word) <= MOST_WARPS for word in words)
    if not good or len({int(word) for word in words}) < len(words):
        what, cure = "not a list of warps a block", f"Example: --set warps=4,8 (1 to {MOST_WARPS})."
        raise InputError(what, where="--set warps", found=text, cure=cure)
    return tuple(int(word) for word in words)


def parse_blocks(text: str) -> int:
    """Read ``--set blocks=``: blocks of a launch; 0 for one a multiprocessor, -2 for two."""
    digits = text.removeprefix("-")
    most = MOST_RESIDENT if text.startswith("-") else (1 << 31) - 1
    if not (digits.isascii() and digits.isdigit()) or int(digits) > most:
        what = "not a number of blocks"
        cure = f"0 is one block a multiprocessor, -2 two of them (to -{MOST_RESIDENT}), 264 is 264."
        raise InputError(what, where="--set blocks", found=text, cure=cure)
    return int(text)


def blocks_of(asked: int, multiprocessors: int) -> int:
    """Return the blocks of a launch: `asked`, or so many on each multiprocessor.

    Examples
    --------
    >>> blocks_of(0, 132), blocks_of(-2, 132), blocks_of(7, 132)
    (132, 264, 7)
    """
    return asked if asked > 0 else max(1, -asked) * multiprocessors
