"""Features and a target of one's own instead of a Layers table: checked, numbered, grouped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.errors import PerfmlError, TableError, did_you_mean
from perfml.modeling.disguise import (
    A_CLOCK,
    TIME_COLUMNS,
    disguised,
    is_clock,
    is_work,
    no_feature,
    same_sum,
)
from perfml.modeling.features import Problem, Words, build_design, require_positive, timed_metrics
from perfml.util.typing import Ints
from perfml.util.words import first_few, listed

NO_GROUPS = (
    "Name with groups= what must not be on both sides (a layer, a kernel, an input). "
    "Without it, only rows with equal features were kept together, not near-copies."
)

NO_NUMBERS = "holds no numbers"
"""Why a column of text is no feature."""

_QUANTITY = re.compile(r"\s*([-+]?[\d.,]+(?:[eE][-+]?\d+)?)\s*(ns|us|µs|μs|ms|s)?\s*")
"""A number as text, with a unit of time."""

_MICROSECONDS = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6}

_BY_KERNEL = "Launches of one kernel were kept together; groups= names something else."


def own_problem(
    X: Any,
    y: Any,
    groups: Any = None,
    task: str | None = None,
    features: str | Sequence[str] | None = None,
) -> Problem:
    """Turn features and a target into the arrays that models use; see `evaluate` for arguments.

    Without `groups`, launches of one kernel, or rows with equal features, are kept together.
    `features` are by default all columns that hold numbers, but for times, names and row numbers,
    and the target in disguise (`perfml.modeling.disguise`). Raises `PerfmlError` if lengths differ,
    a name is unknown, or there are too few rows or classes; `TableError` if a target or a group is
    missing or not usable, or a feature holds text.
    """
    frame, named = _frame(X, features)
    by_kernel = groups is None and {"run_id", "kernel"} <= set(frame.columns)
    if by_kernel:  # launches of a Kernels table: those of a kernel repeat each other
        groups = "kernel"
    target, target_name = _column(frame, y, "y", "target")
    labels, group_name = (None, "group") if groups is None else _column(frame, groups, "groups")
    taken = {name for name in (y, groups) if isinstance(name, str)}
    read = target if task == "classification" else _read_numbers(target, target_name)
    in_text = read is not target
    target = read
    task = task or _task_of(target)
    if task not in ("regression", "classification"):
        msg = f"no task is called {task!r}"
        raise PerfmlError(msg, cure="Tasks are: regression, classification.")
    if len(frame) < 4:
        msg = "too few rows to learn from"
        raise PerfmlError(msg, found=f"{len(frame)} rows", cure="Give more rows.")
    truth, classes = _truth(target, task, target_name)
    rest = frame.drop(columns=list(taken))
    dropped = {} if named else _no_features(rest, target_name)
    candidates = rest[named] if named else rest.drop(columns=list(dropped))
    follows = [] if task != "regression" else _disguised(candidates, truth, labels)
    if not named:
        dropped |= dict.fromkeys(follows, "the target in disguise")
    kept = candidates.drop(columns=follows)
    parts = [] if task != "regression" else _sum_of_target(kept, truth, labels)
    work = any(map(is_work, parts))
    if not named and not work:
        dropped |= dict.fromkeys(parts, "the target measured again, or a part of it")
    chosen = named or [name for name in rest.columns if name not in dropped]
    design = build_design(rest, chosen)
    design.dropped.update(dropped)
    twins = twin_codes(design.values)
    group = twins if labels is None else _codes(labels, group_name)
    names = np.asarray(
        [f"rows like {row}" for row in np.unique(twins, return_index=True)[1][twins]]
        if labels is None
        else labels.astype(str),
        dtype=object,
    )
    nothing = np.zeros(len(truth), dtype=np.int64)
    return Problem(
        task=task,
        design=design,
        time_us=truth if task == "regression" else np.ones(len(truth)),
        truth=truth,
        classes=classes,
        condition=group,
        configuration=nothing,
        layer=group,
        shape=np.full(len(truth), -1, dtype=np.int64),
        run=nothing,
        network=nothing,
        kind=nothing,
        device=nothing,
        layer_names=names,
        backend=np.full(len(truth), None, dtype=object),
        words=Words(target_name, group_name, own=True, grouped=labels is not None),
        notes=(
            *([_BY_KERNEL] if by_kernel else []),
            *(
                [f"{target_name} is text: its numbers, or microseconds, were read."]
                if in_text
                else []
            ),
            *_text_note([name for name, why in dropped.items() if why == NO_NUMBERS]),
            *_notes(follows, named, target_name),
            *_part_notes(parts, bool(named) or work, target_name),
            *_clock_notes([name for name, why in dropped.items() if why == A_CLOCK]),
        ),
    )


def _no_features(rest: pd.DataFrame, target: str) -> dict[str, str]:
    """Return the columns that no model may see unless they are named, and why."""
    timed = timed_metrics() if target in TIME_COLUMNS else {}
    # of a target without a name nobody knows that it is no time
    times = target in ("target", "y") or is_clock(target)
    is_table = {"run_id", "time_us"} <= {*rest.columns, target}
    found = {}
    for name in rest.columns:
        reason: str | None = NO_NUMBERS
        if _is_number(rest[name]):
            reason = no_feature(name, rest[name], is_table)
            reason = reason or timed.get(name) or (A_CLOCK if times and is_clock(name) else None)
        if reason is not None:
            found[name] = reason
    return found


def _disguised(rest: pd.DataFrame, truth: npt.NDArray[Any], labels: Any) -> list[str]:
    codes = np.arange(len(truth)) if labels is None else pd.factorize(labels)[0]
    numbers = [name for name in rest.columns if _is_number(rest[name])]
    return [
        name
        for name in numbers
        if disguised(rest[name].to_numpy(dtype=float, na_value=np.nan), truth, codes)
    ]


def _sum_of_target(rest: pd.DataFrame, truth: npt.NDArray[Any], labels: Any) -> list[str]:
    """Return the columns that are the target over groups, or add up to it."""
    codes = np.arange(len(truth)) if labels is None else pd.factorize(labels)[0]
    names = [name for name in rest.columns if _is_number(rest[name])]
    values = [rest[name].to_numpy(dtype=float, na_value=np.nan) for name in names]
    return [names[at] for at in same_sum(values, truth, codes)]


def _part_notes(parts: Sequence[str], kept: bool, target: str) -> tuple[str, ...]:
    """Say which columns are the target measured again, or its parts."""
    if not parts:
        return ()
    target = "target" if target == "target" else f"target {target}"
    is_the = f"{parts[0]} is" if len(parts) == 1 else f"{' + '.join(parts)} add up to"
    what = f"{is_the} the {target} up to 1 % of its variance"
    if kept:
        return (f"{what}. It may be the same thing measured twice, and no cause.",)
    return (f"{what}, and left out; features= keeps it.",)


def _clock_notes(names: Sequence[str]) -> tuple[str, ...]:
    """Say which columns are clocks."""
    if not names:
        return ()
    verb = "is a clock" if len(names) == 1 else "are clocks"
    return (f"{listed(names)} {verb}: no clock explains a clock. features= keeps it.",)


def _notes(follows: Sequence[str], named: Sequence[str], target: str) -> tuple[str, ...]:
    """Say which columns are the target in disguise."""
    target = "target" if target == "target" else f"target {target}"
    kept = [name for name in follows if name in named]
    if kept:
        return (f"{listed(kept)}, which you named, is the {target} in disguise.",)
    if named or not follows:
        return ()
    is_the, it = ("is the", "it") if len(follows) == 1 else ("are the", "them")
    return (
        f"{listed(follows)} {is_the} {target} in disguise, and left out; features= keeps {it}.",
    )


def _text_note(names: Sequence[str]) -> tuple[str, ...]:
    """Say which columns hold text."""
    if not names:
        return ()
    return (f"Left out, because they hold no numbers: {first_few(names, 6)}.",)


def twin_codes(values: npt.NDArray[np.float64]) -> Ints:
    """Number the distinct rows of a feature matrix; undefined cells are equal to each other."""
    # the bytes of a row decide; adding 0.0 makes -0.0 and 0.0 the same bytes
    plain = np.ascontiguousarray(np.where(np.isnan(values), np.inf, values) + 0.0)
    rows = plain.view([("", plain.dtype)] * plain.shape[1]).ravel()
    return np.asarray(np.unique(rows, return_inverse=True)[1], dtype=np.int64).ravel()


def as_pandas(table: Any) -> Any:
    """Return a table of Polars, Arrow, cuDF or Modin as pandas' own; anything else as it is.

    They all have ``to_pandas``, which keeps the names of columns; pandas has it not.
    """
    convert = getattr(table, "to_pandas", None)
    return convert() if convert is not None and hasattr(table, "columns") else table


def _frame(X: Any, features: str | Sequence[str] | None) -> tuple[pd.DataFrame, list[str]]:
    """Return X as a frame with text names, and the features that were asked for."""
    named = [features] if isinstance(features, str) else list(features or ())
    X = as_pandas(X)
    if isinstance(X, pd.DataFrame):
        frame = X.rename(columns=str)
        known = list(frame.columns)
        unknown = [name for name in named if name not in frame.columns]
        if unknown:
            raise _no_column(unknown[0], known, "X")
        if len(set(known)) < len(known):
            twice = next(name for name in known if known.count(name) > 1)
            msg = "two columns of X have one name"
            raise TableError(msg, where=f"column {twice}", cure="Rename one of them.")
        return frame, named
    values = np.asarray(X)
    if values.ndim != 2:
        msg = "X must have two dimensions: rows and features"
        cure = "Give a DataFrame or an array, one row a measurement."
        shape = f"shape {values.shape}" if values.ndim else f"a {type(X).__name__}"
        raise PerfmlError(msg, found=shape, cure=cure)
    if named and len(named) != values.shape[1]:
        msg = "an array needs as many names as it has columns"
        raise PerfmlError(
            msg,
            found=f"{len(named)} names, {values.shape[1]} columns",
            cure="Name every column with features=, or give a DataFrame.",
        )
    names = named or [f"x{place}" for place in range(values.shape[1])]
    return pd.DataFrame(values, columns=names).infer_objects(), named


def _read_numbers(target: pd.Series, name: str) -> pd.Series:
    """Return a target that is written as text, such as "3.1 ms", in microseconds; others as it is.

    Raises `TableError` if most of its rows are quantities and one is none.
    """
    if not (pd.api.types.is_string_dtype(target) or target.dtype == object):
        return target
    matches = [_QUANTITY.fullmatch(str(text)) for text in target]
    if sum(match is not None for match in matches) * 2 <= len(target):
        return target  # labels
    units = {match[2] for match in matches if match is not None}
    numbers = []
    for row, match in enumerate(matches):
        try:
            if match is None or len({unit is None for unit in units}) > 1:
                raise ValueError
            numbers.append(float(match[1]) * _MICROSECONDS.get(match[2], 1.0))
        except ValueError:
            msg = "a target holds text that is no number with a unit of time in every row"
            where, found = f"{name}, row {row}", repr(target.iloc[row])[:60]
            cure = "Write numbers alone, or 3.1 ms (ns, us, ms, s) in each row."
            raise TableError(msg, where=where, found=found, cure=cure) from None
    return pd.Series(numbers, index=target.index, name=target.name)


def _column(frame: pd.DataFrame, given: Any, what: str, fallback: str = "group") -> tuple[Any, str]:
    """Return what was given for each row, and its name."""
    if isinstance(given, str):
        if given not in frame.columns:
            raise _no_column(given, list(frame.columns), what)
        return frame[given].reset_index(drop=True), given
    if isinstance(given, pd.Series) and not given.index.equals(frame.index):
        msg = f"X and {what} have different row labels"
        cure = f"Take both from one table, or pass {what}.to_numpy() if their order is the same."
        raise PerfmlError(msg, found=f"{len(frame)} and {len(given)} rows", cure=cure)
    values = np.asarray(given)
    if values.ndim > 1 and values.size != len(values):
        msg = f"{what} has several columns"
        raise PerfmlError(msg, found=f"shape {values.shape}", cure="Give one value a row.")
    column = given if isinstance(given, pd.Series) else pd.Series(values.ravel())
    if len(column) != len(frame):
        msg = f"X and {what} differ in length"
        raise PerfmlError(msg, found=f"{len(frame)} and {len(column)} rows", cure="Give one a row.")
    # a target made from a column of X keeps that column's name, which is not its own
    name = getattr(given, "name", None)
    name = name if isinstance(name, str) and name else fallback
    if name in frame.columns:
        name = fallback
    return column.reset_index(drop=True), name


def _no_column(name: str, known: Sequence[str], what: str) -> PerfmlError:
    if what == "y" and name in ("regression", "classification"):
        msg, cure = f"{name!r} is a task, not a target", f"Write task={name!r}."
        return PerfmlError(msg, cure=cure)
    msg = f"X has no column {name!r}" if what == "X" else f"{what}={name!r} is no column of X"
    return PerfmlError(
        msg, cure=did_you_mean(name, known, f"Columns are: {', '.join(known[:12])}.")
    )


def _is_number(column: pd.Series) -> bool:
    types = pd.api.types
    return types.is_numeric_dtype(column) and not types.is_complex_dtype(column)


def _task_of(target: pd.Series) -> str:
    if target.dtype.kind in "mM":
        # each distinct time would become a class of its own
        msg = "a target must hold numbers or labels"
        cure = "Give durations as numbers, such as y.dt.total_seconds()."
        raise TableError(msg, where="y", found=str(target.dtype), cure=cure)
    numbers = _is_number(target) and not pd.api.types.is_bool_dtype(target)
    return "regression" if numbers else "classification"


def _truth(target: pd.Series, task: str, name: str) -> tuple[npt.NDArray[Any], tuple[str, ...]]:
    missing = np.flatnonzero(target.isna())
    if len(missing):
        msg = "a row has no target"
        raise TableError(msg, where=f"{name}, row {missing[0]}", cure="Leave such rows out.")
    if task == "classification":
        labels = target.astype(str)
        classes = tuple(sorted(labels.unique()))
        if len(classes) < 2:
            msg = "classification needs at least two classes"
            raise PerfmlError(msg, where=name, found=classes[0], cure="Give rows of both.")
        return np.asarray(labels.map({label: at for at, label in enumerate(classes)})), classes
    if not _is_number(target):
        msg = "a target of regression must hold numbers"
        cure = "Give numbers, or task='classification'."
        raise TableError(msg, where=name, found=str(target.dtype), cure=cure)
    values = target.to_numpy(dtype=float)
    msg = "a target must be positive: errors are shares of it"
    cure = "Give a time or another positive quantity; for labels, task='classification'."
    require_positive(values, msg, where=name, cure=cure)
    return values, ()


def _codes(labels: pd.Series, name: str) -> Ints:
    missing = np.flatnonzero(labels.isna())
    if len(missing):
        msg = "a row has no group"
        raise TableError(msg, where=f"{name}, row {missing[0]}", cure="Name a group in every row.")
    codes = np.asarray(pd.factorize(labels)[0], dtype=np.int64)
    if codes.max() == 0:
        msg = "at least 2 groups are needed to hold one out"
        raise PerfmlError(msg, where=name, found=str(labels[0]), cure="Give rows of more groups.")
    return codes
