"""`perfml.gate`: the verdict of the verb gate, asked in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from perfml.account.account import ACCOUNT
from perfml.account.ranks import account_in
from perfml.datasets.loading import Input
from perfml.datasets.opening import read_input
from perfml.explain.compare import step_comparison
from perfml.explain.compared import Side, make_side
from perfml.gate.policy import Policy, load_baseline, load_policy
from perfml.gate.verdict import OUTSIDE, GateResult, judge, layer_alignment
from perfml.tables import Table


def gate(
    base: pd.DataFrame | str | Path,
    new: pd.DataFrame | str | Path,
    *,
    tolerances: Policy | str | Path | None = None,
) -> GateResult:
    """Say whether a new version does more work than the accepted one.

    Parameters
    ----------
    base, new
        A Kernels or Layers table, or the name of a profile, a run's folder, a table, a data set or
        a saved baseline.
    tolerances
        What is still the same, or a TOML file of it; the defaults without.

    Returns
    -------
    GateResult
        Verdict, reasons and layers; ``exit_code`` is that of ``perfml gate``.

    Raises
    ------
    PerfmlError
        If a side cannot be read, or the two cannot be compared.

    Examples
    --------
    >>> import perfml
    >>> layers = perfml.load_dataset("h200-yolov4-tiny", where=["batch=1", "precision=fp32"])
    >>> cudnn = layers[layers["backend"] == "cudnn"]
    >>> int(perfml.gate(cudnn, cudnn).exit_code)
    0
    """
    policy = load_policy(Path(tolerances)) if isinstance(tolerances, str | Path) else tolerances
    return judged(_table(base), _table(new), policy)


def judged(base: Table, new: Table, policy: Policy | None = None) -> GateResult:
    """Judge two tables of `layers_judged`; where a clock was recorded, it is that of explain."""
    sides = (
        Side(name, table.frame, None, account=account_in(table.provenance))
        for name, table in (("baseline", base), ("new version", new))
    )
    step = step_comparison(*sides)
    # as in `explain`: the clock alone answers where no layer does
    alone = step is not None and not layer_alignment(base.frame, new.frame).names
    clock = step.total if step is not None and (step.leads or alone) else None
    return judge(base.frame, new.frame, policy, clock)


def _table(data: pd.DataFrame | str | Path) -> Table:
    if isinstance(data, pd.DataFrame):
        kernels = None if "kernel_names" in data.columns else data
        return Table(_with_outside(make_side("table", data).layers, kernels), "layers", {})
    saved = None if Path(data).exists() else load_baseline(str(data))
    return saved or layers_judged(read_input(data))


def layers_judged(given: Input) -> Table:
    """Return the layers of an input, with its clock; without ranges the whole run is one layer.

    A kernel that is launched more often than others is more work then, as within a layer.
    Launches outside every range are one layer more, `OUTSIDE`; a table of layers does not tell of
    them.
    """
    layers = make_side(given.name, given.table).layers
    layers = _with_outside(layers, given.kernels if given.stored is None else None)
    clock = {} if given.account is None else {"sources": [{ACCOUNT: given.account.to_dict()}]}
    return Table(layers, "layers", {"source": given.title, **clock})


def _with_outside(layers: pd.DataFrame, kernels: pd.DataFrame | None) -> pd.DataFrame:
    if kernels is None or not 0 < kernels["layer"].isna().sum() < len(kernels):
        return layers
    outside = kernels[kernels["layer"].isna()].assign(layer=OUTSIDE).reset_index(drop=True)
    timed = (outside["time_us"] > 0) & np.isfinite(outside["time_us"].astype(float))
    # counts add up whatever their weights; a sum of which a time is not known is not known
    rows = make_side(OUTSIDE, outside.assign(time_us=outside["time_us"].where(timed, 1.0))).layers
    unknown = outside.loc[~timed, ["run_id", "iteration"]].apply(tuple, axis=1)
    partly = rows[["run_id", "iteration"]].apply(tuple, axis=1).isin(set(unknown))
    rows["time_us"] = rows["time_us"].where(~partly)
    return pd.concat([layers, rows], ignore_index=True)
