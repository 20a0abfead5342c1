"""The table of experiments: written, read, and refused where it is damaged."""

from dataclasses import replace

import pytest

from perfml.errors import InputError
from perfml.experiments.record import (
    Condition,
    Examined,
    Experiments,
    experiments_csv,
    read_experiments,
)

LAUNCH = Examined(
    ("iter_1", "conv_1"), 'void f<int, "x">(float*)', "(8, 1, 1)", "(256, 1, 1)", 1024, 4, 10,
    (
        Condition("all", "all", 1.0, (10.0, 11.0, 10.5)),
        Condition("sm_half", "all", 0.545455, (18.0, 18.5, 18.25), True, 0.25),
    ),
    own_us=9.5, replay="restored",
)  # fmt: skip
KNOWN = replace(LAUNCH, ranges=(), kernel="dram", grid="", block="")
WHOLE = Experiments(132, 52428800, 3.4, (KNOWN,), (LAUNCH, LAUNCH), left=3, shortened=1)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "experiments.csv"
    path.write_text(experiments_csv(WHOLE), encoding="utf-8")
    assert read_experiments(path) == WHOLE


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no row"),
        ("a,b\n1,2\n", "no column"),
        ("\0", "line contains NUL|no row|no column"),
    ],
)
def test_another_file_is_refused(text, problem, tmp_path):
    path = tmp_path / "experiments.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=problem):
        read_experiments(path)


def test_a_damaged_number_and_a_missing_file_are_errors(tmp_path):
    path = tmp_path / "experiments.csv"
    path.write_text(experiments_csv(WHOLE).replace("18.25", "fast"))
    with pytest.raises(InputError, match="damaged"):
        read_experiments(path)
    with pytest.raises(InputError, match="no experiments"):
        read_experiments(tmp_path / "none.csv")
