"""The one function that compares two sides: the time of every layer, and details of some."""

from __future__ import annotations

import math
import shlex
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from perfml import chips
from perfml.account.account import SUM, Account
from perfml.account.device_time import OFTEN, busy_on_one_device
from perfml.account.time_sources import not_comparable, time_notes
from perfml.errors import PerfmlError, did_you_mean
from perfml.explain.compared import (
    Alignment,
    Side,
    aligned,
    check_conditions,
    make_side,
    rows_by,
)
from perfml.explain.details import DetailReader
from perfml.explain.results import Explanation, by_difference
from perfml.explain.steps import CLOSE, StepComparison
from perfml.explain.times import (
    FEWEST,
    OVERLAP,
    TOLERANCE,
    Ratio,
    compare_times,
    corrected_verdicts,
    did_the_same,
    follow,
    may_overlap,
    of_totals,
    processes_of,
    without_verdict,
)
from perfml.util.typing import Progress
from perfml.util.words import say

if TYPE_CHECKING:
    from perfml.explain.model import Explainer


_WINDOW = 0.1
"""Recordings whose lengths differ by less may be windows of one length: what begins before its end
is recorded as long as it lasts (our choice)."""


def layer_ratios(
    baseline: Side, target: Side, alignment: Alignment, tolerance: float
) -> list[Ratio]:
    """Return the ratio of every pair of layers; verdicts hold together."""
    ratios = []
    within = [_launches_by_layer(side) for side in (baseline, target)]
    for at, (layer, partner) in enumerate(alignment.names):
        ratio = _compared(baseline.rows(layer), target.rows(partner), tolerance)
        if max(ratio.repeats) == 1 and not ratio.unclaimed:
            ratio = _by_launches(ratio, within[0].get(layer), within[1].get(partner), tolerance)
        if alignment.launched is not None:  # a row is one launch of several
            before, after = alignment.launched[at]
            unequal = before.launches != after.launches
            ratio = of_totals(ratio, (before.total_us, after.total_us), unequal=unequal)
        ratios.append(ratio)
    unlike = not_comparable((baseline.name, baseline.layers), (target.name, target.layers))
    return corrected_verdicts([without_verdict(r, unlike) if unlike else r for r in ratios])


def _launches_by_layer(side: Side) -> dict[str, pd.DataFrame]:
    """Return the launches of every layer in their order; none where only layers are known."""
    kernels = side.kernels
    if kernels is None or OFTEN in kernels.columns or not {"kernel_index"} <= set(kernels.columns):
        return {}
    rows = kernels[["layer", "kernel", "time_us"]].iloc[
        np.argsort(kernels["kernel_index"].to_numpy(dtype=float), kind="stable")
    ]
    return {layer: rows.iloc[places] for layer, places in rows_by(rows["layer"]).items()}


def _by_launches(
    ratio: Ratio, before: pd.DataFrame | None, after: pd.DataFrame | None, tolerance: float
) -> Ratio:
    """Return the ratio of a layer that ran once a side, with the interval over its launches."""
    if before is None or after is None or len(before) < FEWEST:
        return ratio
    if before["kernel"].tolist() != after["kernel"].tolist():
        return ratio
    times = [side["time_us"].to_numpy(dtype=float) for side in (before, after)]
    if not all((each > 0).all() for each in times):
        return ratio
    pairs = compare_times(*times, tolerance=tolerance, in_order=True)
    return of_totals(pairs, (ratio.baseline_us, ratio.target_us), unequal=False)


