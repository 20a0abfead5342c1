"""Which rows of what a user named are meant: conditions on columns, and single launches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError, did_you_mean
from perfml.kernel_names import function_name, kernels_called, shortened
from perfml.util.words import count


def only(frame: pd.DataFrame, where: Sequence[str] | None, *, strict: bool = True) -> pd.DataFrame:
    """Keep the rows that meet every condition.

    Conditions are ``COLUMN=VALUE``. Raises `PerfmlError` if one names no column, or (`strict`) no
    row meets it.
    """
    for condition in where or []:
        column, equals, value = condition.partition("=")
        if not equals or column not in frame.columns:
            msg = f"--where needs COLUMN=VALUE with a column of the table, not {condition!r}"
            columns = f"Columns are: {', '.join(map(str, frame.columns[:12]))}."
            if column in frame.columns:
                columns = f"Write {column}=VALUE, such as {column}={next(iter(frame[column]), 1)}."
                raise PerfmlError(msg, cure=columns)
            raise PerfmlError(msg, cure=did_you_mean(column, frame.columns, columns))
        kept = frame[frame[column].astype("string") == value]
        if kept.empty and strict:
            values = sorted(map(str, frame[column].dropna().unique()))[:8]
            msg = f"no row has {column}={value}"
            cure = did_you_mean(value, values, "Choose one of these values.")
            raise PerfmlError(msg, found=", ".join(values), cure=cure)
        frame = kept
    return frame.reset_index(drop=True)


def chosen_launches(
    kernels: pd.DataFrame, *, nth: int | None, kernel: str | None, skip: int, where: str
) -> pd.DataFrame:
    """Keep the launches that are meant.

    `nth` is one launch by its place in the whole profile, from 0; `kernel` and `skip` are as in
    `perfml.datasets.selection.Selection`, and `where` is what the user named, for errors. Of a
    layer's repeat that `skip` cuts nothing is kept: a part of a layer is no repeat of it. Raises
    `PerfmlError` if nothing is left.
    """
    if nth is not None:
        kernels = _nth(kernels, nth, where)
    if kernel is not None:
        kernels = _named(kernels, kernel)
    if skip:
        kernels = _later(kernels, skip, where)
    return kernels.reset_index(drop=True)


def layers_named(table: pd.DataFrame, wanted: Sequence[str]) -> list[str] | None:
    """Return the layers of a table that are meant; None where all are.

    Raises `PerfmlError` as `layer_names` does.
    """
    known = [str(name) for name in table["layer"].dropna().unique()]
    return layer_names(known, wanted) if wanted else None


def layer_names(known: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the layers that are meant: by name, or by a pattern of whole names.

    Raises `PerfmlError` if one is neither a layer's name nor a pattern that matches any.
    """
    names: list[str] = []
    for each in wanted:
        if each in known:
            names.append(each)
            continue
        try:
            matching = [name for name in known if re.fullmatch(each, name)]
        except re.error:
            matching = []
        if not matching:
            msg = f"no layer is called {each!r}"
            cure = did_you_mean(each, known, "Name one of these.")
            raise PerfmlError(msg, found=", ".join(sorted(known)[:12]), cure=cure)
        names += matching
    return list(dict.fromkeys(names))


def _nth(kernels: pd.DataFrame, nth: int, where: str) -> pd.DataFrame:
    if nth < len(kernels):
        return kernels.iloc[[nth]]
    msg = f"there is no launch @{nth}"
    found = f"{count(len(kernels), 'launch', 'launches')}, @0 to @{len(kernels) - 1}"
    raise PerfmlError(msg, where=where, found=found, cure=_listing(kernels))


def _named(kernels: pd.DataFrame, pattern: str) -> pd.DataFrame:
    names = kernels["kernel"].astype("string").fillna("")
    known = names.unique()
    try:
        called = kernels_called(known, pattern)
    except re.error as error:
        msg = f"neither a part of a kernel's name nor a regular expression: {error}"
        cure = _listing(kernels)
        raise PerfmlError(msg, where="--kernel", found=pattern, cure=cure) from error
    if not called:
        msg = f"no kernel's name has or matches {pattern!r}"
        cure = "Name a part of one of these."
        raise PerfmlError(msg, where="--kernel", found=named(known), cure=cure)
    return kernels[names.isin(called)]


def _later(kernels: pd.DataFrame, skip: int, where: str) -> pd.DataFrame:
    place = kernels.groupby("run_id", sort=False, dropna=False).cumcount().to_numpy()
    kept = place >= skip
    repeat = kernels.groupby(["run_id", "iteration", "layer"], sort=False, dropna=False).ngroup()
    inside = kernels["layer"].notna().to_numpy()
    kept &= ~(inside & np.isin(repeat, repeat[~kept & inside]))
    if kept.any():
        return kernels[kept]
    msg = f"--skip {skip} leaves no launch"
    found = count(len(kernels), "launch", "launches")
    raise PerfmlError(msg, where=where, found=found, cure="Skip fewer.")


def _listing(kernels: pd.DataFrame) -> str:
    names = kernels["kernel"].astype("string").fillna("").unique()
    return f"Kernels are: {named(names)}."


def named(kernels: Iterable[object]) -> str:
    """Return the first kernels' bare names, cut where they do not differ."""
    names = list(dict.fromkeys(function_name(str(name)) for name in kernels))
    return ", ".join(shortened(names, 64)[:8])
