"""The causes in sentences, and where a model contradicts them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from perfml.explain.changed_metrics import ModelAttribution
from perfml.explain.confidence import NAMED
from perfml.explain.times import Ratio
from perfml.explain.tree.causes import ONE_SIDED, Contribution, Kind
from perfml.explain.tree.layer_causes import Causes
from perfml.util.words import Readable, factor_text, micros

SMALL = 0.1  # a cause below a tenth of the largest one is not told


def sided_causes(
    time: Ratio, causes: Causes
) -> tuple[Sequence[Contribution], Sequence[Contribution]]:
    """Return the causes that speak for the measured difference, and those against it."""
    # Those that are small beside the largest are left out, and all where nothing differs.
    if time.slower is None or not causes.totals:
        return (), ()
    sign = 1.0 if time.log_ratio > 0 else -1.0
    towards = [(total, sign * total.log_ratio) for total in causes.totals]
    limit = SMALL * max(abs(value) for _, value in towards)
    return (
        [total for total, value in towards if value > limit],
        [total for total, value in towards if value < -limit],
    )


def cause_in_words(total: Contribution, causes: Causes, baseline: str = "") -> str:
    """Return a cause with its factor, and its levels in the kernel where it matters most."""
    levels = levels_in_words(total, causes, baseline)
    named = f"{total.term.label} {factor_text(total.factor)}"
    return f"{named} ({levels})" if levels else named


def levels_in_words(total: Contribution, causes: Causes, baseline: str = "") -> str:
    """Return what a cause is on both sides, in the kernel where it matters most.

    Empty where one side does nothing of the kind, or nobody counted it; `baseline` is what that
    side is called.
    """
    term = total.term
    parts = sorted(
        (
            (pair.kernels, part)
            for pair in causes.pairs
            for part in pair.contributions
            # a kernel where it did the opposite does not show what the layer's total says
            if part.term == term and part.log_ratio * total.log_ratio >= 0
        ),
        key=lambda entry: -abs(entry[1].log_ratio),
    )
    largest = parts[0][1]
    if any(math.isnan(level) for level in (largest.baseline, largest.target)):
        return ""
    form = term.words.replace("in the baseline", f"under {baseline}") if baseline else term.words
    words = form.format(
        baseline=Readable(largest.baseline),
        target=Readable(largest.target),
        # launches that one side lacks have a time on the other one only
        time=micros(sum(part.baseline + part.target for _, part in parts)),
        kernels=", ".join(_counted(parts)[:NAMED]),
    )
    return f"{_longer(largest)}{words}"


def _counted(parts: Sequence[tuple[str, Contribution]]) -> list[str]:
    """Return each kernel once, with how many launches it has; first what contributes most."""
    sums: dict[str, list[float]] = {}
    for name, part in parts:
        sums.setdefault(name, []).append(abs(part.log_ratio))
    return [
        name if len(each) == 1 else f"{len(each)} launches of {name}"
        for name, each in sorted(sums.items(), key=lambda entry: -sum(entry[1]))
    ]


def _longer(part: Contribution) -> str:
    """Say what a share does not where it went the other way than the waiting that it is of."""
    grown = part.target - part.baseline
    if part.term.kind is not Kind.STALL or grown * part.log_ratio >= 0:
        return ""
    return f"{'longer' if part.log_ratio > 0 else 'shorter'} for the same work: "


SLACK = 0.25
"""A held-out prediction off by more than this factor of the log ratio's own size is no evidence."""

MAJOR = 1 / 3
"""A share of all (absolute) terms that counts as a main cause."""


def find_disagreements(
    time: Ratio, causes: Causes, model: ModelAttribution | None, metrics: pd.DataFrame
) -> tuple[str, ...]:
    """Return what the reader must not miss, as sentences; empty where nothing contradicts."""
    if model is None:
        return ()
    sentences = _against_measurement(time, model)
    if time.slower is None:
        return tuple(sentences)
    one_sided = [total.log_ratio for total in causes.totals if total.term.id in ONE_SIDED]
    if sum(map(abs, one_sided)) > MAJOR * _size(causes):
        sentences.append(
            f"kernels that came or went are a main cause (×{math.exp(sum(one_sided)):.2f}): the "
            "model has no metric for it"
        )
    first = model.values.iloc[0] if len(model.values) else None
    if first is not None and abs(first["log_ratio"]) > 0:
        row = metrics[metrics["metric"] == first["metric"]]
        if len(row) and row["changed"].iloc[0] is not pd.NA and not bool(row["changed"].iloc[0]):
            sentences.append(
                f"the model's first metric, {first['metric']}, did not change beyond its own noise"
            )
    return tuple(sentences)


def _against_measurement(time: Ratio, model: ModelAttribution) -> list[str]:
    if model.held_out_log_ratio is None:
        return ["the model could not be tested without this layer: too few other layers"]
    held, measured = model.held_out_log_ratio, time.log_ratio
    prediction = f"the model, fitted without this layer, predicts {math.exp(held):.3f} times"
    if time.verdict == "undecided":
        return []
    if time.verdict == "no difference":
        if abs(held) > SLACK:
            return [f"{prediction}, where no difference was measured"]
        return []
    if held * measured <= 0:
        return [f"{prediction}, the wrong direction: measured {time.ratio:.3f}"]
    if abs(held - measured) > max(SLACK * abs(measured), 0.05):
        return [f"{prediction}, measured {time.ratio:.3f}: it has the direction, not the size"]
    return []


def _size(causes: Causes) -> float:
    return sum(abs(total.log_ratio) for total in causes.totals)
