"""Kinds of instructions from counts by opcode, where a report holds nothing else of them."""

from __future__ import annotations

import numpy as np
import pytest

from perfml.readers.ncu.report import THREADS, counted_by_opcode

INTEGERS = "smsp__sass_thread_inst_executed_op_integer_pred_on.sum"
SHUFFLES = "smsp__sass_thread_inst_executed_op_inter_thread_communication_pred_on.sum"
CONVERSIONS = "smsp__sass_thread_inst_executed_op_conversion_pred_on.sum"


class Ids:
    def __init__(self, names):
        self.names = names

    def as_string(self, at):
        return self.names[at]


class Metric:
    """A metric of the package's own kind, with a number for each opcode."""

    def __init__(self, counts):
        self.counts = counts

    def has_correlation_ids(self):
        return True

    def correlation_ids(self):
        return Ids([*self.counts])

    def num_instances(self):
        return len(self.counts)

    def as_double(self, at):
        return [*self.counts.values()][at]


class Result:
    def __init__(self, counts):
        self.counts = counts

    def metric_by_name(self, name):
        return Metric(self.counts) if name == THREADS and self.counts is not None else None


def test_kinds_are_sums_over_their_opcodes():
    counts = {"IMAD": 100.0, "IADD3": 20.0, "FFMA": 7.0, "SHFL": 5.0, "I2F": 3.0, "F2I": 1.0}
    found = counted_by_opcode([Result(counts)], {})
    assert found[INTEGERS].tolist() == [120.0]
    assert found[SHUFFLES].tolist() == [5.0]
    assert found[CONVERSIONS].tolist() == [4.0]


def test_a_counter_of_the_report_itself_stays():
    found = counted_by_opcode([Result({"IMAD": 100.0})], {INTEGERS: np.array([90.0])})
    assert INTEGERS not in found


def test_a_launch_without_opcodes_is_not_known_and_a_report_without_any_has_no_column():
    found = counted_by_opcode([Result({"IMAD": 1.0}), Result(None)], {})
    assert found[INTEGERS].tolist() == pytest.approx([1.0, np.nan], nan_ok=True)
    assert counted_by_opcode([Result(None)], {}) == {}
