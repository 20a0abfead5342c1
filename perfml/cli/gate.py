"""The verb gate: is a new version worse? An exit code for CI, with the work that grew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfml.cli import options
from perfml.cli.output import Output
from perfml.cli.verb import read, verb
from perfml.datasets import Selection
from perfml.errors import PerfmlError
from perfml.gate.policy import MEANINGS, ExitCode

if TYPE_CHECKING:
    import pandas as pd

    from perfml.gate.policy import Policy
    from perfml.gate.verdict import GateResult
    from perfml.tables import Table

_ANSWER = "answer"
"""Key of a baseline's provenance: the findings of its answer."""
CODES = "; ".join(f"{code}: {meaning}" for code, meaning in MEANINGS.items())

_HELP = f"""Say whether a new version does more work, for CI.

Exit {CODES}.

Counted work decides (instructions, requests, sectors, launches), because it repeats; times confirm.
Two kinds of GPU are not compared.

Example: perfml gate --save main run/; perfml gate main new_run/ --format md --out gate.md
"""


@verb("kernel", "skip", "where", help=_HELP)
def gate(
    base: Annotated[
        str, typer.Argument(help="The accepted version: a profile, a table, or a saved name.")
    ],
    selection: Selection,
    output: Output,
    new: Annotated[
        str | None, typer.Argument(help="The new version: a profile, a run's folder or a table.")
    ] = None,
    save: Annotated[
        str | None, typer.Option(help="Keep BASE under this name, for later gates, and end.")
    ] = None,
    tolerances: Annotated[
        Path | None, typer.Option(help="TOML file of tolerances; gate.toml beside the baselines.")
    ] = None,
    form: options.Format = None,
    out: options.OptionalOut = None,
) -> None:
    """Say whether a new version does more work, by an exit code for CI."""
    output.place(out)
    try:
        chosen = replace(selection, names=(base,) if new is None else (base, new))
        code = _run(output, chosen, save, tolerances, form or "text", out)
    except PerfmlError as error:
        error.exit_code = ExitCode.UNREADABLE
        raise
    raise typer.Exit(code)


def _run(
    output: Output,
    selection: Selection,
    save: str | None,
    tolerances: Path | None,
    form: options.Form,
    out: Path | None,
) -> int:
    from perfml.explain import advise
    from perfml.explain.advice.measured import kept_answer, promised, promises_said
    from perfml.gate import render
    from perfml.gate.policy import save_baseline
    from perfml.gate.python import judged

    written: Mapping[options.Form, Callable[[GateResult, str, str], str]] = {
        "text": render.text,
        "md": render.markdown,
        "junit": render.junit,
    }
    if form not in written:
        msg = "a verdict is text, Markdown or JUnit"
        raise PerfmlError(msg, where="--format", found=form, cure="Choose text, md or junit.")
    baseline, *others = _loaded(selection, output)
    base, *new = selection.names
    kept = baseline.provenance.get(_ANSWER) or kept_answer(base)
    if save is not None:
        path = save_baseline(save, baseline.frame, {**baseline.provenance, _ANSWER: kept})
        output.result({"saved": str(path)}, [f"Saved as {path}. Commit it to share it."])
        return 0
    if not new:
        msg = "there is no new version to judge"
        raise PerfmlError(msg, cure=f"Name one: perfml gate {base} NEW; or keep this one: --save")
    result = judged(baseline, others[0], _policy(tolerances))
    came = promised(kept, new[0], _times(baseline.frame, result), advise)
    if output.as_json:
        output.result({**result.to_dict(), "promised": came})
        return result.exit_code
    result = replace(result, time_notes=(*result.time_notes, *promises_said(came)))
    text = written[form](result, base, new[0])
    if out is None:
        output.result({}, [text])
    else:
        from perfml.util.files import replacing

        with replacing(out) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
        output.note(f"wrote {out}")
    return result.exit_code


def _times(baseline: pd.DataFrame, result: GateResult) -> dict[str, tuple[str, float, float]]:
    """Return the microseconds of each layer in the baseline and in the new version."""
    before = baseline.groupby("layer")["time_us"].median()
    return {
        each.layer: (each.layer, before[each.layer], before[each.layer] * each.time.ratio)
        for each in result.layers
        if each.time is not None and each.layer in before
    }


def _loaded(selection: Selection, output: Output) -> list[Table]:
    """Return the layers behind each name: a saved baseline, else what any verb takes."""
    from perfml.gate.python import layers_judged

    tables: dict[str, Table | None] = {
        name: _saved(name, selection.where) for name in selection.names
    }
    wanted = tuple(name for name in tables if tables[name] is None)
    for given in read(replace(selection, names=wanted), output).tables:
        tables[given.name] = layers_judged(given)
    return [table for name in selection.names if (table := tables[name]) is not None]


def _saved(name: str, where: Sequence[str]) -> Table | None:
    """Return the saved baseline of a name; None for a file or a data set."""
    from perfml.datasets.choosing import only
    from perfml.datasets.registry import is_dataset
    from perfml.datasets.selection import split_place
    from perfml.gate.policy import load_baseline, unknown_baseline
    from perfml.tables import Table

    if Path(split_place(name)[0]).exists():
        return None
    saved = load_baseline(name)
    if saved is not None:
        return Table(only(saved.frame, where), saved.kind, saved.provenance)
    if not is_dataset(name):
        raise unknown_baseline(name)
    return None


def _policy(path: Path | None) -> Policy:
    from perfml.gate.policy import FILE, FOLDER, Policy, load_policy

    if path is not None:
        return load_policy(path)
    beside = FOLDER / FILE
    return load_policy(beside) if beside.is_file() else Policy()
