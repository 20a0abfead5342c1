"""How a verb is declared: what is typed becomes an `Output`, a `Selection` and its own options.

A verb is a function. Its parameter ``output`` stands for ``--json``, ``--json-schema``, ``--quiet``
and ``--verbose``, ``selection`` for the arguments and options that the decorator names. `read`
turns that into tables, with what there is to say of them.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable
from inspect import Parameter
from typing import TYPE_CHECKING, Any

import typer

from perfml.cli.options import OUTPUT, SELECTION
from perfml.cli.output import Commands, Output
from perfml.datasets import Selection

if TYPE_CHECKING:
    from perfml.account.account import Account
    from perfml.account.ranks import Ranks
    from perfml.datasets import Inputs


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


_STEP_KERNELS = 6
"""Kernels that are printed without -v."""


def read(
    selection: Selection, output: Output, *, study: bool = False, in_layers: bool = False
) -> Inputs:
    """Return what is selected, and warn of what readers noticed and of what was left out.

    `study` and `in_layers` are as for `perfml.datasets.Inputs.notes`.
    """
    from perfml.datasets import read_inputs

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        inputs = read_inputs(selection)
    more = output.verbose > 0
    for warning in caught:
        output.warn(str(warning.message))
    for note in inputs.notes(study=study or more, in_layers=in_layers, all_of_them=more):
        output.warn(note)
    return inputs


def show_ranks(output: Output, ranks: Ranks) -> None:
    """Print which rank is the slowest, and a step of each."""
    from perfml.account.words import rank_sentences, rank_table

    output.result({}, rank_sentences(ranks))
    title, columns, rows = rank_table(ranks)
    output.table(["rank", *columns], [(rank, *us) for rank, us in rows], title)


def show_step(output: Output, account: Account, name: str = "") -> None:
    """Print what a step takes on the clock, and its kernels; `name` is whose it is."""
    from perfml.account.words import kernel_rows, step_sentence
    from perfml.util.words import percent

    output.result({}, [step_sentence(account, name)])
    rows = kernel_rows(account)
    if not rows:  # copies alone
        return
    shown = rows if output.verbose else rows[:_STEP_KERNELS]
    more = "" if len(shown) == len(rows) else f", {len(shown)} of {len(rows)}"
    output.table(
        ["kernel", "launches", "µs", "of all kernels"],
        [(name, round(n, 1), us, percent(share)) for name, n, us, share in shown],
        f"Kernels of {'a step' if account.marked_by else 'all'}{more}",
    )
