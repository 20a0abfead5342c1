"""Give kernels their layers where a program sets no ranges: ordered kernel-name patterns.

A layer map is a TOML file that lists what one iteration of the program launches, in order::

    skip = ["*memset*"]          # launches to pass over; they belong to no layer

    [[layer]]
    name = "conv_01"
    kernels = ["im2col_gpu_kernel", "*gemm*", "activate_array_*"]

    [[layer]]
    name = "conv_02"
    kernels = ["im2col_gpu_kernel", "*gemm* +", "add_bias_kernel ?"]

A pattern has shell wildcards (``*``, ``?``, ``[...]``) and must match a launch's function name
(``gemm`` of ``void ns::gemm<float>(...)``) or its whole name. After a blank, ``+`` stands for one
or more such launches, ``?`` for one or none, ``*`` for any number. The list is matched again and
again: the first match is iteration 0. Launches before, between and after matches stay without a
layer.
"""

from __future__ import annotations

import fnmatch
import functools
import tomllib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfml.errors import InputError
from perfml.kernel_names import function_name
from perfml.util.files import read_document

if TYPE_CHECKING:
    import pandas as pd


_KEYS = {"skip", "layer"}
REPEATS = ("", "+", "?", "*")
"""Exactly one, one or more, one or none, any number."""

_REPEATS = tuple(repeat for repeat in REPEATS if repeat)


