"""The atlas is recorded so that a lease that ends early leaves something whole."""

from __future__ import annotations

from collections import Counter

import pytest

from collectors.sweep.spec import read_sweep
from studies.atlas.record import ATLAS, FIRST, LATER, REST, TIER, named, order, recorded

LEFT_OUT = ("unet", "convnext", "gpt2", "mobilenet_v3", "vit_b", "vit_base", "/bert", "resnet50")


@pytest.fixture(scope="module")
def runs():
    return order(list(read_sweep(ATLAS / "sweep.yaml").runs.values()))


def test_every_network_comes_once_before_any_comes_again(runs):
    networks = {run.workload for run in runs}
    first = runs[: len(networks)]
    assert {run.workload for run in first} == networks
    assert {(run.backend, run.precision, run.batch) for run in first} == {FIRST[0]}


def test_a_lease_that_ends_early_leaves_the_other_configurations_with_nearly_the_same_networks(
    runs,
):
    rest = [run for run in runs if (run.backend, run.precision, run.batch) not in FIRST]
    for end in range(20, len(rest), 20):
        counts = Counter((run.precision, run.batch) for run in rest[:end])
        assert max(counts.values()) - min(counts.values()) <= 2 * TIER


def test_networks_that_confirm_come_first_and_are_in_no_other_run(runs):
    confirming = list(read_sweep(ATLAS / "confirm.yaml").runs.values())
    networks = {run.workload for run in confirming}
    assert not networks & {run.workload for run in runs}
    assert not [name for name in networks for word in LEFT_OUT if word in name.lower()]
    first = order([*confirming, *runs])[: len(networks)]
    assert {run.workload for run in first} == networks


def test_what_the_atlas_holds_is_known_by_the_runs_names(runs):
    there, later, rest = (recorded(each) for each in (ATLAS, ATLAS / LATER, ATLAS / REST))
    names = [named(run.run_id) for run in runs]
    confirming = {named(run.run_id) for run in read_sweep(ATLAS / "confirm.yaml").runs.values()}
    assert len(set(names)) == len(names)
    assert later < there
    assert rest < there
    assert not later & rest
    beside = recorded(ATLAS / "bf16")
    assert len(beside) == 24
    assert beside < there
    # the whole sweep is recorded
    assert there - later - beside == set(names) - later
    assert confirming <= later
    assert len(later & set(names)) == 24
    # those that `perfml predict` was asked about are in no sweep's file
    assert len(later - set(names) - confirming) == 7
    card = (ATLAS / "README.md").read_text(encoding="utf-8")
    assert f"All {len(names)} runs of the sweep's file are recorded" in card
    assert f"{len(rest)} runs" in card
