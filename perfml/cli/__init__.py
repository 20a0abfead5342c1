"""The command line: one thin function a verb, in the order data walks through them."""

from __future__ import annotations

from typing import Annotated

import typer

from perfml._version import __version__
from perfml.cli import (
    _advise,
    _collect,
    _explain,
    _models,
    _plan,
    _plot,
    _report,
    _reproduce,
    _sweep,
    _tables,
)
from perfml.cli._output import Commands

app = typer.Typer(
    cls=Commands,
    name="perfml",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Which hardware metrics explain a GPU latency, and can the answer be trusted?\n\n"
        "Data walks collect -> ingest -> merge -> train -> rank -> explain -> report."
    ),
)
_collect.register(app)
_sweep.register(app)
_tables.register(app)
_models.register(app)
_plan.register(app)
_explain.register(app)
_advise.register(app)
_report.register(app)
_plot.register(app)
_reproduce.register(app)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"perfml {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run the command line."""
    app()
