"""An option means the same in every verb: one type, one help text, one completion."""

from collections import defaultdict

import pytest
import typer
from typer.main import get_command

from perfml.cli import app, options
from perfml.cli.verb import _selection
from perfml.datasets import Selection
from tests.support.command_line import run

PLACED = {"--baseline", "--target", "--model", "--kernel", "--layer", "--launches", "--where"}
"""What issue 39 asks about: options that say what is looked at, and how."""


def described(option):
    """Return what a user is told of an option; its default is the verb's own."""
    kind = option.type_descriptor.annotation
    return str(kind), option.multiple, option.help, option.min, option.max


@pytest.fixture(scope="module")
def known():
    found = defaultdict(dict)
    for verb, command in get_command(app).commands.items():
        for each in command.params:
            if each.param_type_name == "option":
                for spelling in each.opts:
                    found[spelling][verb] = described(each)
    return found


def test_an_option_of_several_verbs_has_one_type_and_one_help_text(known):
    unlike = {name: users for name, users in known.items() if len(set(users.values())) > 1}
    # rank compares no sides: its target is a column of one's own table
    sides = {told for verb, told in unlike.pop("--target").items() if verb != "rank"}
    assert len(sides) == 1
    assert "own CSV or Parquet table" in known["--target"]["rank"][2]
    # collect has no tables yet: its launches are numbers, as Nsight Compute's
    assert unlike.pop("--launches").keys() > {"collect"}
    assert unlike == {}
    assert known.keys() >= PLACED
    # mcp answers by its protocol
    assert known["--json"].keys() == get_command(app).commands.keys() - {"mcp"}
    assert known["--json"].keys() == known["--json-schema"].keys()


def test_no_option_is_the_plural_of_another(known):
    # a model of `explain` has a name, and a report has models or none
    assert [name for name in known if f"{name}s" in known] == ["--model", "--tolerance"]


def test_what_is_typed_is_what_is_selected():
    typed = {"dataset": "a", "other": "b", "where": ["batch=1"], "layer": ["conv_.*"], "skip": 2}
    expected = Selection(("a", "b"), where=("batch=1",), layers=("conv_.*",), skip=2)
    assert _selection({**typed, "kernel": None}) == expected
    assert _selection({"dataset": "a", "other": None, "layer": None}) == Selection(("a",))
    ranks = {"dataset": "a", "other": "b", "ranks": ["c", "d"], "layer": None}
    assert _selection(ranks) == Selection(("a", "b", "c", "d"))
    assert set(options.SELECTION) - {"dataset", "other", "ranks", "layer"} <= set(vars(Selection()))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("report", "a.csv", "--format", "junit"), "html or md"),
        (("gate", "a.csv", "b.csv", "--format", "html"), "text, md or junit"),
        (("ingest", "a.csv", "--label", "back=cublas"), "Did you mean backend"),
        (("ingest", "a.csv", "--label", "batch=one"), "a batch is a number"),
        (("plot", "times", "a.csv", "--predict", "log-time"), "time or backend"),
    ],
)
def test_what_a_verb_cannot_do_with_an_option_is_said(words, said):
    done = run(*words)
    assert done.exit_code in (1, 6)
    assert said in done.stderr


def test_of_a_repeatable_option_a_verb_may_take_one():
    assert options.only_one("--backend", ["cudnn"]) == "cudnn"
    assert options.only_one("--backend", None, "cublas") == "cublas"
    with pytest.raises(options.PerfmlError, match="--backend is taken once here"):
        options.only_one("--backend", ["a", "b"])
    assert isinstance(app, typer.Typer)
