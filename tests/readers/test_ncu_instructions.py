"""Counters of single instructions, as NVIDIA's package gives them."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from perfml.readers import Source, read
from perfml.readers.ncu import instructions as module
from perfml.readers.ncu.instructions import STALLED, Wanted, instructions
from perfml.readers.ncu.report import EXECUTED
from tests.support.others_files import STRANGERS

BASE = 0x7F0000000100
WAITS = f"{STALLED}long_scoreboard"


class Ids:
    def __init__(self, addresses):
        self.addresses = addresses

    def as_uint64(self, number):
        return self.addresses[number]


class Metric:
    """A metric with a value an instruction, as the package shows it."""

    def __init__(self, values):
        self.values = values

    def has_correlation_ids(self):
        return bool(self.values)

    def correlation_ids(self):
        return Ids([BASE + offset for offset in self.values])

    def num_instances(self):
        return len(self.values)

    def as_double(self, number):
        return float(list(self.values.values())[number])


class Place:
    def file_name(self):
        return "/home/a/add.cu"

    def line(self):
        return 7


class Launch:
    """A launch of a kernel of three instructions."""

    SASS = ("      LDG.E R4,  [R2.64]", "@P0 BRA 0x7f0000000100", None)

    def __init__(self, metrics, lined=()):
        self.metrics = {name: Metric(values) for name, values in metrics.items()}
        self.lined = lined

    def name(self, base):
        return "add(int)"

    def metric_names(self):
        return list(self.metrics)

    def metric_by_name(self, name):
        return self.metrics.get(name)

    def sass_by_pc(self, address):
        return self.SASS[(address - BASE) // 16]

    def source_info(self, address):
        return Place() if address - BASE in self.lined else None


@pytest.fixture
def opening(monkeypatch, tmp_path):
    def of(*launches, places=None):
        @contextmanager
        def opened(source):
            yield launches

        monkeypatch.setattr(module, "opened", opened)
        path = tmp_path / "a.ncu-rep"
        path.write_bytes(b"NVR\x00")
        return instructions(Source(path), Wanted({"add(int)"}, places))[0]

    return of


def test_each_instruction_has_its_counters_text_and_line(opening):
    metrics = {
        EXECUTED: {0: 8, 16: 8, 32: 4},
        WAITS: {16: 90},
        f"{WAITS}_not_issued": {16: 80},
        "memory_l2_theoretical_sectors_global": {0: 64},
        "inst_executed_of_the_whole": {},
    }
    table = opening(Launch(metrics, lined=(0, 16)))["add(int)"]
    assert table["offset"].tolist() == [0, 16, 32]
    assert table["sass"].tolist() == ["LDG.E R4, [R2.64]", "@P0 BRA 0x0", ""]
    assert table["line"].fillna(-1).tolist() == [7, 7, -1]
    assert table[EXECUTED].tolist() == [8, 8, 4]
    assert table[WAITS].tolist() == [0, 90, 0]
    assert table["memory_l2_theoretical_sectors_global"].tolist() == [64, 0, 0]
    assert f"{WAITS}_not_issued" not in table


def test_a_kernel_is_taken_as_it_was_first_launched_and_only_if_it_was_asked_for(opening):
    first, second = (Launch({EXECUTED: {0: count}}) for count in (1, 2))
    assert opening(first, second)["add(int)"][EXECUTED].tolist() == [1]


def test_only_the_launches_that_are_asked_for_count(opening):
    both = tuple(Launch({EXECUTED: {0: count}}) for count in (1, 2))
    assert opening(*both, places={1})["add(int)"][EXECUTED].tolist() == [2]
    assert opening(*both, places=()) == {}


def test_a_report_without_counters_of_instructions_has_none(opening, recorded):
    assert opening(Launch({EXECUTED: {}})) == {}
    path = recorded / "ncu" / "vectors.ncu-rep"
    assert instructions(Source(path), Wanted(set(read(path).frame["kernel"]))) == [{}]


@pytest.mark.skipif(not STRANGERS.is_dir(), reason="public profiles may be read, not committed")
def test_instructions_of_a_public_report_add_up_to_its_launch():
    path = STRANGERS / "hpca" / "naive.ncu-rep"
    frame = read(path).frame
    (tables,) = instructions(Source(path), Wanted(set(frame["kernel"])))
    (table,) = tables.values()
    assert table[EXECUTED].sum() == frame["inst_executed"].iloc[0]
    assert table["file"].str.endswith("conv_kernels.cu").all()
