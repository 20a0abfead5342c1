"""The verbs advise and roofline: what a slow layer suffers from, and how far it is from peaks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli._output import Json, Output, Quiet, Verbose
from perfml.errors import PerfmlError

if TYPE_CHECKING:
    import pandas as pd

    from perfml.explain.advice import Advice
    from perfml.explain.peaks import Peaks

Dataset = Annotated[
    str, typer.Argument(help="Kernels or layers table, a recording, or a dataset's name.")
]
Layer = Annotated[list[str] | None, typer.Option(help="Only this layer; repeatable.")]
Where = Annotated[
    list[str] | None,
    typer.Option(help="Keep rows where COLUMN=VALUE, such as batch=1; repeatable."),
]
Launches = Annotated[Path | None, typer.Option(help="The Kernels table behind a Layers table.")]
PeaksFile = Annotated[
    str | None,
    typer.Option(
        "--peaks",
        help="File of perfml doctor --measure-peaks, or: measured, data-sheet. "
        "By default measured ones, completed by the vendor's.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add this room's verbs to the command line."""
    app.command()(advise)
    app.command()(roofline)


def advise(
    dataset: Dataset,
    layer: Layer = None,
    top: Annotated[int, typer.Option(min=1, help="Show so many findings.")] = 10,
    kernels: Launches = None,
    ncu_rules: Annotated[
        Path | None,
        typer.Option(help="Report or details CSV with Nsight Compute's rules on these launches."),
    ] = None,
    ncu_min_speedup: Annotated[
        float, typer.Option(min=0.0, help="Leave out results that promise less, in per cent.")
    ] = 0.0,
    rules: Annotated[Path | None, typer.Option(help="A file of rules instead of perfml's.")] = None,
    peaks: PeaksFile = None,
    where: Where = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Say what slow layers suffer from: hazard, numbers, what helps, and how much at most.

    Example: perfml advise h200-sweep --where batch=1 --where backend=cudnn;
    perfml advise profile.ncu-rep --ncu-rules profile.ncu-rep
    """
    out = Output(as_json, quiet, verbose)
    from perfml.explain import advise as check

    layers, launches = _tables(dataset, kernels, where)
    found = check(
        layers,
        kernels=launches,
        peaks=peaks_given(peaks, layers),
        ncu_rules=None if ncu_rules is None else _results(ncu_rules),
        ncu_min_speedup=ncu_min_speedup,
        rules=rules,
        layers=layer,
    )
    for warning in found.warnings:
        out.warn(warning)
    out.result({"table": dataset, **found.to_dict()}, [])
    if not as_json:
        _advice(out, found, top)


def roofline(
    dataset: Dataset,
    layer: Layer = None,
    by: Annotated[str, typer.Option(help="layer or kernel.")] = "layer",
    peaks: PeaksFile = None,
    kernels: Launches = None,
    where: Where = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Place layers or kernels under the roofs of their device: intensity, bound, fraction.

    Example: perfml roofline h200-yolov4-tiny --where batch=8 --where precision=fp32;
    perfml roofline kernels.parquet --peaks peaks.json --layer conv_20 --by kernel
    """
    out = Output(as_json, quiet, verbose)
    from perfml.explain.launches import kernel_label
    from perfml.explain.peaks import peaks_of
    from perfml.explain.roofs import usual_roofline

    if by not in ("layer", "kernel"):
        msg = f"--by must be layer or kernel, not {by!r}"
        raise PerfmlError(msg)
    layers, launches = _tables(dataset, kernels, where)
    table = layers if by == "layer" else launches
    if table is None:
        msg = "only merged layers are known"
        raise PerfmlError(msg, cure="Give the Kernels table with --kernels.")
    if layer:
        known = set(table["layer"].dropna())
        for name in layer:
            if name not in known:
                msg = f"no layer is called {name!r}"
                found = ", ".join(sorted(map(str, known))[:12])
                raise PerfmlError(msg, found=found, cure="Name one of these.")
        table = table[table["layer"].isin(layer)]
    devices = sorted(map(str, table["device"].dropna().unique()))
    roofs = peaks_of(devices, peaks_given(peaks, table))
    rows = usual_roofline(table, roofs)
    out.result({"table": dataset, "peaks": roofs.to_dict(), "rows": rows}, [])
    if as_json:
        return
    out.result({}, [f"Peaks, {roofs.sentence()}", ""])
    names = [name for name in rows.columns if name not in ("flops", "flops_source", "kernel")]
    shown = [name for name in names if not name.endswith(("_bytes", "_rate"))]
    if by == "kernel":
        shown.insert(1, "kernel")
        rows = rows.assign(kernel=[kernel_label(str(name)) for name in rows["kernel"]])
    out.table(shown, rows[shown].itertuples(index=False, name=None))
    out.result({}, ["", "intensity: operations a byte; fraction: of the roof that bounds."])
    if rows["flops"].isna().any():
        said = (
            "operations of tensor cores have no counter here: without a layer's shape, no intensity"
        )
        out.result({}, [said])
    low = rows[rows["fraction"] < 0.1]
    if len(low):
        said = f"{len(low)} of {len(rows)} rows reach less than 10 % of every roof: they are bound "
        out.result({}, [said + "by latency, launches or too few blocks (perfml advise)."])


def _tables(
    dataset: str, kernels: Path | None, where: list[str] | None
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    from perfml.explain.load import load_tables, only
    from perfml.tables import read_table

    layers, launches = load_tables(dataset, where)
    if kernels is not None:
        launches = only(read_table(kernels, kind="kernels").frame, where, strict=False)
    return layers, launches


def peaks_given(given: str | None, table: pd.DataFrame) -> Peaks | None:
    """Return the peaks that --peaks names; None where the device's own are to be taken."""
    from perfml.explain.peaks import DATA_SHEET, MEASURED, known_peaks, load_peaks

    if given is None:
        return None
    if given not in ("measured", "data-sheet"):
        return load_peaks(given)
    devices = sorted(map(str, table["device"].dropna().unique()))
    return known_peaks(", ".join(devices), MEASURED if given == "measured" else DATA_SHEET)


def _results(path: Path) -> pd.DataFrame:
    from perfml.explain.load import load_ncu_rules

    return load_ncu_rules(path)


def _advice(out: Output, found: Advice, top: int) -> None:
    from perfml.cli._explain import finding

    shown = found.table.head(top)
    said = f"{len(found.table)} findings in {found.layers} layers and conditions"
    small = f", {found.below} more that promise little" if found.below else ""
    out.result({}, [f"{said}{small}; the largest possible savings first (they do not add up):"])
    for row in shown.to_dict(orient="records"):
        out.result({}, ["", f"{_place(row)}: {row['saved_us']:.3g} of {row['time_us']:.3g} us"])
        out.result({}, [f"  {row['rule']}: {finding(row)}"])
        if row["ncu"] in ("agrees", "silent"):
            out.result({}, [f"  Nsight Compute's own rule {row['ncu']}."])
        if out.verbose:
            out.result({}, [f"  source: {row['source']}"])
    if len(found.table) > top:
        out.result({}, ["", f"{len(found.table) - top} more with --top or --json."])
    if found.agreement is not None:
        out.result({}, ["", "Launches flagged by perfml's and by Nsight Compute's rules:"])
        out.table(list(found.agreement.columns), found.agreement.itertuples(index=False, name=None))
    if len(found.not_checked):
        out.result({}, ["", "Not checked:"])
        columns = [name for name in found.not_checked.columns if name not in ("rule", "missing")]
        for (rule, missing), same in found.not_checked.groupby(["rule", "missing"], sort=False):
            parts = ["/".join(map(str, each)) for each in same[columns].itertuples(index=False)]
            out.result({}, [f"  {rule}: {missing} not collected ({', '.join(parts)})"])


def _place(row: dict[Any, Any]) -> str:
    parts = [row[name] for name in ("layer", "backend", "precision") if row[name] == row[name]]
    said = " ".join(str(part) for part in parts if part is not None)
    return (
        said if row["batch"] is None or row["batch"] != row["batch"] else f"{said} b{row['batch']}"
    )
