"""The options of all verbs: a name, a type, a help text and a meaning, once.

Here to change: an option that a second verb takes moves here; a verb's own stand in its function.
`SELECTION` are those that say what is asked about (`perfml.datasets.Selection`): `perfml.cli.verb`
makes a selection of them.
"""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from perfml.cli.output import Output
from perfml.errors import PerfmlError, did_you_mean


def datasets(incomplete: str) -> list[str]:
    """Offer the datasets' names, and the files and folders that begin so, to a shell."""
    from perfml.datasets.registry import DATASETS

    paths = sorted(map(Path, glob.glob(f"{glob.escape(incomplete)}*")))
    names = [f"{path}/" if path.is_dir() else str(path) for path in paths]
    return [*(name for name in DATASETS if name.startswith(incomplete)), *names]


Layers = Annotated[
    list[str] | None,
    typer.Option(
        "--layer",
        help="Only this layer: its name, or a pattern of the whole name such as 'conv_.*'; "
        "repeatable.",
    ),
]
LayerMap = Annotated[
    Path | None,
    typer.Option("--layer-map", help="Ordered kernel patterns, for programs without NVTX ranges."),
]


def _option(
    kind: Any, help_: str, default: Any = None, *names: str, **more: Any
) -> tuple[Any, Any]:
    return Annotated[kind, typer.Option(*names, help=help_, **more)], default


def _argument(kind: Any, help_: str, default: Any) -> tuple[Any, Any]:
    return Annotated[kind, typer.Argument(help=help_, autocompletion=datasets)], default


SELECTION: dict[str, tuple[Any, Any]] = {
    "dataset": _argument(
        str,
        "Profile, folder of profiles, run, table, dataset.csv, or a dataset's name; "
        "FILE@3: its fourth launch.",
        ...,
    ),
    "other": _argument(
        str | None, "The target, where two are compared; the first is the baseline then.", None
    ),
    "ranks": _argument(
        list[str] | None, "With three or more: traces of the ranks of one job, in one report.", None
    ),
    "where": _option(
        list[str] | None,
        "Keep rows where COLUMN=VALUE, such as batch=1; repeatable.",
    ),
    "kernel": _option(str | None, "Only kernels with this in their name, or a regular expression."),
    "kernel_b": _option(str | None, "The target's kernel, where it differs from --kernel."),
    "skip": _option(int, "Leave out the first launches (of those that --kernel keeps).", 0, min=0),
    "layer": (Layers, None),
    "launches": _option(Path | None, "The Kernels table behind a Layers table."),
    "layer_map": (LayerMap, None),
    "by": _option(str, "Column that tells baseline and target apart.", "backend"),
    "baseline": _option(str | None, "The side to compare with, such as cublas."),
    "target": _option(str | None, "The side that is compared, such as cudnn."),
}
"""Types and defaults of what says what is asked about."""


def _print_schema(value: bool) -> None:
    """Print the JSON Schema of the verb's documents, and end."""
    if value and Output.verb is not None:
        from perfml.cli.documents import schema_of

        Output().schema(schema_of(Output.verb))
        raise typer.Exit


OUTPUT: dict[str, tuple[Any, Any]] = {
    "as_json": _option(bool, "Print one JSON document on stdout.", False, "--json"),
    "json_schema": _option(
        bool,
        "Print the JSON Schema of what --json prints.",
        False,
        "--json-schema",
        callback=_print_schema,
        is_eager=True,
    ),
    "quiet": _option(bool, "No progress and no notes.", False, "--quiet", "-q"),
    "verbose": _option(
        int,
        "More notes; -vv shows tracebacks.",
        0,
        *("--verbose", "-v"),
        count=True,
        show_default=False,
    ),
}
"""Types and defaults of how an answer is printed."""

