"""Counters of single instructions, as NVIDIA's package gives them."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from perfml.readers import Source, read
from perfml.readers.ncu import instructions as module
from perfml.readers.ncu.instructions import STALLED, Wanted, instructions
from perfml.readers.ncu.report import EXECUTED
from tests.support.answers import Answers, instances
from tests.support.others_files import STRANGERS

BASE = 0x7F0000000100
WAITS = f"{STALLED}long_scoreboard"


SASS = ("      LDG.E R4,  [R2.64]", "@P0 BRA 0x7f0000000100", None)
PLACE = Answers(file_name="/home/a/add.cu", line=7)


def launch(metrics, lined=()):
    """Return a launch of a kernel of three instructions, with counters by their offsets."""
    counters = {
        name: instances({BASE + offset: count for offset, count in values.items()}, "as_uint64")
        for name, values in metrics.items()
    }
    return Answers(
        name="add(int)",
        metric_names=list(counters),
        metric_by_name=counters.get,
        sass_by_pc=lambda address: SASS[(address - BASE) // 16],
        source_info=lambda address: PLACE if address - BASE in lined else None,
    )


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
    table = opening(launch(metrics, lined=(0, 16)))["add(int)"]
    assert table["offset"].tolist() == [0, 16, 32]
    assert table["sass"].tolist() == ["LDG.E R4, [R2.64]", "@P0 BRA 0x0", ""]
    assert table["line"].fillna(-1).tolist() == [7, 7, -1]
    assert table[EXECUTED].tolist() == [8, 8, 4]
    assert table[WAITS].tolist() == [0, 90, 0]
    assert table["memory_l2_theoretical_sectors_global"].tolist() == [64, 0, 0]
    assert f"{WAITS}_not_issued" not in table


def test_a_kernel_is_taken_as_it_was_first_launched_and_only_if_it_was_asked_for(opening):
    first, second = (launch({EXECUTED: {0: count}}) for count in (1, 2))
    assert opening(first, second)["add(int)"][EXECUTED].tolist() == [1]


def test_only_the_launches_that_are_asked_for_count(opening):
    both = tuple(launch({EXECUTED: {0: count}}) for count in (1, 2))
    assert opening(*both, places={1})["add(int)"][EXECUTED].tolist() == [2]
    assert opening(*both, places=()) == {}


def test_a_report_without_counters_of_instructions_has_none(opening, recorded):
    assert opening(launch({EXECUTED: {}})) == {}
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
