"""Kinds of instructions from counts by opcode, where a report holds nothing else of them."""

from __future__ import annotations

import numpy as np
import pytest

from perfml.readers.ncu.report import THREADS, counted_by_opcode
from tests.support.answers import Answers, instances

INTEGERS = "smsp__sass_thread_inst_executed_op_integer_pred_on.sum"
SHUFFLES = "smsp__sass_thread_inst_executed_op_inter_thread_communication_pred_on.sum"
CONVERSIONS = "smsp__sass_thread_inst_executed_op_conversion_pred_on.sum"


def result(counts):
    """Return a result whose threads are counted by opcode, or not at all."""
    held = {} if counts is None else {THREADS: instances(counts, "as_string")}
    return Answers(metric_by_name=held.get)


def test_kinds_are_sums_over_their_opcodes():
    counts = {"IMAD": 100.0, "IADD3": 20.0, "FFMA": 7.0, "SHFL": 5.0, "I2F": 3.0, "F2I": 1.0}
    found = counted_by_opcode([result(counts)], {})
    assert found[INTEGERS].tolist() == [120.0]
    assert found[SHUFFLES].tolist() == [5.0]
    assert found[CONVERSIONS].tolist() == [4.0]


def test_a_counter_of_the_report_itself_stays():
    found = counted_by_opcode([result({"IMAD": 100.0})], {INTEGERS: np.array([90.0])})
    assert INTEGERS not in found


def test_a_launch_without_opcodes_is_not_known_and_a_report_without_any_has_no_column():
    found = counted_by_opcode([result({"IMAD": 1.0}), result(None)], {})
    assert found[INTEGERS].tolist() == pytest.approx([1.0, np.nan], nan_ok=True)
    assert counted_by_opcode([result(None)], {}) == {}
