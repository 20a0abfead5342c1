"""The verb schema: what the JSON document of a verb holds, for programs that read it."""

from __future__ import annotations

from typing import Annotated

import typer

from perfml.cli.output import Json, Output, Quiet, Verbose
from perfml.errors import PerfmlError, did_you_mean


def register(app: typer.Typer) -> None:
    """Add this room's verb to the command line."""
    app.command()(schema)


def schema(
    verb: Annotated[
        list[str] | None, typer.Argument(help="A verb, or error; without, all of them.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Print the JSON Schema of what a verb prints with --json.

    Every document has the key schema, such as explain/1. The number grows when a key goes or
    changes its meaning; new keys may come any time.

    Example: perfml schema explain; perfml schema datasets list
    """
    out_ = Output(as_json, quiet, verbose)
    from perfml.cli.documents import DOCUMENTS, schema_of
    from perfml.cli.versions import version_of

    if not verb:
        versions = {name: version_of(name) for name in DOCUMENTS}
        out_.result({"verbs": versions})
        out_.table(["verb", "version"], list(versions.items()))
        return
    name = " ".join(verb)
    if name not in DOCUMENTS:
        msg = f"no verb is called {name!r}"
        known = f"There are: {', '.join(DOCUMENTS)}."
        raise PerfmlError(msg, cure=did_you_mean(name, DOCUMENTS, known))
    out_.schema(schema_of(name))
