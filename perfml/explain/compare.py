"""The one function that compares two sides; everything else is a part of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from perfml.account.device_time import OFTEN, busy_on_one_device
from perfml.account.time_sources import not_comparable, only_kernels, time_notes
from perfml.errors import PerfmlError, did_you_mean
from perfml.explain.advice.beside import with_cause
from perfml.explain.advice.first_fix import first_fix
from perfml.explain.advice.hazards import Advice, advise
from perfml.explain.align import Alignment, Launched, align_layers
from perfml.explain.changed_metrics import compare_metrics, sort_metrics
from perfml.explain.compared import Side, check_conditions, make_side, rows_by, same_device
from perfml.explain.gaps import UNSEEN, Waterfall
from perfml.explain.launches import (
    LaunchReader,
    changes_between,
    changes_table,
    launches_table,
    merged_launch,
)
from perfml.explain.layer_parts import LayerParts
from perfml.explain.nested import pieces_apart
from perfml.explain.results import Causes, Explanation, LayerDiff, Ratio
from perfml.explain.roofs.peaks import Peaks
from perfml.explain.steps import StepComparison
from perfml.explain.timelines import MOST_LAYERS, compare_clocks, layers_on_the_clock
from perfml.explain.times import (
    OVERLAP,
    TOLERANCE,
    compare_times,
    corrected_verdicts,
    did_the_same,
    may_overlap,
    of_totals,
    processes_of,
    without_verdict,
)
from perfml.explain.tree.contradictions import find_disagreements
from perfml.explain.tree.layer import kernel_causes, layer_causes
from perfml.explain.tree.sentences import summary_sentences
from perfml.util.typing import Progress

if TYPE_CHECKING:
    from perfml.explain.model.explainer import Explainer


def explain(
    baseline: pd.DataFrame | Side | str | Path,
    target: pd.DataFrame | Side | str | Path,
    *,
    layers: Sequence[str] | None = None,
    top: int = 3,
    model: str | None = "gbr",
    training: pd.DataFrame | Explainer | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    peaks: Peaks | None = None,
    advice: Advice | None = None,
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
        Regression model of the model attribution; None leaves it out.
    training
        Layers table the model learns from, or an `Explainer` that has learned (then `model` and
        `seed` are its own); the two sides by default.
    tolerance
        Relative difference that is none, see `compare_times`.
    seed
        Of the model.
    peaks
        For what padding a product saves; by default those known of each device.
    advice
        What the rules say of both sides, which are its backends, where that is known already.
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
    alignment = alignment or paired or align_layers(left.layers, right.layers)
    pairs = alignment.pairs
    launched: Sequence[_Counts] = alignment.launched or [None] * len(pairs)
    ratios = [
        _counted(_compared(left.rows(layer), right.rows(partner), tolerance), counts)
        for (layer, partner), counts in zip(_names(pairs), launched, strict=True)
    ]
    unlike = not_comparable((left.name, left.layers), (right.name, right.layers))
    ratios = [without_verdict(each, unlike) if unlike else each for each in ratios]
    ratios = corrected_verdicts(ratios)
    table = _overview(pairs, ratios)
    chosen = _chosen(table, layers, top)
    explainer = None
    if training is not None and not isinstance(training, pd.DataFrame):
        explainer = training
    elif model is not None:
        # scikit-learn takes longer to import than an answer without a model takes
        from perfml.explain.model.explainer import Explainer
        from perfml.modeling.models.registry import get_model

        get_model(model, "regression")
        rows = pd.concat([left.layers, right.layers]) if training is None else training
        try:
            explainer = Explainer(rows, model=model, seed=seed)
        except PerfmlError as error:
            warnings.append(f"no model attribution: {error.what} (found: {error.found})")
    both = [
        (left, list(pairs["layer"].iloc[chosen])),
        (right, list(pairs["target_layer"].iloc[chosen])),
    ]
    found = tuple(_advice(side, names, peaks, advice) for side, names in both) if chosen else ()
    readers = (LaunchReader(left), LaunchReader(right)) if chosen else ()
    names = (left.name, right.name)
    on_the_clock: dict[str, Waterfall] = {}
    step = None
    if left.account is not None and right.account is not None:
        step = StepComparison(names, left.account, right.account)
    elif len(pairs) > 1:  # of one layer that is said of the whole
        on_the_clock = layers_on_the_clock(left.kernels, right.kernels, names, _names(pairs))
    details = []
    comparable = same_device(left, right)
    for done, place in enumerate(chosen):
        pair = pairs.iloc[place]
        if progress is not None:
            progress(done, len(chosen), str(pair["layer"]))
        clock = on_the_clock.get(str(pair["layer"]))
        details.append(
            _detail(
                readers,
                pair,
                ratios[place],
                launched[place],
                explainer,
                found,
                clock,
                comparable=comparable,
            )
        )
    if any(side.kernels is None for side in (left, right)):
        warnings.append(
            "only merged layers were given: what vanished or appeared is known by name, not by "
            "time; give the kernels table for that"
        )
    gaps = compare_clocks(left.kernels, right.kernels, names)
    return Explanation(
        baseline=left.name,
        target=right.name,
        total=_total(left, right, alignment, ratios, tolerance) if step is None else _of_step(step),
        layers=table,
        details=tuple(details),
        only_baseline=alignment.only_baseline,
        only_target=alignment.only_target,
        warnings=tuple(warnings),
        pairing=alignment.said,
        time_notes=(
            *time_notes((left.name, left.layers), (right.name, right.layers)),
            *(() if gaps is None or step is not None else gaps.sentences()),
            *_on_the_clock(on_the_clock, None if layers is None else table["layer"].iloc[chosen]),
        ),
        gaps=gaps,
        step=step,
    )


def _of_step(step: StepComparison) -> Ratio:
    """Return the ratio of a step on the clock, which has no interval."""
    return Ratio(
        baseline_us=step.baseline.step_us,
        target_us=step.target.step_us,
        log_ratio=step.log_ratio,
        log_low=None,
        log_high=None,
        repeats=step.repeats,
        verdict=step.verdict,
    )


def _on_the_clock(found: Mapping[str, Waterfall], asked: Iterable[str] | None) -> list[str]:
    """Say it of the layers that wait longest, or of those that were asked for alone."""
    wanted = [*found][:MOST_LAYERS] if asked is None else [each for each in asked if each in found]
    return [f"{name}: {found[name].of_layer()}" for name in wanted]


def _sides(
    baseline: pd.DataFrame | Side | str | Path, target: pd.DataFrame | Side | str | Path
) -> tuple[Side, Side, Alignment | None]:
    """Return two sides, and which of their kernels answer to each other without ranges."""
    given = (baseline, target)
    if isinstance(baseline, str | Path) and isinstance(target, str | Path):
        from perfml.datasets.choosing import LaunchChoice
        from perfml.datasets.loading import read_pair, without_guesses
        from perfml.explain.load import given_sides

        pair = (str(baseline), str(target))
        read = without_guesses(read_pair(pair, choices=(LaunchChoice(), LaunchChoice())))
        names = [Path(name).name for name in pair]
        return given_sides(names if names[0] != names[1] else pair, read)
    sides = [
        each if isinstance(each, Side) else make_side(name, _table(each))
        for name, each in zip(("baseline", "target"), given, strict=True)
    ]
    return sides[0], sides[1], None


def _table(given: pd.DataFrame | str | Path) -> pd.DataFrame:
    if isinstance(given, pd.DataFrame):
        return given
    from perfml.datasets.loading import read_given

    read = read_given(given)
    return read.table if read.kernels is None else read.launches


def _names(pairs: pd.DataFrame) -> list[tuple[str, str]]:
    return [
        (str(layer), str(partner))
        for layer, partner in zip(pairs["layer"], pairs["target_layer"], strict=True)
    ]


def _times(side: Side, layer: str) -> np.ndarray:
    return side.rows(layer)["time_us"].to_numpy(dtype=float)


_Counts = tuple[Launched, Launched] | None
"""What both sides launch of a kernel; None where a row is a whole layer."""


def _counted(ratio: Ratio, launched: _Counts) -> Ratio:
    """Return the ratio of all launches, where a row is one of them."""
    if launched is None:
        return ratio
    before, after = launched
    unequal = before.launches != after.launches
    return of_totals(ratio, (before.total_us, after.total_us), unequal=unequal)


def _compared(before: pd.DataFrame, after: pd.DataFrame, tolerance: float) -> Ratio:
    """Compare the times of some rows; what they were measured in says what their repeats are."""
    processes = processes_of(before), processes_of(after)
    # what several processes a side differ by is measured
    one_each = any(each is None or each.max() == 0 for each in processes)
    ratio = compare_times(
        before["time_us"].to_numpy(dtype=float),
        after["time_us"].to_numpy(dtype=float),
        baseline_process=processes[0],
        target_process=processes[1],
        tolerance=tolerance,
        same_work=one_each and did_the_same(before, after),
    )
    overlap = may_overlap(before) or may_overlap(after)
    return without_verdict(ratio, OVERLAP) if overlap else ratio


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
        order = table["share"].sort_values(ascending=False, kind="stable").index[:top]
        return [int(place) for place in order]
    names = table["layer"].tolist()
    for name in layers:
        if name not in names:
            msg = f"no aligned layer is called {name!r}"
            cure = did_you_mean(name, names, "Name one of these.")
            raise PerfmlError(msg, found=", ".join(map(str, names[:24])), cure=cure)
    return [names.index(name) for name in layers]


def _total(
    left: Side, right: Side, alignment: Alignment, ratios: Sequence[Ratio], tolerance: float
) -> Ratio:
    """Compare the sums over all aligned layers, of the iterations that have every one of them.

    Where a repeat is one launch, the sums of all launches are compared; kernels that are launched
    as often as each other give an interval.
    """
    pairs, whole = alignment.pairs, alignment.whole_us
    often = {each.launches for both in alignment.launched or () for each in both}
    if whole is not None and len(often) > 1:
        ratio = compare_times(whole[:1], whole[1:], tolerance=tolerance)
    else:
        before, after = (
            _whole_iterations(side, pairs[column])
            for side, column in ((left, "layer"), (right, "target_layer"))
        )
        ratio = _compared(before, after, tolerance)
        ratio = ratio if whole is None else of_totals(ratio, whole, unequal=False)
    why = next((each.unclaimed for each in ratios if each.unclaimed), "")
    if any(map(_layers_may_overlap, (left, right))):
        why = why or OVERLAP
    return without_verdict(ratio, why) if why else ratio


def _layers_may_overlap(side: Side) -> bool:
    """Return whether layers may have run side by side: on streams, when nobody knows."""
    kernels = side.kernels
    if kernels is None or "stream" not in kernels.columns or kernels["stream"].nunique() < 2:
        return False
    return "start_us" not in kernels.columns or bool(kernels["start_us"].isna().any())


def _whole_iterations(side: Side, layers: pd.Series) -> pd.DataFrame:
    """Return the time of each iteration that has all of some layers.

    Layers that run side by side, as on two streams or devices, are no sum: there it is the time in
    which the device that worked longest was busy with any of them.
    """
    names = set(layers)
    rows = side.layers[side.layers["layer"].isin(names)]
    keys = [name for name in ("run_id", "process", "iteration") if name in rows.columns]
    groups = rows.groupby(keys, dropna=False, sort=False)["time_us"]
    whole = groups.sum()[groups.size() == len(names)]
    if whole.empty:
        # layers that were never measured together: the sum of their means
        means = [compare_times(_times(side, name), [1.0]).baseline_us for name in names]
        return pd.DataFrame({"time_us": [float(np.sum(means))]})
    kernels = side.kernels
    if kernels is not None and "start_us" in kernels.columns and OFTEN not in kernels.columns:
        launches = kernels[kernels["layer"].isin(names)]
        busy = busy_on_one_device(launches, [key for key in keys if key in launches.columns])
        if busy.index.names == whole.index.names:
            whole = busy.reindex(whole.index).fillna(whole)
    return whole.reset_index()


def _detail(
    readers: Sequence[LaunchReader],
    pair: pd.Series,
    time: Ratio,
    launched: _Counts,
    explainer: Explainer | None,
    advice: Sequence[Mapping[str, pd.DataFrame]],
    on_the_clock: Waterfall | None,
    *,
    comparable: bool,
) -> LayerDiff:
    left, right = (reader.side for reader in readers)
    layer, target_layer = str(pair["layer"]), str(pair["target_layer"])
    before_rows, after_rows = left.rows(layer), right.rows(target_layer)
    parts = LayerParts.of(before_rows, after_rows, launched)
    kernels_us = parts.kernels_us(time)
    before = readers[0].read(layer, kernels_us[0])
    after = readers[1].read(target_layer, kernels_us[1])
    changes = changes_between(before.names, after.names)
    launches = (before.launches or (), after.launches or ())
    if before.launches is not None and after.launches is not None:
        causes = kernel_causes(changes, before, after, same_device=comparable)
    else:
        merged = (
            merged_launch(before_rows, kernels_us[0]),
            merged_launch(after_rows, kernels_us[1]),
        )
        launches = ((merged[0],), (merged[1],))
        causes = layer_causes(*merged, same_device=comparable)
    causes = parts.joined(causes)
    if layer == target_layer and (apart := pieces_apart(layer, time, causes, (left, right))):
        causes = replace(causes, untold=apart)
    hidden = on_the_clock if on_the_clock is not None and on_the_clock.hidden else None
    # a kernel's cure is no answer where the time passes between the kernels
    between = hidden is not None and hidden.dominate
    names = (left.name, right.name)
    tables = not left.by
    fix = None if between else first_fix(time, causes, names, launches, tables=tables)
    reasons = summary_sentences(time, causes)
    if hidden is not None:
        reasons = (*hidden.points(), *reasons)
    alike = time.verdict not in ("slower", "faster") and on_the_clock is None
    unseen = UNSEEN if alike and only_kernels(before_rows, after_rows) else ""
    if unseen:
        reasons = (*reasons, unseen)
    attribution = None if explainer is None else explainer.attribute(before_rows, after_rows)
    metrics = compare_metrics(before_rows, after_rows)
    if attribution is not None:
        values = attribution.values.set_index("metric")["log_ratio"].to_dict()
        metrics = sort_metrics(metrics, {str(name): float(each) for name, each in values.items()})
    return LayerDiff(
        layer=layer,
        target_layer=target_layer,
        aligned_by=str(pair["aligned_by"]),
        time=time,
        kernels=changes_table(changes, before, after),
        launches=launches_table(changes, before, after),
        metrics=metrics,
        causes=causes,
        model=attribution,
        disagreements=(
            *(() if hidden is None else (hidden.of_layer(),)),
            *find_disagreements(time, causes, attribution, metrics),
        ),
        warnings=tuple(
            f"{side.name}: {side_launches.others} of "
            f"{side_launches.others + side_launches.repeats} repeats launch other kernels; "
            "the kernels shown are those of the usual repeats"
            for side, side_launches in ((left, before), (right, after))
            if side_launches.others
        ),
        reasons=reasons if fix is None else (*reasons, fix.sentence()),
        fix=fix,
        on_the_clock=hidden,
        unseen=unseen,
        advice=_advice_beside(advice, (layer, target_layer), time, causes, between=between),
    )


def _advice_beside(
    advice: Sequence[Mapping[str, pd.DataFrame]],
    layers: tuple[str, str],
    time: Ratio,
    causes: Causes,
    *,
    between: bool,
) -> pd.DataFrame:
    """Return both sides' findings of a layer; what both sides tell makes them more or less sure."""
    own = [side[name] for side, name in zip(advice, layers, strict=True)]
    found = pd.concat(own, ignore_index=True)
    if time.verdict not in ("slower", "faster"):
        return found
    slower = own[1 if time.verdict == "slower" else 0]
    if slower.empty:
        return found
    # no kernel's cure is the answer where the time passes between the kernels
    sure = "open" if between else causes.certainty
    sign = 1.0 if time.verdict == "slower" else -1.0
    along = [each.term for each in causes.totals if sign * each.log_ratio > 0]
    first = along[0] if along and not along[0].residual and not between else None
    return with_cause(found, str(slower["side"].iloc[0]), sure, first)


def _advice(
    side: Side, layers: Sequence[str], peaks: Peaks | None, known: Advice | None
) -> dict[str, pd.DataFrame]:
    """Return what advice says of each of some layers of one side."""
    if known is None:
        rows = side.layers if side.kernels is None else side.kernels
        mine = rows[rows["layer"].isin(layers)]
        found = advise(mine, peaks=peaks, layers=list(mine["layer"].unique())).table
    else:
        own = known.table["backend"] == side.name
        # who is faster the comparison itself says
        found = known.table[own].assign(faster=None).reset_index(drop=True)
    found.insert(0, "side", side.name)
    places = rows_by(found["layer"])
    return {str(name): found.iloc[places.get(str(name), [])] for name in layers}
