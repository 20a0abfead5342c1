"""Read a YAML file into plain values that remember their lines, and trust nothing in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfml.errors import InputError

Key = tuple[str | int, ...]
_LARGEST_BYTES = 1024 * 1024
_MOST_VALUES = 20_000
"""Aliases may repeat a list many times; a file of 1 MiB could otherwise become gigabytes."""
_DEEPEST = 8


@dataclass
class Document:
    """The content of a YAML file."""

    path: Path
    value: Any = None  # dictionaries, lists, texts, numbers, booleans and None
    # Where each value stands: its keys from the top to its line, counted from 1
    lines: dict[Key, int] = field(default_factory=dict)

    def where(self, *keys: str | int) -> str:
        """Return ``file:line`` of a value, or of what holds it."""
        for size in range(len(keys), -1, -1):
            if keys[:size] in self.lines:
                return f"{self.path}:{self.lines[keys[:size]]}"
        return str(self.path)


def read_yaml(path: str | Path) -> Document:
    """Read a YAML file of 1 MiB at most.

    Raises an `InputError` if it cannot be read, is not YAML, holds a key twice, tags, or too much.
    """
    import yaml

    path = Path(path)
    text = _text(path)
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        document = Document(path)
        if node is not None:
            document.value = _Reader(document, loader).plain(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        msg = "not YAML"
        found = " ".join(str(error.problem or error.context).split())
        cure = "Indent with blanks, and put texts with a colon in quotes."
        raise InputError(msg, where=where, found=found[:200], cure=cure) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        msg = "not YAML"
        found = " ".join(str(error).split())[:200]
        raise InputError(msg, where=str(path), found=found) from error
    finally:
        loader.dispose()
    return document


class _Reader:
    """Turns YAML nodes into plain values and notes their lines."""

    def __init__(self, document: Document, loader: Any) -> None:
        self.document = document
        self.loader = loader
        self.values = 0

    def plain(self, node: Any, keys: Key) -> Any:
        import yaml

        self.values += 1
        self.document.lines.setdefault(keys, node.start_mark.line + 1)
        if self.values > _MOST_VALUES or len(keys) > _DEEPEST:
            msg = "more in it than a sweep has"
            found = f"over {_MOST_VALUES} values, or {_DEEPEST} levels"
            raise self._refuse(msg, node, found)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, keys)
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(each, (*keys, index)) for index, each in enumerate(node.value)]
        value = self.loader.construct_object(node)
        if value is not None and not isinstance(value, (str, int, float, bool)):
            msg = "only texts, numbers and yes or no have a place here"
            cure = "If it is a text, put it in quotes."
            raise self._refuse(msg, node, str(node.value), cure)
        return value

    def _mapping(self, node: Any, keys: Key) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in node.value:
            word = getattr(name, "value", None)
            if not isinstance(word, str):
                msg = "a key must be a word"
                raise self._refuse(msg, name, type(word).__name__)
            if word in found:  # PyYAML would keep the last one and say nothing
                msg = "the same key twice"
                raise self._refuse(msg, name, word, "Merge the two.")
            self.document.lines[(*keys, word)] = name.start_mark.line + 1
            found[word] = self.plain(value, (*keys, word))
        return found

    def _refuse(self, msg: str, node: Any, found: str, cure: str | None = None) -> InputError:
        where = f"{self.document.path}:{node.start_mark.line + 1}"
        return InputError(msg, where=where, found=found[:200], cure=cure)


def _text(path: Path) -> str:
    try:
        if path.is_file() and path.stat().st_size > _LARGEST_BYTES:
            msg = "too large for a sweep"
            raise InputError(msg, where=str(path), found=f"{path.stat().st_size} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = "cannot read the sweep"
        found = getattr(error, "strerror", None) or str(error)[:200]
        raise InputError(msg, where=str(path), found=found, cure="Check the path.") from error