def total_ratio(
    baseline: Side, target: Side, alignment: Alignment, ratios: Sequence[Ratio], tolerance: float
) -> Ratio:
    """Compare the sums over all aligned layers, of the iterations that have every one of them."""
    # Where a repeat is one launch, the sums of all launches are compared; kernels that are launched
    # as often as each other give an interval.
    pairs, whole = alignment.pairs, alignment.whole_us
    often = {each.launches for both in alignment.launched or () for each in both}
    if whole is not None and len(often) > 1:
        ratio = compare_times(whole[:1], whole[1:], tolerance=tolerance)
    else:
        before = _whole_iterations(baseline, pairs["layer"])
        after = _whole_iterations(target, pairs["target_layer"])
        ratio = _compared(before, after, tolerance)
        ratio = ratio if whole is None else of_totals(ratio, whole, unequal=False)
    why = next((each.unclaimed for each in ratios if each.unclaimed), "")
    if _layers_may_overlap(baseline) or _layers_may_overlap(target):
        why = why or OVERLAP
    return without_verdict(ratio, why) if why else ratio


def _compared(before: pd.DataFrame, after: pd.DataFrame, tolerance: float) -> Ratio:
    """Compare the times of some rows; what they were measured in says what their repeats are."""
    processes = processes_of(before), processes_of(after)
    # what several processes a side differ by is measured
    one_each = any(each is None or each.max() == 0 for each in processes)
    times = [side["time_us"].to_numpy(dtype=float) for side in (before, after)]
    ratio = compare_times(
        *times,
        baseline_process=processes[0],
        target_process=processes[1],
        tolerance=tolerance,
        same_work=one_each and did_the_same(before, after),
        in_order=one_each and follow(*times),
    )
    overlap = may_overlap(before) or may_overlap(after)
    return without_verdict(ratio, OVERLAP) if overlap else ratio


def _layers_may_overlap(side: Side) -> bool:
    """Return whether layers may have run side by side: on streams, when nobody knows."""
    kernels = side.kernels
    if kernels is None or "stream" not in kernels.columns or kernels["stream"].nunique() < 2:
        return False
    return "start_us" not in kernels.columns or bool(kernels["start_us"].isna().any())


def _whole_iterations(side: Side, layers: pd.Series) -> pd.DataFrame:
    """Return the time of each iteration that has all of some layers."""
    # Layers that run side by side, as on two streams or devices, are no sum: there it is the time
    # in which the device that worked longest was busy with any of them.
    names = list(dict.fromkeys(layers))
    rows = side.layers[side.layers["layer"].isin(names)]
    keys = [name for name in ("run_id", "process", "iteration") if name in rows.columns]
    groups = rows.groupby(keys, dropna=False, sort=False)["time_us"]
    whole = groups.sum()[groups.size() == len(names)]
    if whole.empty:
        # layers that were never measured together: the sum of their geometric means
        means = [np.exp(np.log(side.rows(name)["time_us"].astype(float)).mean()) for name in names]
        return pd.DataFrame({"time_us": [float(np.sum(means))]})
    kernels = side.kernels
    if kernels is not None and "start_us" in kernels.columns and OFTEN not in kernels.columns:
        launches = kernels[kernels["layer"].isin(names)]
        busy = busy_on_one_device(launches, [key for key in keys if key in launches.columns])
        if busy.index.names == whole.index.names:
            whole = busy.reindex(whole.index).fillna(whole)
    return whole.reset_index()


