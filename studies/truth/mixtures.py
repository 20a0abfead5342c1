"""Layers of two planted families: the kernels of one after those of the other, as recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from studies.truth.scores import (
    EFFECT,
    Answers,
    Family,
    Truth,
    add_answer,
    disjoint_pairs,
    named_by_explain,
    named_by_model,
)

BASE, MIXED = "base", "mixed"


@dataclass(frozen=True)
class Mixture:
    """Two families, each with a size and a level.

    Attributes
    ----------
    families, layers, levels
        Of the first and of the second part.
    """

    families: tuple[Family, Family]
    layers: tuple[str, str]
    levels: tuple[str, str]

    @property
    def layer(self) -> str:
        """Name of the mixture."""
        return " and ".join(
            f"{layer} at {level}" for layer, level in zip(self.layers, self.levels, strict=True)
        )


def draw(truth: Truth, layers: pd.DataFrame, seed: int) -> list[Mixture]:
    """Return one mixture of every two families: size and level of each are drawn."""
    random = np.random.default_rng(seed)
    levels = [each for each in truth.levels if each != truth.baseline]
    known = set(layers["layer"])
    found = []
    for pair in disjoint_pairs(truth, layers):
        sizes = [[layer for layer in family.layers if layer in known] for family in pair]
        chosen = [(str(random.choice(each)), str(random.choice(levels))) for each in sizes]
        found.append(Mixture(pair, (chosen[0][0], chosen[1][0]), (chosen[0][1], chosen[1][1])))
    return found


def mix(kernels: pd.DataFrame, mixtures: Sequence[Mixture], baseline: str) -> pd.DataFrame:
    """Return a Kernels table of the mixtures: side `BASE`, and side `MIXED` at their levels."""
    homes = dict(list(kernels.groupby(["layer", "backend"], sort=False)))
    found = []
    for mixture in mixtures:
        for side, levels in ((BASE, (baseline, baseline)), (MIXED, mixture.levels)):
            parts = [
                homes[layer, level].assign(part=part)
                for part, (layer, level) in enumerate(zip(mixture.layers, levels, strict=True))
            ]
            rows = pd.concat(parts).sort_values(["iteration", "part", "kernel_index"])
            place = rows.groupby("iteration").cumcount()
            found.append(
                rows.drop(columns="part").assign(
                    layer=mixture.layer, backend=side, run_id=side, kernel_index=place
                )
            )
    return pd.concat(found, ignore_index=True)


def ask_mixtures(
    layers: pd.DataFrame, kernels: pd.DataFrame, truth: Truth, *, seed: int, shapley: bool
) -> Answers:
    """Ask the attributions, and advice, about layers with two planted causes.

    A mixture is a case where either cause makes the whole layer slower by `EFFECT` or more.
    """
    from perfml.explain import explain, sides_of
    from perfml.explain.model.explainer import Explainer

    answers = Answers()
    times = layers.groupby(["layer", "backend"])["time_us"].mean()
    mixtures = []
    for each in draw(truth, layers, seed):
        before = [float(times[layer, truth.baseline]) for layer in each.layers]
        after = [float(times[pair]) for pair in zip(each.layers, each.levels, strict=True)]
        more = [(b - a) / sum(before) for a, b in zip(before, after, strict=True)]
        if min(more) < EFFECT - 1:
            said = " and ".join(f"{value:+.1%}" for value in more)
            answers.left_out.append((each.layer, f"a cause of too little effect: {said}"))
        else:
            mixtures.append(each)
    if not mixtures:
        return answers
    left, right = sides_of(mix(kernels, mixtures, truth.baseline), BASE, MIXED)
    explainer = Explainer(layers, seed=seed) if shapley else None
    asked = [each.layer for each in mixtures]
    details = explain(left, right, layers=asked, model=None).details
    for mixture, detail in zip(mixtures, details, strict=True):
        named = named_by_explain(detail, right.name)
        if explainer is not None:
            named["Shapley"] = named_by_model(explainer, detail.layer, left, right)
        for method, names in named.items():
            add_answer(answers, method, mixture.families, mixture.layer, names, "mixture")
    return answers
