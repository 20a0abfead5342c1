"""What is printed of causes, over every pair of launches that was recorded: nothing absurd."""

from __future__ import annotations

from itertools import combinations

import pytest

from perfml.explain import load_tables
from perfml.explain.compared import make_side, same_device
from perfml.explain.launches import LaunchReader, changes_between
from perfml.explain.tree.causes import Kind
from perfml.explain.tree.layer import kernel_causes
from perfml.explain.words import levels_in_words
from tests.support.sampled import sampled

pytestmark = pytest.mark.long

LADDERS = ("h200-attention", "h200-conv", "h200-qkv", "h200-yolov4-tiny", "h200-sweep")
PLANTED = ("h200-planted", "h200-planted-causes", "h100-planted-causes")
NO_LEVELS = (Kind.LAUNCH, Kind.MEASUREMENT, Kind.RESIDUAL)


def recorded_causes(name):
    """Give the causes of every layer between every two backends of a data set."""
    layers, kernels = load_tables(name)
    keys = [key for key in ("precision", "batch") if key in layers]
    for _, part in layers.groupby(keys, dropna=False):
        sides = {}
        for backend, rows in part.groupby("backend", sort=False):
            inside = kernels["run_id"].isin(rows["run_id"]) & (kernels["backend"] == backend)
            side = make_side(backend, rows, kernels[inside])
            read, times = LaunchReader(side).read, rows.groupby("layer")["time_us"].mean()
            sides[backend] = (side, {layer: read(layer, time) for layer, time in times.items()})
        for (left, ours), (right, theirs) in combinations(sides.values(), 2):
            comparable = same_device(left, right)
            for layer in ours.keys() & theirs.keys():
                before, after = ours[layer], theirs[layer]
                changes = changes_between(before.names, after.names)
                yield layer, kernel_causes(changes, before, after, same_device=comparable)


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled([*PLANTED, *LADDERS], 2))
def test_no_recorded_pair_is_explained_absurdly(name):
    pairs = list(recorded_causes(name))
    assert len(pairs) > 50
    for layer, causes in pairs:
        assert causes.terms["share"].between(0, 1).all()
        for pair in causes.pairs:
            for part in pair.contributions:
                if part.term.kind in NO_LEVELS or part.log_ratio == 0:
                    continue
                step = part.target - part.baseline
                slower = (step < 0) if part.term.falls else (step > 0)
                if part.term.kind is not Kind.STALL and step:
                    assert slower is (part.log_ratio > 0), (layer, part)
                if part.term.id == "dram_bytes_per_sector":
                    assert max(part.baseline, part.target) <= 64
                if part.term.id == "l2_sectors_per_l1_sector":
                    assert max(part.baseline, part.target) <= 3
        for total in causes.totals:
            assert "{" not in levels_in_words(total, causes)
