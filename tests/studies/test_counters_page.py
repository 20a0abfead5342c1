"""The costs of counters are those that were recorded, in the results and on their page."""

import json

import pytest

from benchmarks import agreement

pytestmark = pytest.mark.page


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs" / "explanation" / "counters.md").read_text(encoding="utf-8")


def results(root, name):
    return json.loads((root / "benchmarks" / "results" / name).read_text(encoding="utf-8"))


def test_counted_work_agrees_with_nsight_compute_as_the_page_says(root, page):
    kinds = results(root, "agreement-h200.json")["kinds"]
    counted = [row for name, row in kinds.items() if name.startswith(("of instr", "that count"))]
    assert len(counted) == 2
    largest = max(row[pair][1] for row in counted for pair in agreement.PAIRS if row[pair])
    assert f"differ by {largest:.1g} at the most" in page


def test_the_costs_on_the_page_are_the_recorded_ones(root, page):
    costs = results(root, "collect-h200-once.json")["costs"]
    (ours,) = [
        each for each in costs if each["tool"] == "cupti, 30 x" and each["network"] == "yolov4-tiny"
    ]
    (theirs,) = [
        each
        for each in costs
        if each["tool"].startswith("ncu") and each["network"] == "yolov4-tiny"
    ]
    assert f"took {ours['ms_a_launch']:.1f} ms a launch for YOLOv4-Tiny with 30" in page
    assert f"and {theirs['ms_a_launch']:.1f} ms under Nsight Compute" in page
    assert f"takes {ours['again_ms_a_launch']:.1f} ms a launch" in page
