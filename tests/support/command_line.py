"""Commands of perfml in this process."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner

from perfml.cli import app


def run(*words: object) -> Any:
    """Return what a command ends with and prints."""
    return CliRunner().invoke(app, [str(word) for word in words])
