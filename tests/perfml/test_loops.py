"""The loops of the Makefile."""

import subprocess

import pytest

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