@dataclass(frozen=True)
class LayerMap:
    """What one iteration launches.

    Attributes
    ----------
    layers
        Name and kernel patterns of each layer, in launch order.
    skip
        Patterns of launches that may come anywhere and belong to no layer.
    """

    layers: tuple[tuple[str, tuple[str, ...]], ...]
    skip: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the map as JSON values, in the form of the file."""
        layers = [{"name": name, "kernels": list(kernels)} for name, kernels in self.layers]
        return {"skip": list(self.skip), "layer": layers}

    @classmethod
    def from_dict(cls, document: object, *, where: str = "layer map") -> LayerMap:
        """Read a map from JSON or TOML values.

        Raises
        ------
        InputError
            If a key is unknown, a layer has no name or no kernels, or a name comes twice.
        """
        if not isinstance(document, dict):
            raise _wrong(where, "must be a table", type(document).__name__)
        unknown = sorted(set(document) - _KEYS)
        if unknown:
            raise _wrong(where, "unknown key", unknown[0])
        rows = document.get("layer")
        if not isinstance(rows, list) or not rows:
            found = "nothing" if rows is None else repr(rows)[:80]
            raise _wrong(where, "no [[layer]] in it", found)
        layers: list[tuple[str, tuple[str, ...]]] = []
        for number, row in enumerate(rows, 1):
            place = f"{where}, layer {number}"
            if not isinstance(row, dict) or set(row) != {"name", "kernels"}:
                raise _wrong(place, "a layer has a name and kernels, nothing else", repr(row)[:80])
            if not isinstance(row["name"], str) or not row["name"].strip():
                raise _wrong(place, "the name must be text", repr(row["name"]))
            layers.append((row["name"].strip(), _patterns(row["kernels"], place)))
        names = [name for name, _ in layers]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise _wrong(where, "two layers have the same name", twice)
        skip = document.get("skip", [])
        return cls(tuple(layers), _patterns(skip, f"{where}, skip") if skip else ())


def read_layer_map(path: str | Path) -> LayerMap:
    """Read a layer map file.

    Raises
    ------
    InputError
        If it cannot be read, is no TOML, or breaks the rules of a layer map.
    """
    path = Path(path)
    data = read_document(path)
    try:
        document = tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        # Beside its own error, tomllib lets those of int() and of deep nesting through.
        raise _wrong(str(path), "not TOML", str(error)[:200]) from error
    return LayerMap.from_dict(document, where=str(path))


def apply_layer_map(frame: pd.DataFrame, layer_map: LayerMap) -> pd.DataFrame:
    """Return a Kernels table whose launches carry the map's layers and iterations.

    Parameters
    ----------
    frame
        Kernels table of one run; its rows are taken in the order of iteration and kernel index.
    layer_map
        The map.

    Returns
    -------
    DataFrame
        The same launches. Those outside every match have no layer, and the iteration of the match
        before them.

    Raises
    ------
    InputError
        If the map matches nowhere; the message tells how far the best attempt came.
    """
    import pandas as pd

    ordered = frame.sort_values(["iteration", "kernel_index"], kind="stable", ignore_index=True)
    names = ordered["kernel"].astype(str).tolist()
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    sequence = [numbers[name] for name in names]
    pattern, skipped = _pattern(layer_map, numbers)
    layers: list[str | None] = [None] * len(names)
    iterations = [0] * len(names)
    found = 0
    last_end = 0
    for match in pattern.matches(sequence):
        first, stop = match[0], match[-1]
        iterations[last_end:first] = [max(0, found - 1)] * (first - last_end)
        iterations[first:stop] = [found] * (stop - first)
        spans = zip(match, match[1:], layer_map.layers, strict=False)
        for row_of, row_until, (layer, _) in spans:
            for row in range(row_of, row_until):
                if sequence[row] not in skipped:
                    layers[row] = layer
        found += 1
        last_end = stop
    if not found:
        raise _no_match(layer_map, names, pattern.furthest)
    iterations[last_end:] = [found - 1] * (len(names) - last_end)
    ordered["layer"] = pd.array(layers, dtype="string")
    ordered["iteration"] = pd.array(iterations, dtype="int64").to_numpy()
    ordered["kernel_index"] = ordered.groupby("iteration").cumcount()
    return ordered


def _pattern(layer_map: LayerMap, numbers: dict[str, int]) -> tuple[Pattern, frozenset[int]]:
    """Return the map over numbers for kernel names, and the numbers that are passed over."""
    known = {name: (function_name(name), number) for name, number in numbers.items()}

    @functools.cache
    def matching(wild: str) -> frozenset[int]:
        return frozenset(
            number
            for name, (bare, number) in known.items()
            if fnmatch.fnmatchcase(bare, wild) or fnmatch.fnmatchcase(name, wild)
        )

    skipped = frozenset().union(*(matching(_split(each)[0]) for each in layer_map.skip))
    groups = []
    for _, patterns in layer_map.layers:
        split = [_split(pattern) for pattern in patterns]
        groups.append([(matching(wild), repeat) for wild, repeat in split])
    return Pattern(groups, skipped), skipped


def _split(pattern: str) -> tuple[str, str]:
    wild, blank, repeat = pattern.rpartition(" ")
    return (wild.strip(), repeat) if blank and repeat in _REPEATS else (pattern.strip(), "")


def _patterns(given: object, place: str) -> tuple[str, ...]:
    if not isinstance(given, list) or not given:
        raise _wrong(place, "needs a list of kernel patterns", repr(given)[:80])
    for each in given:
        if not isinstance(each, str) or not _split(each)[0]:
            raise _wrong(place, "a kernel pattern must be text", repr(each)[:80])
    if all(_split(each)[1] in ("?", "*") for each in given):
        raise _wrong(place, "at least one kernel must be there for certain", ", ".join(given)[:80])
    return tuple(given)


def _no_match(layer_map: LayerMap, names: list[str], furthest: dict[int, int]) -> InputError:
    """Tell which layer could not be found after the layers before it were."""
    best = max((count for count in furthest if count < len(layer_map.layers)), default=0)
    end = furthest[best] if best else 0
    name, patterns = layer_map.layers[best]
    before = f" after {layer_map.layers[best - 1][0]}" if best else ""
    msg = f"the layer map does not fit: {name} ({', '.join(patterns)}) was not found{before}"
    next_kernels = [function_name(name) for name in names[end : end + 4]]
    return InputError(
        msg,
        where=f"launches, launch {end + 1} of {len(names)}",
        found=", ".join(next_kernels)[:240] or "no launch",
        cure="Compare with the kernel order in timing.csv; launches to pass over go into skip.",
    )


def _wrong(where: str, what: str, found: str) -> InputError:
    cure = "A layer: [[layer]] name = 'conv_01' kernels = ['im2col*', '*gemm* +']"
    return InputError(what, where=where, found=found, cure=cure)


Item = tuple[frozenset[int], str]
"""What may stand at one place: any of some symbols, and how often, one of `REPEATS`."""


class Pattern:
    """Groups of items, in order; symbols to `pause` at may follow any item, any number of times.

    Some item of a group must be there for certain.
    """

    def __init__(self, groups: Sequence[Sequence[Item]], pause: Collection[int] = ()) -> None:
        self.furthest: dict[int, int] = {}
        """Of groups found in a row: where the last one first ended."""
        self._steps: list[tuple[str, frozenset[int], int, int]] = []
        self._pause = frozenset(pause)
        for group in groups:
            self._add("group")
            for item in group:
                self._item(item)
        self._add("end")

    def matches(self, sequence: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield all matches from the left, as the begin of every group and the end of the last.

        A match begins where the one before ended, or later. Items take as many symbols as they can
        while the rest still fits, as in a regular expression.
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
            yield bounds
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
        symbols, repeat = item
        skip = self._add("choose") if repeat in ("?", "*") else None
        begin = self._add("take", symbols)
        if self._pause:
            self._loop(self._pause)
        if repeat in ("+", "*"):
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
