"""What is printed of causes, over every pair of launches that was recorded: nothing absurd."""

from __future__ import annotations

import functools
from itertools import combinations
from unittest.mock import patch

import pandas as pd
import pytest

from perfml.explain import explain, load_tables, sides_of
from perfml.explain.advice.hazards import COLUMNS
from perfml.explain.counters.sentences import cause_in_words
from perfml.explain.counters.terms import TERMS, Kind

pytestmark = pytest.mark.slow

LADDERS = ("h200-attention", "h200-conv", "h200-qkv", "h200-yolov4-tiny", "h200-sweep")
PLANTED = ("h200-planted", "h200-planted-causes", "h100-planted-causes")
NO_LEVELS = (Kind.LAUNCH, Kind.MEASUREMENT, Kind.RESIDUAL)


@functools.cache
def details(name):
    """Return the explanations of every layer and every two backends of a data set."""
    layers, kernels = load_tables(name)
    # advice is not looked at here, and takes two thirds of the time
    nothing = pd.DataFrame(columns=["side", *COLUMNS])
    with patch("perfml.explain.compare._advice", return_value=nothing):
        return _details(layers, kernels)


def _details(layers, kernels):
    keys = [key for key in ("precision", "batch") if key in layers]
    found = []
    for _, part in layers.groupby(keys, dropna=False):
        for one, other in combinations(dict.fromkeys(part["backend"]), 2):
            pair = sides_of(part, one, other, kernels=kernels)
            found += explain(*pair, top=10_000, model=None).details
    return found


@pytest.mark.parametrize("name", [*PLANTED, *LADDERS])
def test_no_recorded_pair_is_explained_absurdly(name):
    assert len(details(name)) > 50
    for detail in details(name):
        assert detail.causes.terms["share"].between(0, 1).all()
        for pair in detail.causes.pairs:
            for part in pair.contributions:
                if part.term.kind in NO_LEVELS or part.log_ratio == 0:
                    continue
                step = part.target - part.baseline
                slower = (step < 0) if part.term.falls else (step > 0)
                if part.term.kind is not Kind.STALL and step:
                    assert slower is (part.log_ratio > 0), (detail.layer, part)
                if part.term.id == "dram_bytes_per_sector":
                    assert max(part.baseline, part.target) <= 64
                if part.term.id == "l2_sectors_per_l1_sector":
                    assert max(part.baseline, part.target) <= 3
        for total in detail.causes.totals:
            assert TERMS[total.term.id].label in cause_in_words(total, detail.causes)
