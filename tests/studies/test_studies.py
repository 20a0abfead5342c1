"""The list of studies, and the budgets of the repository."""

import subprocess
import sys

import pytest

from studies.__main__ import programs
from tests.support.paths import ROOT
from tools import budget


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


def test_lines_are_those_of_sources_and_recordings_are_none(tmp_path, monkeypatch):
    for name, text in {
        "studies/a.py": "1\n2\n",
        "studies/a.cu": "1\n",
        "studies/data/__init__.py": "1\n",
        "studies/data/h200-x/record.py": "1\n2\n3\n",
        "studies/README.md": "1\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    monkeypatch.setattr(budget, "ROOT", tmp_path)
    assert budget.lines("studies") == 4


@pytest.mark.parametrize(("limit", "status"), [(10, 0), (9, 1)])
def test_a_budget_that_is_exceeded_is_said_and_fails(limit, status, monkeypatch, capsys):
    monkeypatch.setattr(budget, "BUDGETS", (budget.Budget("tests, lines", limit, 5),))
    monkeypatch.setattr(budget, "measured", lambda wheel: {"tests, lines": 10.0})
    assert budget.main([]) == status
    assert ("exceeded" in capsys.readouterr().out) is bool(status)
