"""JSON Schema (2020-12) of typed dictionaries: what a document holds is written down once.

A ``TypedDict`` describes an object; ``Annotated[float, "microseconds"]`` adds words; its
docstring's first line is the description.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints
from typing import is_typeddict as _is_object

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
        The typed dictionaries that it may be.
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
    if _is_object(kind):
        if kind.__name__ not in found:
            found[kind.__name__] = {}  # a type may hold itself
            found[kind.__name__] = _object(kind, found, strict)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return {**_schema(arguments[0], found, strict), "description": arguments[1]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], found, strict)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1], found, strict)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(each, found, strict) for each in arguments]}
    msg = f"no JSON for {kind}"
    raise TypeError(msg)


def _object(kind: Any, found: dict[str, Any], strict: bool) -> dict[str, Any]:
    properties, required = {}, []
    for name, each in get_type_hints(kind, include_extras=True).items():
        optional = get_origin(each) is NotRequired
        properties[name] = _schema(get_args(each)[0] if optional else each, found, strict)
        if not optional:
            required.append(name)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": required,
    }
    if strict:
        schema["additionalProperties"] = False
    told = (kind.__doc__ or "").strip().partition("\n")[0]
    return {"description": told, **schema} if told else schema
