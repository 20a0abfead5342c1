"""The fuzzing corpus and what it found stay harmless; the fuzzer itself would notice."""

import csv
import io
import random

import pytest

from fuzz import minimise, targets
from fuzz.targets import CORPUS, TARGETS, Finding, one
from perfml.readers import read
from tests.support.paths import ROOT

pytestmark = pytest.mark.long

DATA = ROOT / "tests/data"
LONG = 90_000


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_seeds_and_corpus_lead_to_no_finding(name):
    inputs = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
    assert len(inputs) >= 10
    for data in inputs:
        one(name, data)
    assert any(one(name, seed) for seed in TARGETS[name].seeds())


NO_TEXT = {"layer_map", "darknet_cfg", "nsys_sqlite", "rocpd"}


@pytest.mark.parametrize("name", sorted(set(TARGETS) - NO_TEXT))
def test_every_text_format_is_read_in_utf_16_as_in_utf_8(name, tmp_path):
    path = tmp_path / f"input{TARGETS[name].suffix}"
    seed = next(TARGETS[name].seeds())
    path.write_bytes(seed)
    expected = read(path).frame
    for encoding, mark in (("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")):
        path.write_bytes(mark + seed.decode().encode(encoding))
        assert read(path).frame.equals(expected)


# What was found: inputs that were no error of ours, or took minutes


def ncu(column: str, cell: str) -> str:
    page = next(TARGETS["ncu_csv"].seeds()).decode()
    rows = list(csv.reader(io.StringIO(page)))
    place = next(n for n, name in enumerate(rows[0]) if column in name)
    rows[3][place] = cell
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return out.getvalue()


def inserted(name: str, line: int, text: str) -> str:
    lines = (DATA / "nvprof" / name).read_text(encoding="utf-8").split("\n")
    return "\n".join([*lines[:line], text, *lines[line:]])


def layer_map(*patterns: str) -> str:
    quoted = ", ".join(f'"{each}"' for each in patterns)
    return f'[[layer]]\nname = "a"\nkernels = [{quoted}]\n'


SLOW = {
    "blanks in a shape": ("ncu_csv", lambda: ncu("Grid Size", " " * LONG + "x")),
    "colons in a range": ("ncu_csv", lambda: ncu("Push/Pop", '5  "a' + ":" * LONG + 'b"')),
    "deep ranges": ("ncu_csv", lambda: ncu("Push/Pop", "5  " + '"a"  ' * 12_000)),
    "digits in a range": ("ncu_csv", lambda: ncu("Push/Pop", '5  "' + "1" * LONG + '"')),
    "a name": ("ncu_csv", lambda: ncu("Kernel Name", "k" * LONG)),
    "a summary of ncu": (
        "ncu_csv",
        lambda: '"Process ID",' + '"Invocations",' * 6000 + "\n==PROF== x\n",
    ),
    "warnings of ncu": (
        "ncu_csv",
        lambda: "".join(f"==WARNING== {n}\n" for n in range(5000)) + ncu("ID", "1"),
    ),
    "blank lines": ("nvprof_csv", lambda: "\n" * LONG),
    "blank lines in a log": ("nvprof_text", lambda: "\n" * LONG),
    "blanks before a row": (
        "nvprof_text",
        lambda: inserted("summary.txt", 5, " " * LONG + "x!"),
    ),
    "points and digits": (
        "nvprof_text",
        lambda: inserted("summary.txt", 5, "%" + "1." * (LONG // 2)),
    ),
    "blanks behind a name": (
        "nvprof_text",
        lambda: inserted("summary.txt", 5, "   1.00%  1.0us  1  1.0us  1.0us  1.0us  k")
        .replace("  k\n", "  k" + " " * LONG + "b\n"),
    ),
    "equal signs": ("nvprof_text", lambda: inserted("summary.txt", 5, "=" * LONG)),
    "any number of anything": ("layer_map", lambda: layer_map(*["* *"] * 3000, "zz")),
    "many stars": ("layer_map", lambda: layer_map("*a" * 3000 + "b")),
    "deep lists": ("layer_map", lambda: "skip = " + "[" * 40_000),
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(SLOW))
def test_input_that_once_took_minutes_takes_less_than_two_seconds(what):
    name, make = SLOW[what]
    data = make().encode()
    assert 5_000 < len(data) <= targets.LARGEST
    one(name, data)


TRACE = "  Start  Duration  Grid Size  {}\n"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("layer_map", f"n = {'9' * 5000}"),
        ("timing_csv", "iteration,layer,kernel,time_us\n0,a,k,inf\n"),
        ("timing_csv", "iteration,layer,kernel,time_us\ninf,a,k,1\n"),
        ("timing_csv", "iteration,layer,kernel,time_us_x\n0,a,k,1\n"),
        ("timing_csv", "iteration,layer,kernel,time_us\n0,a\n"),
        ("timing_csv", "iteration,layer,kernel,time_us\n0,a,k,1,extra\n"),
        (
            "nvprof_text",
            "==1== Profiling result:\n" + TRACE.format("Name") + TRACE.format("x") + "1ms  k\n",
        ),
        ("ncu_csv", ncu("Push/Pop", f'5  "<default domain>:iter_{"9" * 20}{":none" * 6}" ')),
    ],
)
def test_what_the_fuzzer_found_is_an_error_of_ours_or_right(name, data):
    one(name, data.encode())


# The fuzzer


@pytest.mark.parametrize("harm", ["crash", "slow", "garbled", "infinite"])
def test_the_harness_notices_what_must_not_happen(harm, monkeypatch):
    from perfml.errors import PerfmlError

    def reads(path):
        if harm == "crash":
            raise KeyError(path.name)
        if harm == "garbled":
            error = PerfmlError("bad")
            error.found = "a\x1b[2J\nb\nc"
            raise error
        if harm == "infinite":
            from perfml.readers import read

            kernels = read(DATA / "ncu/vectors.csv")
            kernels.frame.loc[0, "time_us"] = float("inf")
            targets.check_kernels(kernels)

    monkeypatch.setitem(TARGETS, "broken", targets.Target(reads, lambda: iter(()), ()))
    if harm == "slow":
        monkeypatch.setattr(targets, "SLOWEST_S", -1.0)
    with pytest.raises((Finding, KeyError)):
        one("broken", b"x")


def test_minimising_keeps_what_reaches_new_lines_and_drops_copies():
    seeds = list(TARGETS["layer_map"].seeds())
    noise = [seed + b"\n" * n for seed in seeds for n in (1, 2)]
    inputs = [*seeds, *noise]
    random.Random(1).shuffle(inputs)
    kept = minimise.minimised("layer_map", inputs)
    assert 1 <= len(kept) < len(seeds)
    reached = frozenset().union(*(minimise.reached("layer_map", each) for each in inputs))
    assert frozenset().union(*(minimise.reached("layer_map", each) for each in kept)) == reached
    assert minimise.minimised("layer_map", inputs, most=10) == []