def explain(
    baseline: pd.DataFrame | Side | str | Path,
    target: pd.DataFrame | Side | str | Path,
    *,
    layers: Sequence[str] | None = None,
    top: int = 3,
    model: str | None = None,
    training: pd.DataFrame | Explainer | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    alignment: Alignment | None = None,
    progress: Progress | None = None,
) -> Explanation:
    """Explain why the target is slower (or faster) than the baseline.

    Parameters
    ----------
    baseline, target
        Kernels or Layers tables, names of what ``perfml explain`` takes (profiles, folders,
        tables), or what `sides_of` or `make_side` returned.
    layers
        Layers of the baseline to explain in detail; by default the `top` ones with the largest
        absolute time difference.
    top
        How many those are.
    model
        Regression model of the model attribution, such as ``gbr``; None leaves it out.
    training
        Layers table the model learns from, or an `Explainer` that has learned (then `model` and
        `seed` are its own); the two sides by default.
    tolerance
        Relative difference that is none, see `compare_times`.
    seed
        Of the model.
    alignment
        Which layers answer to each other; by default those of one name or shape.
    progress
        Called as ``progress(done, total, layer)``.

    Returns
    -------
    Explanation
        All aligned layers, and details of some.

    Raises
    ------
    PerfmlError
        If nothing can be aligned, a named layer or model does not exist, or a side mixes
        measurements.

    Examples
    --------
    >>> from perfml.datasets import load
    >>> from perfml.explain import explain, sides_of
    >>> table = load("h200-yolov4-tiny").frame
    >>> table = table[(table["precision"] == "fp32") & (table["batch"] == 1)]
    >>> pair = sides_of(table, "cublas", "cudnn")
    >>> explain(*pair, layers=["conv_20"], model=None).details[0].time.verdict
    'slower'
    """
    left, right, paired = _sides(baseline, target)
    warnings = check_conditions(left, right)
    explainer = None
    if training is not None and not isinstance(training, pd.DataFrame):
        explainer = training
    elif model is not None:
        rows = pd.concat([left.layers, right.layers]) if training is None else training
        explainer = _learned(rows, model, seed, warnings)
    met = alignment or paired or aligned(left, right)
    ratios = layer_ratios(left, right, met, tolerance)
    table = _overview(met.pairs, ratios)
    step = step_comparison(left, right)
    launched = met.launched or [None] * len(ratios)
    reader, chosen = DetailReader((left, right), explainer), _chosen(table, layers, top)
    if not met.names and step is None:
        msg = "no kernel of one side answers to a kernel of the other"
        alone = (met.only_baseline[0], met.only_target[0])
        cure = say("explain.pairing.name", kernels=list(map(shlex.quote, alone)))
        raise PerfmlError(msg, where=f"{left.name} and {right.name}", cure=cure)
    details = []
    for done, at in enumerate(chosen):
        if progress is not None:
            progress(done, len(chosen), met.names[at][0])
        how = str(table["aligned_by"].iloc[at])
        details.append(reader.read(met.names[at], how, ratios[at], launched[at]))
    total = step.total if step is not None and (step.leads or not met.names) else None
    if left.kernels is None or right.kernels is None:
        warnings.append(say("explain.note.merged"))
    return Explanation(
        baseline=left.name,
        target=right.name,
        total=total or total_ratio(left, right, met, ratios, tolerance),
        layers=table,
        details=tuple(details),
        only_baseline=met.only_baseline,
        only_target=met.only_target,
        warnings=tuple(warnings),
        pairing=met.said,
        time_notes=time_notes((left.name, left.layers), (right.name, right.layers)),
        step=step,
    )


def step_comparison(left: Side, right: Side) -> StepComparison | None:
    """Return two sides on the clock; None unless both were recorded with times."""
    before, after = left.account, right.account
    # a sum of times is no time on the clock
    if before is None or after is None or (before.unit == SUM) != (after.unit == SUM):
        return None
    marked = {before.unit, after.unit} - {"recording", "range"}
    if not marked and before.repeated is not None and after.repeated is not None:
        # what repeats in both, as one may be recorded for longer
        before, after = before.repeated, after.repeated
    sides = _as_many_launches(before, after)
    if sides is None:
        return None
    before, after, often = sides
    both = [chips.of_table(side.layers) for side in (left, right)]
    capability = min((float(chip.capability) for chip in both if chip.capability), default=math.nan)
    bandwidth = min(chip.dram_bytes_per_us for chip in both) / 1e3
    return StepComparison((left.name, right.name), before, after, capability, bandwidth, often)


