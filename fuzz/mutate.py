"""Mutations that keep a text file a text file: whole lines and whole cells, not only bytes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

_CELLS = re.compile(rb"(,|\s{2,}|=|\t)")
_ODD = (
    *(b"", b"-1", b"0", b"inf", b"-inf", b"nan", b"1e400", b"1e-400", b"9" * 25, b"9" * 5000),
    *(b"1,234", b"1.234,5", b"\xff", b"\x00", b"\xef\xbb\xbf", b"\x1b[31m", b"\r", b'"', b'""'),
    *("\u0663".encode(), "\u2028".encode(), "\ud55c".encode(), b"x" * 300, b"%s", b"(1, 2, 3)"),
)


def mutated(
    data: bytes, size: int, seed: int, words: Sequence[bytes], bytewise: Callable[..., bytes]
) -> bytes:
    """Return a changed copy of `data`, of `size` bytes or fewer.

    Parameters
    ----------
    data
        Any bytes.
    size
        Most bytes of the result.
    seed
        Of the random choices.
    words
        What the format is made of.
    bytewise
        The fuzzer's own mutation, used for half of the changes.
    """
    rng = random.Random(seed)  # noqa: S311 - nothing secret
    if not data or rng.random() < 0.5:
        return bytewise(data, size)
    for _ in range(rng.randint(1, 3)):
        data = _changed(data, rng, [*words, *_ODD])
    return data[:size]


def _changed(data: bytes, rng: random.Random, words: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    change = rng.randrange(8)
    if change == 0:
        del lines[at]
    elif change == 1:
        lines[at:at] = [lines[at]] * rng.choice((1, 1, 2, 40))
    elif change == 2:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif change == 3:
        lines.insert(at, rng.choice(words))
    elif change == 4:
        del lines[at + 1 :]
    else:
        lines[at] = _line(lines[at], rng, words)
    return b"\n".join(lines)


def _line(line: bytes, rng: random.Random, words: Sequence[bytes]) -> bytes:
    parts = _CELLS.split(line)
    at = rng.randrange(0, len(parts), 2)
    change = rng.randrange(5)
    if change == 0:
        other = rng.randrange(0, len(parts), 2)
        parts[at], parts[other] = parts[other], parts[at]
    elif change == 1:
        del parts[at : at + 2]
    elif change == 2:
        parts[at] *= rng.choice((2, 3, 50))
    else:
        word = rng.choice(words)
        quoted = parts[at].startswith(b'"') and parts[at].endswith(b'"') and rng.random() < 0.9
        parts[at] = b'"' + word + b'"' if quoted else word
    return b"".join(parts)
