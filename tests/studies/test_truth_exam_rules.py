"""Nsight Compute's rules beside advice on exams: what counts, and what the page says of it."""

from __future__ import annotations

import pytest

from studies.truth import exam_rules
from studies.truth.questions import ncu_patterns
from studies.truth.rules import Remark, exam_remarks
from studies.truth.strangers import EXAMS

ANEW = "python -m studies.truth.exam_rules --out tests/data/truth/exam_rules.json"


def test_a_remark_is_judged_by_what_means_the_term_or_the_rule():
    remarks = [Remark("AchievedOccupancy: few", 0.9), Remark("ThreadDivergence: half", 0.2)]
    by_term = ncu_patterns(["active_threads_per_warp"], [])
    assert exam_rules.place_among(remarks, by_term) == 2
    assert exam_rules.place_among(remarks, ncu_patterns([], ["occupancy_reached"])) == 1
    assert exam_rules.place_among(remarks, ncu_patterns(["global_atomics"], ["dram_bound"])) is None


def test_remarks_are_of_the_slow_side_and_largest_speedup_first():
    found = exam_remarks(EXAMS["third"].folder)
    first, second = found["heat3d_axis"][:2]
    assert first.text.startswith("UncoalescedGlobalAccess: ")
    assert (first.speedup, second.speedup) == (pytest.approx(0.8734), pytest.approx(0.2352))
    assert not any("HighPipeUtilization" in each.text for some in found.values() for each in some)


@pytest.mark.long
def test_what_is_kept_is_what_is_measured():
    assert exam_rules.measure() == exam_rules.measured(), ANEW
