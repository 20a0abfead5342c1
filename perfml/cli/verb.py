"""How a verb is declared: what is typed becomes an `Output`, a `Selection` and its own options.

A verb is a function. Its parameter ``output`` stands for ``--json``, ``--json-schema``, ``--quiet``
and ``--verbose``, ``selection`` for the arguments and options that the decorator names.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from inspect import Parameter
from typing import Any

import typer

from perfml.cli.options import OUTPUT, SELECTION
from perfml.cli.output import Commands, Output
from perfml.datasets import Selection

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


def verb(
    *takes: str,
    more: Iterable[Parameter] = (),
    **command: Any,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function to the command line as the verb of its name.

    `takes` are keys of `perfml.cli.options.SELECTION`, for its parameter ``selection``; `more` are
    options, for its ``**options``; `command` is as for ``typer.Typer.command``.
    """

    def added(function: Callable[..., None]) -> Callable[..., None]:
        parameters: list[Parameter] = []
        for each in inspect.signature(function, eval_str=True).parameters.values():
            if each.name == "selection":
                parameters += [_parameter(name, *SELECTION[name]) for name in takes]
            elif each.kind is Parameter.VAR_KEYWORD:
                parameters += more
            elif each.name != "output":
                parameters.append(each)
        parameters += [_parameter(name, *typed) for name, typed in OUTPUT.items()]

        @functools.wraps(function)
        def run(**given: Any) -> None:
            as_json, _, quiet, verbose = (given.pop(name) for name in OUTPUT)
            if takes:
                given["selection"] = _selection({name: given.pop(name) for name in takes})
            function(output=Output(as_json, quiet, verbose), **given)

        parameters = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app.command(**command)(run)
        return function

    return added


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    empty = Parameter.empty if default is ... else default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=empty, annotation=annotation)


def _selection(given: dict[str, Any]) -> Selection:
    """Return the selection that options make."""
    names = tuple(name for key in ("dataset", "other") if (name := given.pop(key, None)))
    names += tuple(given.pop("ranks", None) or ())
    options: dict[str, Any] = {name: value for name, value in given.items() if name != "layer"}
    if "where" in given:
        options["where"] = tuple(given["where"] or ())
    return Selection(names, layers=tuple(given.get("layer") or ()), **options)
