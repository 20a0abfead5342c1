"""Give the kernels of a metrics log their times, from a summary or trace of the same program."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from perfml.errors import InputError
from perfml.tables import KERNEL_COLUMNS, KERNEL_OPTIONAL, Kernels, metric_columns, validate_kernels
from perfml.util.words import count, first_few

_SPELLINGS = (
    (re.compile(r"\s+"), ""),
    (re.compile(r"\(void\)"), "()"),
    # A template argument is <unsigned int=4> to nvprof, and <4u> or <(bool)1> to the C++ runtime.
    (re.compile(r"\b(?:un)?(?:signed)?(?:int|long|longlong|char|short|bool)=(?=-?\d)"), ""),
    (re.compile(r"\((?:int|long|char|short|bool)\)(?=-?\d)"), ""),
    (re.compile(r"(?<=[<,])true(?=[,>])"), "1"),
    (re.compile(r"(?<=[<,])false(?=[,>])"), "0"),
    (re.compile(r"(?<=\d)(?:u|l|ul|ll|ull)(?=[,>])"), ""),
)
"""Nvprof's text and a C++ demangler spell a name differently; both are brought to one form."""
_ELLIPSIS = re.compile(r"(?:\.\.\.|…)$")
_SHORTEST = 12
_TIMELINE = ("stream", "start_us", "gap_us")
_SIZES = ("registers_per_thread", "shared_memory_per_block", "threads")


_SHAPE = ("grid", "block")


def join(metrics: Kernels, times: Kernels) -> Kernels:
    """Join a metrics log with the times of the same program, by kernel.

    nvprof collects metrics in replays, so a metrics log has no times of its own. Three cases:

    - both have one row a launch, and the same number of each kernel: launch by launch;
    - the times have layers (NVTX ranges of an exported profile): the result has the rows of
      `times`, each with the metrics of the same launch by launch order, or, where order does not
      tell it, with its kernel's metrics averaged over launches;
    - otherwise: the rows of `metrics`, each with its kernel's time averaged over launches.

    Names are compared in one spelling, without their blanks. A name cut short by a text table
    matches the one longer name that it begins, if there is only one. Warnings name kernels of one
    side alone, other numbers of invocations, and averages over several layers. Raises `InputError`
    if `metrics` has no metrics, `times` no times, or no kernel is in both.
    """
    _check(metrics, times)
    left = metrics.frame.copy()
    right = times.frame.copy()
    left["_key"] = _keys(left)
    right["_key"] = _matched(_keys(right), left["_key"])
    layered = right["layer"].notna().any() and left["layer"].isna().all()
    if layered:
        left["_place"], right["_place"] = launch_places(left, right, _numbers(left))
    ordered = set(left.loc[left["_place"].notna(), "_key"]) if layered else set()
    warnings = [*metrics.warnings, *times.warnings, *_differences(left, right, ordered)]
    if not set(left["_key"]) & set(right["_key"]):
        raise _strangers(metrics, times)
    if layered:
        frame = _by_launch_of_times(left, right)
        warnings += _averages(right, set(left["_key"]) - ordered)
    elif _launch_by_launch(left, right):
        for side in (left, right):
            side["_turn"] = side.groupby("_key").cumcount()
        frame = _with_times(left, right.drop_duplicates(["_key", "_turn"]), ["_key", "_turn"])
    else:
        frame = _with_times(left, _averaged(right), ["_key"])
    provenance = {
        **metrics.provenance,
        **{f"times_{key}": times.provenance.get(key) for key in ("path", "sha256", "format")},
    }
    for key in ("device", "compute_capability"):
        provenance[key] = metrics.provenance.get(key) or times.provenance.get(key)
    frame = validate_kernels(frame.drop(columns=["_key", "_turn", "_place"], errors="ignore"))
    return Kernels(frame, provenance, tuple(dict.fromkeys(warnings)))


def _check(metrics: Kernels, times: Kernels) -> None:
    if not [name for name in metric_columns(metrics.frame) if name not in _SIZES]:
        msg = "a profile without metrics cannot be joined to times"
        raise InputError(
            msg,
            where=str(metrics.provenance.get("path")),
            cure="Give a log of nvprof --metrics as the first of the two.",
        )
    if times.frame["time_us"].isna().all():
        msg = "a profile without times cannot give times to a metrics log"
        raise InputError(
            msg,
            where=str(times.provenance.get("path")),
            cure="Run the program again under nvprof --print-gpu-trace, without --metrics.",
        )


def _strangers(metrics: Kernels, times: Kernels) -> InputError:
    names = [str(side.frame["kernel"].iloc[0])[:60] for side in (metrics, times)]
    msg = "the metrics log and the times have no kernel in common"
    return InputError(
        msg,
        where=f"{metrics.provenance.get('path')}, {times.provenance.get('path')}",
        found=f"{names[0]!r} in one, {names[1]!r} in the other",
        cure="Join profiles of the same program.",
    )


