"""What tools/budget.py counts."""

import ast
import subprocess

from tools import budget

MODULE = '''
"""No statement."""
import enum
from typing import NamedTuple

class Kind(enum.Enum):
    A = 1

class Pair(NamedTuple):
    """No statement."""
    a: int

@dataclasses.dataclass(frozen=True)
class Record:
    a: int

class Plain:
    def method(self):
        if self:
            return 1
'''


def test_statements_leave_out_imports_and_docstrings():
    # 4 classes, 3 fields, a function, its if and its return
    assert budget.statements(ast.parse(MODULE)) == 10


def test_records_are_dataclasses_named_tuples_and_enumerations():
    assert budget.records(ast.parse(MODULE)) == 3


def test_sources_of_studies_are_counted_wherever_they_lie(monkeypatch, tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    source = tmp_path / "studies/data/one/source"
    source.mkdir(parents=True)
    (source / "a.cu").write_text("1\n2\n")
    (source / "recording.csv").write_text("1\n2\n")
    monkeypatch.setattr(budget, "ROOT", tmp_path)
    assert budget.lines("studies") == 2


def test_more_than_the_limit_fails_and_the_goal_is_judged_on_request(monkeypatch, capsys):
    limits = (budget.Budget("things", 10, 5),)
    monkeypatch.setattr(budget, "BUDGETS", limits)
    for now, codes in ((4, (0, 0)), (7, (0, 1)), (11, (1, 1))):
        monkeypatch.setattr(budget, "measured", lambda wheel, now=now: {"things": now})
        assert (budget.main([]), budget.main(["--round"])) == codes
    assert "exceeded" in capsys.readouterr().out


def test_the_limits_of_things_are_the_counts_of_the_commit_that_they_name():
    limits = {each.name: each.limit for each in budget.BUDGETS}
    assert limits["perfml, statements"] == 27_783
    assert limits["perfml, record types"] == 367
    assert limits["perfml, modules"] == 369