def _as_many_launches(before: Account, after: Account) -> tuple[Account, Account, float] | None:
    """Return two sides for as many launches where nothing marks what repeats in one of them.

    Both may be recorded for as long, such as by a server in a window of fixed length: then the one
    that repeats its work more often is faster. With them is how often the second one launches what
    the first one does once; 1 where they are left as they are. None where one side is a step, and
    the other all that was recorded of another number of launches.
    """
    alone = [side.unit == "recording" for side in (before, after)]
    one, other = map(_launches, (before, after))
    factors = [other[name] / one[name] for name in one if name in other]
    often = statistics.median(factors) if factors else 1.0
    same = one.keys() == other.keys() and all(
        math.isclose(each, often, rel_tol=CLOSE) for each in factors
    )
    if any(alone) and not all(alone) and not same:
        return None
    windows = all(alone) and math.isclose(before.step_us, after.step_us, rel_tol=_WINDOW)
    repeats = same and (windows or alone[0] != alone[1])
    if not repeats or math.isclose(often, 1.0, rel_tol=CLOSE):
        return before, after, 1.0
    if alone[1]:
        return before, after.part(1 / often), often
    return before.part(often), after, often


def _launches(account: Account) -> Mapping[str, float]:
    """Return how often the busiest device launches each kernel."""
    counts: defaultdict[str, float] = defaultdict(float)
    for part in account.busiest.parts:
        counts[part.kernel] += part.launches
    return {name: times for name, times in counts.items() if times > 0}


def _learned(rows: pd.DataFrame, model: str, seed: int, warnings: list[str]) -> Explainer | None:
    """Return a model that has learned from some layers; warn where these are too few."""
    # scikit-learn takes longer to import than an answer without a model takes
    from perfml.explain.model import Explainer
    from perfml.modeling.models.registry import get_model

    get_model(model, "regression")
    try:
        return Explainer.of_counters(rows, model=model, seed=seed)
    except PerfmlError as error:
        warnings.append(f"no model attribution: {error.what} (found: {error.found})")
        return None


def _sides(
    baseline: pd.DataFrame | Side | str | Path, target: pd.DataFrame | Side | str | Path
) -> tuple[Side, Side, Alignment | None]:
    """Return two sides, and which of their kernels answer to each other without ranges."""
    if not isinstance(baseline, Side) and not isinstance(target, Side):
        from perfml.explain.load import inputs_of, load_sides

        loaded = load_sides(inputs_of(baseline, target))
        return loaded.baseline, loaded.target, loaded.alignment
    left, right = (
        each if isinstance(each, Side) else make_side(name, _table(each))
        for name, each in (("baseline", baseline), ("target", target))
    )
    return left, right, None


def _table(given: pd.DataFrame | str | Path) -> pd.DataFrame:
    from perfml.datasets import read_input

    return given if isinstance(given, pd.DataFrame) else read_input(given).as_read().frame


def _overview(pairs: pd.DataFrame, ratios: Sequence[Ratio]) -> pd.DataFrame:
    table = pairs.copy()
    table["baseline_us"] = [each.baseline_us for each in ratios]
    table["target_us"] = [each.target_us for each in ratios]
    table["ratio"] = [each.ratio for each in ratios]
    nothing = (float("nan"), float("nan"))
    table["low"] = [(each.interval or nothing)[0] for each in ratios]
    table["high"] = [(each.interval or nothing)[1] for each in ratios]
    size = (table["target_us"] - table["baseline_us"]).abs()
    table["share"] = size / size.sum() if size.sum() > 0 else 0.0
    table["verdict"] = [each.verdict for each in ratios]
    return table


def _chosen(table: pd.DataFrame, layers: Sequence[str] | None, top: int) -> list[int]:
    if layers is None:
        return [int(place) for place in by_difference(table).index[:top]]
    names = table["layer"].tolist()
    for name in layers:
        if name not in names:
            msg = f"no aligned layer is called {name!r}"
            cure = did_you_mean(name, names, "Name one of these.")
            raise PerfmlError(msg, found=", ".join(map(str, names[:24])), cure=cure)
    return [names.index(name) for name in layers]
