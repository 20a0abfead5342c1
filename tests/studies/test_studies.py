"""The list of studies, and the budgets of the repository."""

import subprocess
import sys

import pytest

from studies.__main__ import programs
from tests.support.paths import ROOT


def test_every_program_is_listed_with_what_it_answers():
    found = programs()
    assert {"truth.sets", "reproduction", "ladders.measure"} <= set(found)
    assert all(what for what in found.values())


def test_the_commands_of_the_readme_are_programs():
    text = (ROOT / "studies/README.md").read_text(encoding="utf-8")
    named = [part.split()[0] for part in text.split("`python -m studies ")[1:]]
    assert len(named) > 10
    assert {name.strip("`") for name in named} - {"NAME"} <= set(programs())


@pytest.mark.process
def test_a_study_that_does_not_exist_is_an_error():
    command = [sys.executable, "-m", "studies", "truth.nothing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no study is called truth.nothing" in done.stderr
