"""Values as JSON can hold them, and the schema (2020-12) of result types: written down once.

A dataclass describes the object that `json_value` makes of it, a `Document` the rows of a frame,
``Annotated[pd.DataFrame, Row]``, or what a verb puts together. ``Annotated[float,
"microseconds"]`` adds words, and so does the section Attributes of a dataclass; the docstring's
first line is the description. A float may be null, as NaN is in JSON.
"""

from __future__ import annotations

import math
import re
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cached_property
from inspect import ismethod
from operator import attrgetter
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from typing import is_typeddict as _is_object

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


def exported(kind: type, by: str = "JSON") -> dict[str, str]:
    """Return what JSON has of a dataclass, by key: its ``JSON``, or else all its fields.

    ``JSON`` names fields, properties, and methods that take nothing. A pair is a key and the
    attribute that it holds, with dots for an attribute of an attribute. ``ROW`` (`by`) names the
    columns of a table of such dataclasses in the same way.
    """
    names = getattr(kind, by, None)
    if names is None:
        return {item.name: item.name for item in fields(kind)}
    return dict((name, name) if isinstance(name, str) else name for name in names)


def json_object(value: Any) -> dict[str, Any]:
    """Return a dataclass as the JSON object that `perfml.util.json_values` describes.

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


DIALECT = "https://json-schema.org/draft/2020-12/schema"

_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    Path: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},
    type(None): {"type": "null"},
    Any: {},
}


@dataclass(frozen=True, eq=False)
class Document:
    """A row of a frame, or what a verb puts together: keys, alone or beside those of a result.

    A key has a type, a list of one document, or a pair of either and what it means.
    """

    name: str
    keys: Mapping[str, Any]
    result: Any = None  # type of the result
    words: str = ""  # what it is, where there is no result

    @property
    def __name__(self) -> str:
        return self.name


def row_of(kind: type, words: str) -> Document:
    """Return what a row of a table of some dataclasses holds, by its ``ROW``."""
    keys = {}
    for name, attribute in exported(kind, "ROW").items():
        hint: Any = kind
        for part in attribute.split("."):
            hint = _type_of(hint, part)
        keys[name] = hint
    return Document(f"{kind.__name__}Row", keys, words=words)


def json_schema(kinds: Sequence[Any], *, title: str, strict: bool = False) -> dict[str, Any]:
    """Return the schema of a document that may be one of some dataclasses and typed dictionaries.

    With `strict` further keys are errors; readers of documents should pass them over. Raises
    `TypeError` if a type has no counterpart in JSON.
    """
    found: dict[str, Any] = {}
    tops = [_schema(kind, found, strict) for kind in kinds]
    body = tops[0] if len(tops) == 1 else {"anyOf": tops}
    return {"$schema": DIALECT, "title": title, **body, "$defs": found}


def self_contained(kind: Any, *, title: str) -> dict[str, Any]:
    """Return the schema of one type as an object without references, as clients of tools need it.

    Raises `TypeError` if the type, or one that it holds, holds itself.
    """
    schema = json_schema((kind,), title=title)
    resolved: dict[str, Any] = _resolved({"$ref": schema["$ref"]}, schema["$defs"], ())
    return {"$schema": DIALECT, "title": title, **resolved}


def _resolved(part: Any, definitions: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    """Return a part of a schema with its definitions in the place of references to them."""
    if isinstance(part, list):
        return [_resolved(item, definitions, within) for item in part]
    if not isinstance(part, dict):
        return part
    name = str(part.get("$ref", "")).rpartition("/")[2]
    if name in within:
        msg = f"{name} holds itself"
        raise TypeError(msg)
    if name:
        beside = {key: item for key, item in part.items() if key != "$ref"}
        return {**_resolved(definitions[name], definitions, (*within, name)), **beside}
    return {key: _resolved(item, definitions, within) for key, item in part.items()}


def _schema(kind: Any, found: dict[str, Any], strict: bool) -> dict[str, Any]:
    if isinstance(kind, list):
        return {"type": "array", "items": _schema(kind[0], found, strict)}
    if isinstance(kind, tuple):
        return {**_schema(kind[0], found, strict), "description": kind[1]}
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if isinstance(kind, type) and hasattr(kind, "JSON_ID"):
        return _schema(_type_of(kind, kind.JSON_ID), found, strict)
    if _is_object(kind) or is_dataclass(kind):
        if kind.__name__ not in found:
            found[kind.__name__] = {}  # a type may hold itself
            found[kind.__name__] = _object(kind, found, strict)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated and not isinstance(arguments[1], str):
        return {"type": "array", "items": _schema(arguments[1], found, strict)}  # a frame's rows
    if origin is Annotated:
        return {**_schema(arguments[0], found, strict), "description": arguments[1]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (list, tuple):
        return {"type": "array", "items": _schema(arguments[0], found, strict)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1], found, strict)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(argument, found, strict) for argument in arguments]}
    msg = f"no JSON for {kind}"
    raise TypeError(msg)


def _object(kind: Any, found: dict[str, Any], strict: bool) -> dict[str, Any]:
    properties, required = {}, []
    alone = isinstance(kind, Document)
    doc = (kind.words or kind.result.__doc__ if alone else kind.__doc__) or ""
    words = _attribute_words(doc)
    for name, hint in _hints(kind).items():
        optional = get_origin(hint) is NotRequired
        item = _schema(get_args(hint)[0] if optional else hint, found, strict)
        properties[name] = {"description": words[name], **item} if name in words else item
        if not optional:
            required.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    if strict:
        schema["additionalProperties"] = False
    first = doc.strip().partition("\n")[0]
    return {"description": first, **schema} if first else schema


def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of an object's keys."""
    if isinstance(kind, Document):
        return {**kind.keys, **({} if kind.result is None else _hints(kind.result))}
    if _is_object(kind):
        return get_type_hints(kind, include_extras=True)
    found = {}
    for name, attribute in exported(kind).items():
        hint = kind
        for part in attribute.split("."):
            hint = _type_of(hint, part)
        found[name] = NotRequired[hint] if name in getattr(kind, "JSON_OPTIONAL", ()) else hint
    return found


def _type_of(kind: Any, name: str) -> Any:
    """Return the type of a field, or of what a property or a method returns."""
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    made = getattr(kind, name, None)
    made = made.func if isinstance(made, cached_property) else made
    made = made.fget if isinstance(made, property) else made
    if isinstance(made, types.FunctionType):
        return get_type_hints(made, include_extras=True)["return"]
    return get_type_hints(kind, include_extras=True)[name]


def _attribute_words(doc: str) -> dict[str, str]:
    """Return what the section Attributes of a docstring says, by name."""
    section = re.split(r"\n *Attributes\n *-+\n", doc)
    if len(section) < 2:
        return {}
    lines = section[1].splitlines()
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    words: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) == indent:
            names = [name.strip(" `") for name in line.split(",")]
        elif line.strip():
            words |= {name: f"{words.get(name, '')} {line.strip()}".strip() for name in names}
    return words
