"""How long counting will take, told while it runs: from what the first passes of a program took.

The injected library writes its notes as it goes (``injected/record.h``): how many launches an
iteration has, how many passes a group of metrics takes, and what each pass took. After the first
pass of every context the rest is arithmetic.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from perfml.util.words import count

Tell = Callable[[str], None]
"""Takes a sentence for the person who waits."""

LEAST_S = 30.0
"""What takes less is not spoken of."""

LONG_S = 300.0
"""From here on a person is asked before launches are repeated on the spot."""

REPLAYED_S = 0.12
"""Seconds of a launch that CUPTI repeats on the spot for the default set (12 passes, H100)."""

_LOOK_S = 0.5
"""Seconds between two looks at what the library wrote."""

_READ_S, _IN_CODE_S = 0.00074, 0.0039
"""Seconds a launch for its values, and for a pass of instrumented code (H200; both processor)."""


@dataclass
class _Seen:
    """What one process has noted so far; bytes of the record that were read."""

    offset: int = 0
    expected: int = 0
    passes: int = 0
    apart: bool = False
    launches: int = 0
    seconds: float = 0.0

    def read(self, path: Path) -> None:
        """Read the whole lines that were added."""
        with path.open("rb") as record:
            record.seek(self.offset)
            added = record.read()
        whole = added[: added.rfind(b"\n") + 1]
        self.offset += len(whole)
        for line in whole.split(b"\n"):
            word, _, said = line.removeprefix(b"# ").partition(b" ")
            if line.startswith(b"# ") and word in _NOTES:
                self._note(word, said.split())

    def _note(self, word: bytes, said: list[bytes]) -> None:
        if word == b"expects":
            self.expected = max(self.expected, int(said[0]))
        elif word == b"apart":
            self.apart = True
        elif word == b"group":
            self.passes = self.passes or int(said[2])
        elif int(said[0]):
            # the first start of a pass sets the session up, once
            self.launches, self.seconds = int(said[0]), sum(map(float, said[3:]))


_NOTES = (b"expects", b"apart", b"group", b"pass")


@dataclass
class Forecast:
    """Says once, after a program's first pass, how long counting `sets` measurements will take.

    The program's processes write their records into `folder`; `tell` takes the sentence, and `said`
    is that sentence, empty as long as there was none to say.
    """

    folder: Path
    sets: int
    tell: Tell
    said: str = ""
    _done: bool = False
    _seen: dict[Path, _Seen] = field(default_factory=dict)
    _next: float = 0.0

    def __call__(self) -> None:
        """Look at what was written meanwhile."""
        if self._done or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LOOK_S
        try:
            for path in self.folder.glob("*.tsv"):
                seen = self._seen.setdefault(path, _Seen())
                seen.read(path)
                if seen.launches and seen.expected:
                    self._say(seen)
                    return
        except (OSError, ValueError, IndexError):
            self._done = True  # what cannot be read is told when the program has ended

    def _say(self, seen: _Seen) -> None:
        self._done = True
        one, several = (seconds(seen, sets) for sets in (1, self.sets))
        if several < LEAST_S:
            return
        each = seen.seconds / seen.launches
        parts = -(-seen.expected // seen.launches)
        measured = f", {self.sets} times" if self.sets > 1 else ""
        in_parts = f" in {parts} parts, an iteration each" if parts > 1 else ""
        shorter = ["--metrics published", "fewer launches an iteration"]
        if self.sets > 1:
            shorter.insert(0, f"--metric-iterations 1 ({in_words(one)})")
        self.said = (
            f"{count(seen.expected, 'launch', 'launches')} an iteration, "
            f"{count(seen.passes, 'pass', 'passes')} of the hardware's counters{measured}"
            f"{in_parts}, {1e3 * each:.2g} ms a launch and pass: counting takes about "
            f"{in_words(several)}. Shorter: {', '.join(shorter)}."
        )
        self.tell(self.said)


def seconds(seen: _Seen, sets: int) -> float:
    """Return about how long the launches of an iteration take for `sets` sets of metrics."""
    each = seen.passes * seen.seconds / seen.launches + _READ_S
    return seen.expected * (sets * each + (_IN_CODE_S if seen.apart else 0.0))


def of_replay(launches: int) -> str:
    """Say how long launches take that CUPTI repeats on the spot; empty where that is short."""
    whole = launches * REPLAYED_S
    if whole < LEAST_S:
        return ""
    return (
        f"{launches:,} launches are repeated on the spot, about {REPLAYED_S} s each with the "
        f"default metrics: about {in_words(whole)}. Shorter: iterations of the same launches in "
        "NVTX ranges iter_0, iter_1, ... (perfml.iteration(n) in PyTorch), as many as passes; "
        "--metrics published; fewer launches."
    )


def in_words(whole: float) -> str:
    """Return seconds as people say them.

    Examples
    --------
    >>> in_words(42.3), in_words(200), in_words(7300)
    ('42 s', '3 min 20 s', '2 h 2 min')
    """
    minutes, rest = divmod(round(whole), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
