"""The results of the four documents: tables are what was measured, rows have commands that work."""

import importlib.util
import re
import shlex

import pytest
import typer
from typer.testing import CliRunner

from collectors.workloads import workload
from perfml.cli import app
from perfml.explain.tree.causes import TERMS
from studies.seeds import int8, page, steps
from studies.seeds.page import STATES, commands, rows_of_list
from tests.support.paths import ROOT

pytestmark = pytest.mark.page

CLI = typer.main.get_command(app)


def test_every_row_has_a_command_or_a_reason():
    rows = [row for document in rows_of_list().values() for row in document]
    assert len(rows) >= 131
    for where, what, state, answer in rows:
        assert where, what
        assert state in STATES, what
        told = re.sub(r"`[^`]*`", "", answer).strip()
        named = page._COMMAND.search(answer) or "](" in answer
        if state == "works":
            assert named, what
        else:
            assert re.search(r"\bwould\b|\bneeds?\b|\bcannot\b|\bnot\b|\bno\b", told.lower()), what
    assert len({(where, what) for where, what, *_ in rows}) == len(rows)


def arguments_of(command):
    """The words of a command without those of a program behind ``--``."""
    words = shlex.split(command)
    return words[: words.index("--")] if "--" in words else words


@pytest.mark.parametrize("command", [each for each in commands() if each.startswith("perfml ")])
def test_a_command_exists_and_takes_its_options(command):
    _, verb, *words = arguments_of(command)
    found = CLI.commands[verb]
    while hasattr(found, "commands"):
        found = found.commands[words.pop(0)]
    if verb == "collect" and not any(word in words for word in ("yolov4-tiny", "attention",
                                                                "conv", "qkv")):  # fmt: skip
        assert "--" in command
        words.append("program")
    parsed = found.make_context(verb, list(words))
    assert parsed.params
    if "--dry-run" in words:
        done = CliRunner().invoke(app, [verb, *words])
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", [each for each in commands() if each.startswith("python")])
def test_a_module_exists_and_knows_its_options(command):
    words = shlex.split(command)
    source = importlib.util.find_spec(words[2])
    if source is not None and source.submodule_search_locations:
        source = importlib.util.find_spec(f"{words[2]}.__main__")
    assert source is not None
    text = (ROOT / source.origin).read_text(encoding="utf-8")
    for word in words[3:]:
        if word.startswith("--"):
            assert f'"{word}"' in text, word
    if "--part" in words:
        assert f'"{words[words.index("--part") + 1]}"' in text


@pytest.mark.slow
def test_every_recorded_step_of_a_ladder_is_a_row_and_its_times_are_the_data_sets():
    measured = steps.measure()
    kept = page.step_rows()
    names = ("ladder", "step", "layer", "author", "ratio")
    assert [[row[each] for each in names] for row in measured] == [
        [row[each] for each in names] for row in kept
    ], "write it anew: python -m studies.seeds.steps"
    for name, told in steps.said().items():
        shown = {row["step"] for row in kept if row["ladder"] == name}
        assert shown == {f"{before} to {after}" for before, after, *_ in told}
        ladder = workload(name.removeprefix("h200-"))
        later = {"base_lean", "strip_lean", "fused_streams", "rolled_tile8", "rolled_tile32",
                 "constant_tile8", "rolled", "wmma_fp16_rolled", "wmma_fp16_unrolled",
                 "wmma_fp16_tile16", "cudnn", "cublas"}  # fmt: skip
        wanted = {f"{a} to {b}" for a, b in ladder.steps() if not {a, b} & later}
        assert wanted <= shown
    known = set(TERMS)
    for told in steps.said().values():
        assert {cause for *_, causes in told for cause in causes} <= known


@pytest.mark.extras
@pytest.mark.slow
def test_int8_costs_what_is_told():
    found = int8.compare()["heads"]
    told = [
        [round(100 * each[name], 1) for each in found.values()]
        for name in ("relative_error", "same_box")
    ]
    assert told == [[2.8, 4.7], [99.6, 99.7]]