def _keys(frame: pd.DataFrame) -> pd.Series:
    spelled: dict[str, str] = {}
    for name in set(frame["kernel"].astype(str)):
        key = name
        for pattern, form in _SPELLINGS:
            key = pattern.sub(form, key)
        spelled[name] = key
    return frame["kernel"].astype(str).map(spelled).astype("object")


def _matched(keys: pd.Series, known: pd.Series) -> pd.Series:
    """Return `keys` with cut names replaced by the name they stand for in `known`.

    Only a name that lost its end is matched by its beginning: one with an ellipsis, or one whose
    brackets do not close. ``reduce`` is no cut ``reduce_all``.
    """
    names = sorted(set(known))
    renamed: dict[str, str] = {}
    for key in set(keys) - set(names):
        stem = _ELLIPSIS.sub("", key)
        cut = stem != key or _open(stem)
        longer = [name for name in names if cut and name.startswith(stem)]
        shorter = [name for name in names if _is_cut_of(name, key)]
        candidates = longer if len(stem) >= _SHORTEST else []
        candidates = candidates or shorter
        if len(candidates) == 1:
            renamed[key] = candidates[0]
    return keys.map(lambda key: renamed.get(key, key))


def _is_cut_of(name: str, whole: str) -> bool:
    stem = _ELLIPSIS.sub("", name)
    return (stem != name or _open(stem)) and len(stem) >= _SHORTEST and whole.startswith(stem)


def _open(name: str) -> bool:
    return name.count("(") > name.count(")") or name.count("<") > name.count(">")


def _numbers(frame: pd.DataFrame) -> pd.Series:
    """Return how many launches each row stands for."""
    if "launches" in frame.columns:
        return frame["launches"].fillna(1)
    return pd.Series(1, index=frame.index)


def _differences(left: pd.DataFrame, right: pd.DataFrame, ordered: set[str]) -> list[str]:
    """Name the kernels of one side only, and those whose launches differ in number and order."""
    counted = _numbers(left).groupby(left["_key"], sort=False).sum()
    timed = _numbers(right).groupby(right["_key"], sort=False).sum()
    names = dict(zip(right["_key"], right["kernel"], strict=True))
    names.update(zip(left["_key"], left["kernel"], strict=True))
    found = []
    for present, absent, what in (
        (counted, timed, "have metrics and no time"),
        (timed, counted, "have a time and no metrics"),
    ):
        missing = [key for key in present.index if key not in absent.index]
        if missing:
            found.append(f"{count(len(missing), 'kernel')} {what}: {_list(missing, names)}.")
    both = [key for key in counted.index if key in timed.index]
    uneven = [key for key in both if counted[key] != timed[key] and key not in ordered]
    if uneven:
        shown = "; ".join(
            f"{names[key][:80]}: {int(counted[key])} with metrics, {int(timed[key])} with times"
            for key in uneven[:4]
        )
        found.append(
            f"The number of invocations differs for {count(len(uneven), 'kernel')}, so the two "
            "runs may "
            f"not be of the same work: {shown}{'; ...' if len(uneven) > 4 else ''}."
        )
    return found


def _list(keys: list[str], names: dict[str, str]) -> str:
    return first_few([names[key][:80] for key in keys])


def _launch_by_launch(left: pd.DataFrame, right: pd.DataFrame) -> bool:
    """Tell whether both sides have one row a launch, equally many of every kernel."""
    if (_numbers(left) != 1).any() or (_numbers(right) != 1).any():
        return False
    return left["_key"].value_counts().to_dict() == right["_key"].value_counts().to_dict()


def _averaged(right: pd.DataFrame) -> pd.DataFrame:
    """Return one row a kernel: the mean time over its launches, and sizes all launches share."""
    weights = _numbers(right).where(right["time_us"].notna(), 0).to_numpy(dtype=float)
    right = right.assign(_weight=weights, _total=right["time_us"].fillna(0) * weights)
    groups = right.groupby("_key", sort=False)
    total = groups["_total"].sum()
    weight = groups["_weight"].sum()
    averaged = pd.DataFrame({"time_us": total / weight.where(weight > 0)})
    for name in _carried(right):
        distinct = right[["_key", name]].drop_duplicates()
        alone = distinct.drop_duplicates("_key", keep=False).set_index("_key")
        averaged[name] = alone[name].reindex(averaged.index)
    return averaged.reset_index()


def _carried(right: pd.DataFrame) -> list[str]:
    wanted = ("grid", "block", "device", "compute_capability", *_SIZES, *_TIMELINE)
    return [name for name in wanted if name in right.columns]


