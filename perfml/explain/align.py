"""Which layer of one side answers to which of the other."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pandas as pd

from perfml.errors import PerfmlError
from perfml.modeling.layer_shapes import AMOUNTS


@dataclass(frozen=True)
class Launched:
    """What a side launches of a kernel in a repeat of its program.

    Attributes
    ----------
    launches
        How often.
    total_us
        The time of all of them, in microseconds.
    """

    launches: float
    total_us: float


@dataclass(frozen=True)
class Alignment:
    """Pairs of layers, and what found no partner.

    Attributes
    ----------
    pairs
        ``layer, target_layer, aligned_by`` in the baseline's order.
    only_baseline, only_target
        Names without a partner.
    launched
        What the baseline and the target launch of each pair, where the rows of a layer are single
        launches; None where a row is the layer of a repeat.
    whole_us
        Then the time of all launches of a repeat, those without a partner among them.
    said
        How the pairs were found, in sentences, where names of ranges did not tell.
    """

    pairs: pd.DataFrame
    only_baseline: tuple[str, ...]
    only_target: tuple[str, ...]
    launched: tuple[tuple[Launched, Launched], ...] | None = None
    whole_us: tuple[float, float] | None = None
    said: tuple[str, ...] = ()

    @property
    def names(self) -> list[tuple[str, str]]:
        """The names of each pair."""
        columns = (self.pairs[name].astype(str) for name in ("layer", "target_layer"))
        return list(zip(*columns, strict=True))


def align_layers(baseline: pd.DataFrame, target: pd.DataFrame) -> Alignment:
    """Align the layers of two Layers tables.

    By name first; the rest by shape (equal amounts of work, in order of appearance) where both
    tables have the columns `AMOUNTS`; a single layer on each side is aligned whatever its name.

    Raises
    ------
    PerfmlError
        If no layer finds a partner.
    """
    left, right = _names(baseline), _names(target)
    pairs: dict[str, tuple[str, str]] = {}
    if len(left) == len(right) == 1:
        how = "name" if left == right else "only one"
        pairs[left[0]] = (right[0], how)
    else:
        pairs |= {name: (name, "name") for name in left if name in set(right)}
        taken = set(pairs)
        pairs |= _by_shape(
            baseline,
            target,
            [name for name in left if name not in taken],
            [name for name in right if name not in taken],
        )
    if not pairs:
        msg = "no layer of one side answers to a layer of the other"
        raise PerfmlError(
            msg,
            found=f"{', '.join(left[:4])} against {', '.join(right[:4])}",
            cure="Use the same range names on both sides, or tables with shapes "
            "(perfml.modeling.with_shapes), or keep one layer a side.",
        )
    met = {partner for partner, _ in pairs.values()}
    rows = [(name, *pairs[name]) for name in left if name in pairs]
    return Alignment(
        pd.DataFrame(rows, columns=["layer", "target_layer", "aligned_by"]),
        tuple(name for name in left if name not in pairs),
        tuple(name for name in right if name not in met),
    )


def _names(layers: pd.DataFrame) -> list[str]:
    return [str(name) for name in dict.fromkeys(layers["layer"].dropna())]


def _by_shape(
    baseline: pd.DataFrame, target: pd.DataFrame, left: list[str], right: list[str]
) -> dict[str, tuple[str, str]]:
    if not all(name in side.columns for name in AMOUNTS for side in (baseline, target)):
        return {}
    waiting: dict[tuple[float, ...], list[str]] = defaultdict(list)
    for name, shape in _shapes(target, right).items():
        waiting[shape].append(name)
    found = {}
    for name, shape in _shapes(baseline, left).items():
        if waiting[shape]:
            found[name] = (waiting[shape].pop(0), "shape")
    return found


def _shapes(layers: pd.DataFrame, names: list[str]) -> dict[str, tuple[float, ...]]:
    first = layers.drop_duplicates("layer").set_index("layer")[list(AMOUNTS)].dropna()
    return {
        name: tuple(first.loc[[name]].to_numpy(dtype=float)[0].tolist())
        for name in names
        if name in first.index
    }
