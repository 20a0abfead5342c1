"""Shell completion: what the tab key offers, and that it costs and breaks nothing."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys

import pytest

from perfml.cli import app
from tests.support.processes import PATIENCE_S

pytestmark = pytest.mark.process


@pytest.fixture
def complete(monkeypatch):
    """Return a function that tells what bash is offered for the last of some words."""

    def offered(words, cwd=None):
        monkeypatch.setenv("_PERFML_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        if cwd is not None:
            monkeypatch.chdir(cwd)
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit),
        ):
            app(prog_name="perfml")
        assert err.getvalue() == ""
        return out.getvalue().split()

    return offered


def program(*words, **environment):
    """Run perfml by its name, with the shell named on the command line instead of looked up."""
    return subprocess.run(
        [sys.executable, "-c", "from perfml.cli import app; app(prog_name='perfml')", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", **environment},
        check=False,
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_shown_for_every_shell(shell):
    done = program("--show-completion", shell)
    assert done.returncode == 0
    assert f"_PERFML_COMPLETE=complete_{shell}" in done.stdout


def test_completion_is_installed_into_the_home_folder(tmp_path):
    done = program("--install-completion", "bash", HOME=str(tmp_path))
    assert done.returncode == 0
    written = {path.name: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert any("_PERFML_COMPLETE=complete_bash" in text for text in written.values())
    assert "perfml" in written[".bashrc"]


def test_verbs_figures_and_datasets_are_offered(complete):
    assert "report" in complete("perfml re")
    assert complete("perfml plot at") == ["attribution"]
    assert complete("perfml report h200-y") == ["h200-yolov4-tiny"]
    assert complete("perfml explain h200-sweep h200-y") == ["h200-yolov4-tiny"]


def test_files_and_folders_are_offered(complete, tmp_path):
    for name in ("layers.parquet", "labs/dataset.csv", "l[0]"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert complete("perfml report la", cwd=tmp_path) == ["labs/", "layers.parquet"]
    assert complete("perfml report labs/", cwd=tmp_path) == ["labs/dataset.csv"]
    assert complete("perfml report l[", cwd=tmp_path) == ["l[0]"]
    assert complete("perfml report missing/folder/x", cwd=tmp_path) == []
