"""JSON Schema (2020-12) of result types: what a document holds is written down once.

A dataclass describes the object that `perfml.util.json_values.json_value` makes of it, a
``TypedDict`` the rows of a frame, ``Annotated[pd.DataFrame, Row]``, or what a verb puts together.
``Annotated[float, "microseconds"]`` adds words, and so does the section Attributes of a dataclass;
the docstring's first line is the description. A float may be null, as NaN is in JSON.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints
from typing import is_typeddict as _is_object

from perfml.util.json_values import exported

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
class Extended:
    """A result, and what a verb puts beside its keys."""

    name: str  # what the whole is called
    kind: Any  # type of the result
    keys: Mapping[str, Any]  # types of the further keys

    @property
    def __name__(self) -> str:
        return self.name


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
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if isinstance(kind, type) and hasattr(kind, "JSON_ID"):
        return _schema(get_type_hints(kind)[kind.JSON_ID], found, strict)
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
        return {"anyOf": [_schema(each, found, strict) for each in arguments]}
    msg = f"no JSON for {kind}"
    raise TypeError(msg)


def _object(kind: Any, found: dict[str, Any], strict: bool) -> dict[str, Any]:
    properties, required = {}, []
    result = kind.kind if isinstance(kind, Extended) else kind
    words = _attribute_words(result.__doc__ or "")
    for name, hint in _hints(kind).items():
        optional = get_origin(hint) is NotRequired
        item = _schema(get_args(hint)[0] if optional else hint, found, strict)
        properties[name] = {"description": words[name], **item} if name in words else item
        if not optional:
            required.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    if strict:
        schema["additionalProperties"] = False
    told = (result.__doc__ or "").strip().partition("\n")[0]
    return {"description": told, **schema} if told else schema


def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of an object's keys."""
    if isinstance(kind, Extended):
        return {**kind.keys, **_hints(kind.kind)}
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
