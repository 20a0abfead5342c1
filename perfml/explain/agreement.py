"""Where the attributions contradict each other or the measurement: rules, each one a sentence."""

from __future__ import annotations

import math

import pandas as pd

from perfml.explain.physical import APPEARED, VANISHED
from perfml.explain.results import ModelAttribution, Physical, Ratio

SLACK = 0.25
"""A held-out prediction off by more than this factor of the log ratio's own size is no evidence."""

MAJOR, MINOR = 1 / 3, 0.1
"""A share of all (absolute) terms that counts as a main cause, and one that counts as none."""

_OCCUPANCY = ("occupancy limit", "wave fill", "occupancy reached")


def find_disagreements(
    time: Ratio, physical: Physical, model: ModelAttribution | None, metrics: pd.DataFrame
) -> tuple[str, ...]:
    """Return what the reader must not miss, as sentences; empty where nothing contradicts."""
    if model is None:
        return ()
    found: list[str] = []
    found += _against_measurement(time, model)
    if time.verdict not in ("slower", "faster"):
        return tuple(found)
    gone = physical.terms[physical.terms["term"].isin((VANISHED, APPEARED))]
    if len(gone) and _share(physical.terms, gone["term"]) > MAJOR:
        net = float(gone["log_ratio"].sum())
        found.append(
            f"kernels that vanished or appeared are a main physical cause ({net:+.3f} net), which "
            "no metric of the model can say: the model spreads it over metrics that merely changed "
            "along with it"
        )
    found += _occupancy(physical, model)
    first = model.values.iloc[0] if len(model.values) else None
    if first is not None and abs(first["log_ratio"]) > 0:
        row = metrics[metrics["metric"] == first["metric"]]
        if len(row) and row["moved"].iloc[0] is not pd.NA and not bool(row["moved"].iloc[0]):
            found.append(
                f"the model's first metric, {first['metric']}, did not move beyond its own noise"
            )
    return tuple(found)


def _against_measurement(time: Ratio, model: ModelAttribution) -> list[str]:
    if model.held_out_log_ratio is None:
        return ["the model could not be tested without this layer: too few other layers"]
    held, measured = model.held_out_log_ratio, time.log_ratio
    said = f"the model, fitted without this layer, predicts {math.exp(held):.3f} times"
    if time.verdict == "undecided":
        return []
    if time.verdict == "no difference":
        if abs(held) > SLACK:
            return [f"{said}, where no difference was measured"]
        return []
    if held * measured <= 0:
        return [f"{said}, the wrong direction: measured {time.ratio:.3f}"]
    if abs(held - measured) > max(SLACK * abs(measured), 0.05):
        return [f"{said}, measured {time.ratio:.3f}: it has the direction, not the size"]
    return []


def _occupancy(physical: Physical, model: ModelAttribution) -> list[str]:
    terms = physical.terms[physical.terms["term"].isin(_OCCUPANCY)]
    values = model.values[model.values["family"] == "occupancy"]
    if terms.empty or values.empty:
        return []
    ours, theirs = float(terms["log_ratio"].sum()), float(values["log_ratio"].sum())
    all_ours = float(physical.terms["log_ratio"].abs().sum())
    all_theirs = float(model.values["log_ratio"].abs().sum())
    if all_ours == 0 or all_theirs == 0:
        return []
    share, other = abs(ours) / all_ours, abs(theirs) / all_theirs
    said = f"occupancy: {ours:+.3f} physically, {theirs:+.3f} in the model"
    if share > MAJOR and other > MINOR and ours * theirs < 0:
        return [f"{said}: opposite directions"]
    if share > MAJOR and other < MINOR:
        return [f"{said}: a main physical cause that the model hardly uses"]
    if other > MAJOR and share < MINOR:
        return [f"{said}: the model's main cause is physically a minor one"]
    return []


def _share(terms: pd.DataFrame, names: pd.Series) -> float:
    total = float(terms["log_ratio"].abs().sum())
    chosen = terms[terms["term"].isin(names)]["log_ratio"].abs().sum()
    return float(chosen) / total if total else 0.0
