"""Values as JSON can hold them: the one way from a result to what ``--json`` prints."""

from __future__ import annotations

import math
import sys
from dataclasses import fields, is_dataclass
from inspect import ismethod
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def json_value(value: Any) -> Any:
    """Return a value as JSON can hold it; a missing number is null, never NaN.

    Containers are converted with what they hold, numpy's values and arrays become Python's, a
    table becomes a list of its rows, and anything else (a path, a date) its text.

    Examples
    --------
    >>> json_value({"a": (1, float("nan")), 2: {3}})
    {'a': [1, None], '2': [3]}
    """
    if isinstance(value, dict):
        return {str(key): json_value(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_value(part) for part in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        return json_value(value.item())
    if hasattr(value, "columns") and hasattr(value, "to_dict"):
        return records(value)
    if is_dataclass(value) and not hasattr(value, "to_dict"):
        by = getattr(value, "JSON_ID", None)
        return json_object(value) if by is None else json_value(getattr(value, by))
    for method in ("tolist", "to_dict"):
        if hasattr(value, method):
            return json_value(getattr(value, method)())
    return None if is_missing(value) else str(value)


def exported(kind: type) -> dict[str, str]:
    """Return what JSON has of a dataclass, by key: its ``JSON``, or else all its fields.

    ``JSON`` names fields, properties, and methods that take nothing. A pair is a key and the
    attribute that it holds, with dots for an attribute of an attribute.
    """
    names = getattr(kind, "JSON", None)
    if names is None:
        return {item.name: item.name for item in fields(kind)}
    return dict((name, name) if isinstance(name, str) else name for name in names)


def json_object(value: Any) -> dict[str, Any]:
    """Return a dataclass as the JSON object that `perfml.util.json_schema` describes.

    Keys of its ``JSON_OPTIONAL`` are left out where they hold nothing.
    """
    found = {}
    optional = getattr(value, "JSON_OPTIONAL", ())
    for name, attribute in exported(type(value)).items():
        part = attrgetter(attribute)(value)
        part = part() if ismethod(part) else part
        if name not in optional or part:
            found[name] = json_value(part)
    return found


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a frame's rows as JSON objects."""
    names = [str(name) for name in frame.columns]
    columns = [[json_value(value) for value in frame[name].tolist()] for name in frame.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def is_missing(value: object) -> bool:
    """Return whether a value stands for nothing: None, NaN, or pandas' NA and NaT."""
    # pandas is looked up, not imported: a command that needs no table should not pay for it
    pandas = sys.modules.get("pandas")
    if value is None or (pandas is not None and (value is pandas.NA or value is pandas.NaT)):
        return True
    return isinstance(value, float) and math.isnan(value)
