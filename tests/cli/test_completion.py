"""Shell completion: what the tab key offers, and that it costs and breaks nothing."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys

import pytest

from perfml.cli import app
from perfml.cli import complete as completion
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


def test_tables_of_the_folder_are_offered_and_other_files_are_not(complete, tmp_path):
    for name in ("layers.parquet", "latex.tex", "labs/dataset.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert complete("perfml report la", cwd=tmp_path) == ["labs/", "layers.parquet"]
    assert complete("perfml report labs/", cwd=tmp_path) == ["labs/dataset.csv"]


def test_layers_and_backends_come_from_the_dataset_typed_before(complete):
    assert complete("perfml plot times h200-yolov4-tiny --layer conv_2") == ["conv_20", "conv_21"]
    assert complete("perfml plot times h200-yolov4-tiny --layer ro") == []
    assert complete("perfml plot times h200-strangers2 --layer ro") != []
    assert complete("perfml plot times h200-sweep --layer conv_2") == ["conv_20", "conv_21"]
    offered = complete("perfml explain h200-yolov4-tiny --baseline c")
    assert sorted(offered) == ["cublas", "cudnn"]


def test_conditions_are_offered_as_columns_and_then_as_values(complete):
    assert complete("perfml report h200-yolov4-tiny --where pre") == ["precision="]
    offered = complete("perfml report h200-yolov4-tiny --where precision=")
    assert sorted(offered) == ["precision=fp16", "precision=fp32", "precision=tf32"]


def test_models_are_offered_one_after_another():
    assert completion.models("") == ["dt", "gbr", "lmt", "lr", "rf"]
    assert completion.models("dt,") == ["dt,gbr", "dt,lmt", "dt,lr", "dt,rf"]
    assert completion.models("dt,g") == ["dt,gbr"]


def test_what_cannot_be_read_offers_nothing(complete, tmp_path):
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    assert complete("perfml plot times torn.parquet --layer c", cwd=tmp_path) == []
    assert complete("perfml plot times missing.parquet --layer c", cwd=tmp_path) == []
    assert complete("perfml report missing/folder/x", cwd=tmp_path) == []


def test_completion_imports_no_heavy_library():
    code = (
        "import sys\nfrom perfml.cli import complete\n"
        "assert complete.datasets('h200')\n"
        "assert complete._column('h200-yolov4-tiny', 'layer')\n"
        "heavy = {'pandas', 'sklearn', 'matplotlib', 'torch', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
