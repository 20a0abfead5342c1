"""The verbs that run where the GPU is; the only place that imports collectors, and lazily."""

from __future__ import annotations

import typer

from perfml.cli._output import Json, Output, Quiet, Verbose


def register(app: typer.Typer) -> None:
    """Add this room's verbs to the command line."""
    app.command()(doctor)


def doctor(as_json: Json = False, quiet: Quiet = False, verbose: Verbose = 0) -> None:
    """Say what works on this machine, and the cure for what does not.

    Example: perfml doctor
    """
    out_ = Output(as_json, quiet, verbose)
    from collectors.doctor import diagnose

    checks = diagnose()
    out_.result({"checks": [vars(each) for each in checks]})
    out_.table(
        ["", "what", "found", "cure"],
        [[each.status, each.name, each.found, each.cure] for each in checks],
    )