def _with_times(left: pd.DataFrame, right: pd.DataFrame, on: list[str]) -> pd.DataFrame:
    """Return `left` with the times of `right`, and what else `left` does not know."""
    columns = [*on, "time_us", *_carried(right)]
    merged = left.merge(right[columns], on=on, how="left", suffixes=("", "_other"))
    merged.index = left.index
    for name in _carried(right):
        other = f"{name}_other"
        if other in merged.columns:
            merged[name] = merged[name].where(merged[name].notna(), merged[other])
            merged = merged.drop(columns=other)
    merged["time_us"] = merged.pop("time_us_other").astype(float)
    told = right["time_source"].dropna() if "time_source" in right else pd.Series(dtype="string")
    tool = str(told.iloc[0]) if len(told) else "nvprof"
    source = pd.Series(tool, index=merged.index, dtype="string")
    merged["time_source"] = source.where(merged["time_us"].notna())
    return merged


def _by_launch_of_times(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    """Return `right`, each launch with the metrics of its place among its kernel's launches.

    Rows of `left` at one place, or without any, are averaged, each weighing as many launches as it
    stands for.
    """
    standard = {*KERNEL_COLUMNS, *KERNEL_OPTIONAL, "_key", "_turn", "_place", "process"}
    names = [
        name
        for name in left.columns
        if name not in standard and pd.api.types.is_numeric_dtype(left[name])
    ]
    weights = _numbers(left).to_numpy(dtype=float)
    sums = {name: left[name].to_numpy(dtype=float) * weights for name in names}
    counts = {name: np.where(left[name].notna(), weights, 0.0) for name in names}
    same = [left["_key"], left["_place"]]
    total = pd.DataFrame(sums, index=left.index).groupby(same, sort=False, dropna=False).sum()
    weight = pd.DataFrame(counts, index=left.index).groupby(same, sort=False, dropna=False).sum()
    averaged = (total / weight.where(weight > 0)).reset_index()
    kept = right.drop(columns=[name for name in names if name in right.columns])
    merged = kept.merge(averaged, on=["_key", "_place"], how="left")
    merged.index = right.index
    return merged


def _averages(right: pd.DataFrame, unordered: set[str]) -> list[str]:
    """Name the kernels of several layers that launch order does not tell apart."""
    shared = right[right["_key"].isin(unordered)]
    layers = shared.groupby("_key", sort=False)["layer"].nunique(dropna=False)
    keys = layers[layers > 1].index.tolist()
    if not keys:
        return []
    names = dict(zip(right["_key"], right["kernel"], strict=True))
    sentence = (
        f"The metrics of {count(len(keys), 'kernel')} are averages over all of their launches, so "
        f"they are equal in every layer: {_list(keys, names)}. Write the "
        "metrics log with --print-gpu-trace, which prints a row a launch."
    )
    return [sentence]


def launch_places(
    metrics: pd.DataFrame, times: pd.DataFrame, launches: pd.Series
) -> tuple[pd.Series, pd.Series]:
    """Return the place of each row of both sides among its kernel's launches, where order tells it.

    The sides are of two starts of one program. A kernel's launches come in one order in both, so
    its n-th launch is the same work; with other numbers of iterations, the n-th launch within an
    iteration is. Rows are in launch order, with the kernel under one spelling in ``_key``; a row of
    `metrics` is the mean of `launches` launches. Missing for kernels whose order does not tell:
    those of a row for several launches, of launch counts that do not fit, or of grids or blocks
    that differ at one place.
    """
    counted = metrics.groupby("_key", sort=False).indices
    timed = times.groupby("_key", sort=False).indices
    places = [pd.Series(pd.NA, index=side.index, dtype="Int64") for side in (metrics, times)]
    single = (launches == 1).to_numpy()
    for key in counted.keys() & timed.keys():
        rows, others = counted[key], timed[key]
        if not single[rows].all():
            continue
        period = _period(len(rows), times["iteration"].iloc[others])
        if period is None:
            continue
        turns = [pd.RangeIndex(len(side)) % period for side in (rows, others)]
        if _same_sizes(metrics.iloc[rows], turns[0], times.iloc[others], turns[1]):
            places[0].iloc[rows] = turns[0]
            places[1].iloc[others] = turns[1]
    return places[0], places[1]


def _period(counted: int, iterations: pd.Series) -> int | None:
    """Return after how many launches of a kernel its work begins again; None if unknown."""
    if counted == len(iterations):
        return counted
    if iterations.isna().any() or not iterations.is_monotonic_increasing:
        return None
    launches = set(iterations.value_counts())
    if len(launches) != 1:
        return None
    period = int(launches.pop())
    return period if counted % period == 0 else None


def _same_sizes(
    metrics: pd.DataFrame, places: pd.Index, times: pd.DataFrame, other_places: pd.Index
) -> bool:
    """Tell whether the launches at each place have one grid and one block, where they are known."""
    for name in _SHAPE:
        if name not in metrics.columns or name not in times.columns:
            continue
        sizes = pd.DataFrame(
            {
                "place": [*places, *other_places],
                "size": [*metrics[name].astype("object"), *times[name].astype("object")],
            }
        ).dropna()
        if sizes.drop_duplicates()["place"].duplicated().any():
            return False
    return True