OUT = typer.Option("--out", help="Where to write: a file, or a folder.")
TOP = typer.Option("--top", min=0, help="The most rows, findings, layers or metrics to show.")
TOLERANCE = typer.Option(
    "--tolerance", min=0, max=10, help="Difference that is none: relative, of times or errors."
)
PROTOCOL = typer.Option(
    "--protocol",
    help="leave-one-layer-out, leave-one-shape-out, by-run, random, ...; train takes several, "
    "with commas.",
)
PREDICT = typer.Option(
    "--predict", help="What models predict: time, log-time, time-per-flop, time-per-byte, backend."
)
SPLITS = typer.Option("--splits", min=2, help="Random splits.")
RESAMPLES = typer.Option("--resamples", min=2, help="Bootstrap resamples.")

OptionalOut = Annotated[Path | None, OUT]
Top = Annotated[int, TOP]
Splits = Annotated[int, SPLITS]
Resamples = Annotated[int, RESAMPLES]
Protocol = Annotated[str, PROTOCOL]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of all random choices.")]
Brief = Annotated[
    bool,
    typer.Option("--brief", help="Below 6 kB: verdict, causes, what to do, what is missing."),
]
Peaks = Annotated[
    str | None,
    typer.Option(
        "--peaks",
        help="File of perfml doctor --measure-peaks, or: measured, data-sheet. "
        "By default measured ones, completed by the vendor's.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=1, help="Seconds that a program may take.")
]
Backends = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        help="A backend, such as cublas, cudnn, inductor or tensorrt; repeatable.",
    ),
]
Precisions = Annotated[
    list[str] | None,
    typer.Option("--precision", help="fp32, tf32, fp16, bf16 or int8; repeatable."),
]
Batches = Annotated[list[int] | None, typer.Option("--batch", help="Batch size; repeatable.")]

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="dt, gbr or lmt; dt, lr, rf of backends. train and rank take several, with commas.",
    ),
]
Features = Annotated[
    str,
    typer.Option(
        "--features", help="default, published, collected, before-run, or names with commas."
    ),
]
Method = Annotated[
    str | None,
    typer.Option("--method", help="builtin, permutation, group-permutation, shapley."),
]


Predicted = Literal["time", "log-time", "time-per-flop", "time-per-byte", "backend"]
"""What models predict."""


def task_of(predicted: Predicted) -> str:
    """Return the kind of model that predicts it."""
    return "classification" if predicted == "backend" else "regression"


def target_of(predicted: Predicted) -> str:
    """Return the formula of the target, as `perfml.rank` calls it."""
    return "time" if predicted == "backend" else predicted


Predict = Annotated[Predicted, PREDICT]


Form = Literal["text", "html", "md", "junit"]
"""What an answer is written as."""


Format = Annotated[
    Form | None,
    typer.Option("--format", help="text, html, md or junit, as far as the verb knows them."),
]


def only_one(option: str, values: list[Any] | None, otherwise: Any = None) -> Any:
    """Return the value of a repeatable option of which a verb takes one."""
    if values and len(values) > 1:
        msg = f"{option} is taken once here"
        raise PerfmlError(msg, found=", ".join(map(str, values)), cure="Name one.")
    return values[0] if values else otherwise


def words(text: str | None) -> tuple[str, ...] | None:
    """Return the words of a list with commas; None where nothing was given."""
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text else None


def feature_names(names: str) -> str | tuple[str, ...]:
    """Return a feature set's name, or the names that were listed with commas."""
    from perfml.modeling.features import FEATURE_SETS

    return names if names in FEATURE_SETS else words(names) or ()


def peaks_named(named: str | None, devices: Any) -> Any:
    """Return the peaks that --peaks names; None where the device's own are to be taken.

    `devices` is the column of devices that were measured.
    """
    from perfml.explain.roofs.peaks import DATA_SHEET, MEASURED, known_peaks, load_peaks

    kinds = {"measured": MEASURED, "data-sheet": DATA_SHEET}
    if named is None:
        return None
    if named in kinds:
        return known_peaks(", ".join(sorted(map(str, devices.dropna().unique()))), kinds[named])
    if not Path(named).exists():
        msg = "no such file"
        cure = did_you_mean(named, kinds, "Give measured, data-sheet or a file.")
        raise PerfmlError(msg, where=named, cure=cure)
    return load_peaks(named)
