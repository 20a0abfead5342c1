"""Find an ordered list of items in a sequence, in time linear in the sequence.

What a regular expression does for characters, for launches: but without its blow-up where many
items repeat. A place (step, position) that has failed once is never tried again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

REPEATS = ("", "+", "?", "*")
"""Exactly one, one or more, one or none, any number."""


@dataclass(frozen=True)
class Item:
    """What may stand at one place: any of `symbols`, repeated as `repeat` says."""

    symbols: frozenset[int]
    repeat: str = ""


@dataclass(frozen=True)
class Match:
    """Where a list was found: `bounds` has the begin of every group, and the end of the last."""

    bounds: tuple[int, ...]


class Pattern:
    """Groups of items, in order; symbols to `pause` at may follow any item, any number of times.

    Some item of a group must be there for certain.
    """

    def __init__(self, groups: Sequence[Sequence[Item]], pause: Collection[int] = ()) -> None:
        self.groups = len(groups)
        self.furthest: dict[int, int] = {}
        """Of groups found in a row: where the last one first ended."""
        self._steps: list[tuple[str, frozenset[int], int, int]] = []
        self._pause = frozenset(pause)
        for group in groups:
            self._add("group")
            for item in group:
                self._item(item)
        self._add("end")

    def matches(self, sequence: Sequence[int]) -> Iterator[Match]:
        """Yield all matches from the left; each begins where the one before ended, or later.

        Items take as many symbols as they can while the rest still fits, as in a regular
        expression.
        """
        # One bit a step for each position: what was tried there, and failed.
        tried = [0] * (len(sequence) + 1)
        self.furthest = {}
        start = 0
        while start < len(sequence):
            bounds = self._from(start, sequence, tried)
            if bounds is None:
                start += 1
                continue
            yield Match(bounds)
            start = bounds[-1]
            tried[start] = 0  # the only place where not everything that was tried has failed

    def _from(
        self, start: int, sequence: Sequence[int], tried: list[int]
    ) -> tuple[int, ...] | None:
        steps = self._steps
        bounds: list[int] = []
        # A choice that is left: step, position, and how many groups had begun.
        choices = [(0, start, 0)]
        while choices:
            step, position, begun = choices.pop()
            del bounds[begun:]
            while not tried[position] >> step & 1:
                tried[position] |= 1 << step
                kind, symbols, first, second = steps[step]
                if kind == "take":
                    if position == len(sequence) or sequence[position] not in symbols:
                        break
                    step, position = step + 1, position + 1
                elif kind == "choose":
                    choices.append((second, position, len(bounds)))
                    step = first
                elif kind == "group":
                    self.furthest.setdefault(len(bounds), position)
                    bounds.append(position)
                    step += 1
                else:
                    return (*bounds, position)
        return None

    def _add(self, kind: str, symbols: frozenset[int] = frozenset()) -> int:
        self._steps.append((kind, symbols, 0, 0))
        return len(self._steps) - 1

    def _item(self, item: Item) -> None:
        """Add the steps of one item; a choice prefers to take another symbol."""
        skip = self._add("choose") if item.repeat in ("?", "*") else None
        begin = self._add("take", item.symbols)
        if self._pause:
            self._loop(self._pause)
        if item.repeat in ("+", "*"):
            again = self._add("choose")
            self._steps[again] = ("choose", frozenset(), begin, again + 1)
        if skip is not None:
            self._steps[skip] = ("choose", frozenset(), begin, len(self._steps))

    def _loop(self, symbols: frozenset[int]) -> None:
        head = self._add("choose")
        self._add("take", symbols)
        back = self._add("choose")
        for place in (head, back):
            self._steps[place] = ("choose", frozenset(), head + 1, back + 1)
