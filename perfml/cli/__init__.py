"""The command line: one thin function a verb, in the order data walks through them.

Here to change: a verb is one function in the module of its room, declared by `verb.verb`, and a
line of ``verbs.py``; options that several verbs share stand in ``options.py``, and nowhere else.
"""

from __future__ import annotations

import atexit
import gc
import io
import sys
from typing import Annotated

import typer

from perfml import __version__
from perfml.cli.output import refused
from perfml.cli.verb import app as app
from perfml.cli.verbs import load

load()


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
    # A verb makes many objects that live to its end, and looking for cycles among them at every
    # 700 new ones takes a tenth of its time.
    gc.set_threshold(500_000, 20, 20)
    # Python looks once more when it ends, to free what the system takes back anyway: 0.6 s with all
    # libraries of a report loaded.
    atexit.register(gc.freeze)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a terminal of another encoding gets a question mark for what it has no character for
        sys.stdout.reconfigure(errors="replace")
    try:
        app()
        sys.stdout.flush()
    except OSError as error:  # --help and --version end before a verb's own handling begins
        refused(error)
        sys.exit(1)
