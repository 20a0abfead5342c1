"""`perfml.gate`: the verdict of the verb gate, asked in Python."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from perfml.datasets.loading import Input
from perfml.datasets.opening import read_input
from perfml.explain.compared import make_side
from perfml.gate.baselines import load_baseline
from perfml.gate.policy import Policy, load_policy
from perfml.gate.verdict import GateResult, judge


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
    return judge(_layers(base), _layers(new), policy or Policy())


def _layers(data: pd.DataFrame | str | Path) -> pd.DataFrame:
    if isinstance(data, pd.DataFrame):
        return make_side("table", data).layers
    saved = None if Path(data).exists() else load_baseline(str(data))
    if saved is not None:
        return saved.frame
    return layers_judged(read_input(data))


def layers_judged(given: Input) -> pd.DataFrame:
    """Return the layers of an input; without ranges the whole run is one layer.

    A kernel that is launched more often is more work then, as it is within a layer.
    """
    return make_side(given.name, given.table, given.kernels if given.ranged else None).layers
