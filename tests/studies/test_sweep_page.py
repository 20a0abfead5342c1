"""What the results and the guide say of sweeps is what was measured."""

from __future__ import annotations

import statistics

import pytest

from studies.sweep.page import NAMES, cases, results
from tests.support.paths import ROOT

pytestmark = pytest.mark.page


def test_the_guide_to_sweeps_tells_the_same_numbers():
    text = (ROOT / "docs/howto/sweep.md").read_text(encoding="utf-8")
    for name, wall, *_ in cases():
        if name in (NAMES["network"], NAMES["kernel-replay"]):
            assert f"{wall[0] / wall[1]:.2f}" in text
    probes = {each["what"]: each.get("seconds_per_launch") for each in results()["probes"]}
    alone, beside = {}, {}
    for passes, name in ((1, "1 pass"), (3, "3 passes"), (8, "8 passes")):
        alone[passes] = probes[f"{name}, alone"][0]
        beside[passes] = statistics.mean(probes[f"{name}, two"])
    assert f"{alone[8]:.3f} s a launch" in text
    assert f"and {beside[8]:.2f} s under each of two at once" in text
    assert f"three passes {alone[3]:.3f} and {beside[3]:.3f} s" in text
    assert f"one pass {alone[1]:.4f} and {beside[1]:.4f} s" in text
