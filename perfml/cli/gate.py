"""The verb gate: is a new version worse? An exit code for CI, with the work that grew."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfml.cli.dataset import KernelPattern, Skip, Where, read_several
from perfml.cli.output import Json, Output, Quiet, Verbose
from perfml.errors import PerfmlError
from perfml.gate.exit_codes import ExitCode

if TYPE_CHECKING:
    from perfml.gate.policy import Policy
    from perfml.gate.verdict import GateResult
    from perfml.tables import Table

CODES = "; ".join(f"{code}: {code.meaning}" for code in ExitCode)


class Form(StrEnum):
    """What the verdict is written as."""

    text = "text"
    md = "md"
    junit = "junit"


def register(app: typer.Typer) -> None:
    """Add this room's verb to the command line."""
    app.command(help=_HELP)(gate)


def gate(
    base: Annotated[
        str, typer.Argument(help="The accepted version: a profile, a table, or a saved name.")
    ],
    new: Annotated[
        str | None, typer.Argument(help="The new version: a profile, a run's folder or a table.")
    ] = None,
    save: Annotated[
        str | None, typer.Option(help="Keep BASE under this name, for later gates, and end.")
    ] = None,
    tolerances: Annotated[
        Path | None, typer.Option(help="TOML file of tolerances; gate.toml beside the baselines.")
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="text, md or junit.")] = Form.text,
    out: Annotated[Path | None, typer.Option(help="Write it here instead of printing it.")] = None,
    kernel: KernelPattern = None,
    skip: Skip = 0,
    where: Where = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Say whether a new version does more work, by an exit code for CI."""
    out_ = Output(as_json, quiet, verbose)
    out_.place(out)
    try:
        code = _run(out_, base, new, save, tolerances, form, out, where, kernel, skip)
    except PerfmlError as error:
        error.exit_code = ExitCode.UNREADABLE
        raise
    raise typer.Exit(code)


_HELP = f"""Say whether a new version does more work, for CI.

Exit {CODES}.

Counted work decides (instructions, requests, sectors, launches), because it repeats; times confirm.
Two kinds of GPU are not compared.

Example: perfml gate --save main run/; perfml gate main new_run/ --format md --out gate.md
"""


def _run(
    out_: Output,
    base: str,
    new: str | None,
    save: str | None,
    tolerances: Path | None,
    form: Form,
    out: Path | None,
    where: list[str] | None,
    kernel: str | None,
    skip: int,
) -> int:
    from perfml.gate.baselines import save_baseline
    from perfml.gate.verdict import judge

    names = [base] if new is None else [base, new]
    baseline, *others = _loaded(names, out_, where, kernel, skip)
    if save is not None:
        path = save_baseline(save, baseline.frame, dict(baseline.provenance))
        out_.result({"saved": str(path)}, [f"Saved as {path}. Commit it to share it."])
        return 0
    if new is None or not others:
        msg = "there is no new version to judge"
        raise PerfmlError(msg, cure=f"Name one: perfml gate {base} NEW; or keep this one: --save")
    result = judge(baseline.frame, others[0].frame, _policy(tolerances))
    if out_.as_json:
        out_.result(result.to_dict())
        return result.exit_code
    text = _render(form, result, base, new)
    if out is None:
        out_.result({}, [text])
    else:
        from perfml.util.files import replacing

        with replacing(out) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
        out_.note(f"wrote {out}")
    return result.exit_code


def _render(form: Form, result: GateResult, base: str, new: str) -> str:
    from perfml.gate import render

    write = {Form.text: render.text, Form.md: render.markdown, Form.junit: render.junit}[form]
    return write(result, base, new)


def _loaded(
    names: Sequence[str], out_: Output, where: list[str] | None, kernel: str | None, skip: int
) -> list[Table]:
    """Return the layers behind each name: a saved baseline, else what any verb takes."""
    from perfml.explain.compared import make_side
    from perfml.tables import Table

    saved = {name: _saved(name, where) for name in names}
    wanted = [name for name in saved if saved[name] is None]
    given = dict(zip(wanted, read_several(wanted, out_, where, kernel, skip), strict=True))
    found = []
    for name in names:
        table = saved[name]
        if table is None:
            # without ranges the run is one layer: a kernel that is launched more often is more work
            read = given[name]
            side = make_side(name, read.table, read.kernels if read.ranged else None)
            table = Table(side.layers, "layers", {"source": Path(name).name})
        found.append(table)
    return found


def _saved(name: str, where: list[str] | None) -> Table | None:
    """Return the saved baseline of a name; None for a file or a data set."""
    from perfml.datasets.choosing import only, split_place
    from perfml.datasets.registry import is_dataset
    from perfml.gate.baselines import load_baseline, unknown_baseline
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
    from perfml.gate.baselines import FOLDER
    from perfml.gate.policy import FILE, Policy, load_policy

    if path is not None:
        return load_policy(path)
    beside = FOLDER / FILE
    return load_policy(beside) if beside.is_file() else Policy()
