"""The loops of the Makefile."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import typer

from perfml.cli import app
from tests.support.paths import ROOT


@pytest.mark.process
def test_processes_of_the_tests_keep_what_python_compiled(monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    command = ["make", "-s", "-f", "Makefile", "-f", "-", "show"]
    shown = subprocess.run(
        command, input="show:; @env\n", cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "PATH=" in shown.stdout
    assert "PYTHONDONTWRITEBYTECODE" not in shown.stdout


def test_ci_begins_with_the_commands_of_the_readme_as_they_stand_there():
    readme = (ROOT / "README.md").read_text("utf-8")
    commands = re.findall(r"^\$ (make \w+)$", readme, re.MULTILINE)
    script = (ROOT / ".ci/run").read_text("utf-8")
    body = script[script.index("before=$(git status") :]
    assert commands == ["make demo", "make test"]
    assert re.search(r"&& briefly make demo\)", body)
    assert re.search(r"^readme_tests\(\) \{\n.*&& make test\) ", script, re.MULTILINE)
    assert body.index("make demo") < body.index("readme_tests") < body.index("quietly install\n")


def test_every_test_is_run_by_make_test_or_by_the_other_run_of_ci_and_none_by_both():
    left_out = re.search(r"^TESTS \?= not \((.+)\)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    others = re.search(r"TESTS='(.+)'", (ROOT / ".ci/run").read_text("utf-8"))
    assert left_out[1] == others[1]


def test_the_documentation_reads_what_its_notebooks_read():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(extras["optional-dependencies"]["ncu"]) <= set(
        extras["optional-dependencies"]["docs"]
    )


def git(*words, **options):
    command = ["git", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, **options)


def outputs():
    """Return what verbs write where nobody names an output."""
    verbs = typer.main.get_command(app).commands.values()
    defaults = [each.default for verb in verbs for each in verb.params if each.name == "out"]
    return sorted({str(each) for each in defaults if isinstance(each, Path)})


@pytest.mark.process
def test_what_verbs_write_by_default_is_ignored_by_git_and_none_of_it_is_tracked():
    names = [*outputs(), "report.html", "report.md"]
    assert {"prove", "runs", "kernels.parquet", "layers.parquet"} <= set(names)
    inside = [f"{name}/log.txt" if "." not in name else name for name in names]
    ignored = git("check-ignore", "--no-index", "--stdin", input="\n".join(inside))
    assert ignored.stdout.split() == inside
    assert git("ls-files", "--cached", "--ignored", "--exclude-standard").stdout == ""
