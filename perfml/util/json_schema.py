"""JSON Schema (2020-12) of result types: what a document holds is written down once.

A dataclass describes the object that `perfml.util.json_values.json_value` makes of it, a
``TypedDict`` one that a verb puts together. ``Annotated[float, "microseconds"]`` adds words, and so
does the section Attributes of a dataclass; the docstring's first line is the description.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints
from typing import is_typeddict as _is_object

from perfml.util.json_values import exported

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
    Any: {},
}


def json_schema(kinds: Sequence[Any], *, title: str, strict: bool = False) -> dict[str, Any]:
    """Return the schema of a document.

    Parameters
    ----------
    kinds
        The dataclasses and typed dictionaries that it may be.
    title
        What it is called.
    strict
        Whether further keys are errors; readers of documents should pass them over.

    Raises
    ------
    TypeError
        If a type has no counterpart in JSON.
    """
    found: dict[str, Any] = {}
    tops = [_schema(kind, found, strict) for kind in kinds]
    body = tops[0] if len(tops) == 1 else {"anyOf": tops}
    return {"$schema": DIALECT, "title": title, **body, "$defs": found}


def _schema(kind: Any, found: dict[str, Any], strict: bool) -> dict[str, Any]:
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if hasattr(kind, "JSON_ID"):
        return dict(_PLAIN[str])
    if _is_object(kind) or is_dataclass(kind):
        if kind.__name__ not in found:
            found[kind.__name__] = {}  # a type may hold itself
            make = _dataclass if is_dataclass(kind) else _object
            found[kind.__name__] = make(kind, found, strict)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return {**_schema(arguments[0], found, strict), "description": arguments[1]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (list, tuple):
        return {"type": "array", "items": _schema(arguments[0], found, strict)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1], found, strict)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(each, found, strict) for each in arguments]}
    msg = f"no JSON for {kind}"
    raise TypeError(msg)


def _dataclass(kind: Any, found: dict[str, Any], strict: bool) -> dict[str, Any]:
    """Return the schema of what `json_value` makes of a dataclass; a float that is NaN is null."""
    hints = get_type_hints(kind, include_extras=True)
    words = _attribute_words(kind.__doc__ or "")
    properties = {}
    for name in exported(kind):
        attribute = getattr(kind, name, None)
        makes = attribute.fget if isinstance(attribute, property) else attribute
        made = isinstance(makes, types.FunctionType) and name not in hints
        hint = get_type_hints(makes)["return"] if made else hints[name]
        item = _schema(hint, found, strict)
        if item == _PLAIN[float]:
            item = {"anyOf": [item, {"type": "null"}]}
        properties[name] = {**item, "description": words[name]} if name in words else item
    return _described(kind, properties, list(properties), strict)


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


def _object(kind: Any, found: dict[str, Any], strict: bool) -> dict[str, Any]:
    properties, required = {}, []
    for name, each in get_type_hints(kind, include_extras=True).items():
        optional = get_origin(each) is NotRequired
        properties[name] = _schema(get_args(each)[0] if optional else each, found, strict)
        if not optional:
            required.append(name)
    return _described(kind, properties, required, strict)


def _described(
    kind: Any, properties: dict[str, Any], required: list[str], strict: bool
) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": required,
    }
    if strict:
        schema["additionalProperties"] = False
    told = (kind.__doc__ or "").strip().partition("\n")[0]
    return {"description": told, **schema} if told else schema
