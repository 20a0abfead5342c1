"""Find words that people should not have to read: in pages, and in the strings of the program.

``python tools/words.py [PAGE ...]`` looks at README.md and docs/ and exits with 1 if it finds one.
``python tools/words.py --strings perfml`` counts them in string literals (docstrings aside).
``python tools/words.py --names perfml`` counts names in the code that do not say what they name.
``--long`` counts sentences of more than 20 words instead; with ``--strings`` it lists them and
exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 20
"""Words of a sentence."""
INSTEAD = {
    r"strangers?": "who it is: other people, outside authors, published reports",
    r"exams?": "test set, blind test",
    r"for want of": "missing: the counter",
    r"stands? (?:beside|behind)": "is next to, ranks below",
    r"told": "say who says what, to whom",
    r"asked once": "the first answer",
    r"so many": "the number",
    r"called otherwise": "has another name",
    r"mended": "fixed",
    r"whole cure": "complete fix",
}
"""Words that do not occur (a regular expression each), and what to write."""
_FOUND = re.compile("|".join(rf"\b(?:{each})\b" for each in INSTEAD), re.IGNORECASE)


VAGUE = ("each", "found", "told", "said", "mine", "taken", "whole")
"""Names of variables, parameters and functions where a noun would say what it is."""


class Finding(NamedTuple):
    """A word that should not be there."""

    path: Path
    line: int
    word: str

    def __str__(self) -> str:
        """Return it as ``path:line: word -> what to write``."""
        instead = next(
            text for each, text in INSTEAD.items() if re.fullmatch(each, self.word, re.IGNORECASE)
        )
        return f"{self.path}:{self.line}: {self.word!r} -> {instead}"


def prose(markdown: str) -> str:
    """Return a page without front matter, code, comments and the targets of links; lines stay."""
    blank = lambda found: "\n" * found[0].count("\n")  # noqa: E731
    text = re.sub(r"\A---\n.*?\n---\n", blank, markdown, flags=re.DOTALL)
    text = re.sub(r"^( *)```.*?^\1```", blank, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", blank, text, flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "x", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def in_page(path: Path) -> Iterator[Finding]:
    """Return the findings of a page of Markdown."""
    lines = prose(path.read_text(encoding="utf-8")).splitlines()
    for number, line in enumerate(lines, 1):
        for found in _FOUND.finditer(line):
            yield Finding(path, number, found[0])


def literals(path: Path) -> tuple[tuple[int, str], ...]:
    """Return line and text of the strings that a file of Python or TOML may print.

    A value within an f-string is one word. Docstrings, ids without a blank, regular expressions,
    SQL and what `_words` splits are no sentences, nor are the sources and patterns of a TOML.
    """
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".toml":
        return tuple((0, text) for text in _values(tomllib.loads(source)))
    return _in_python(source)


_tree = functools.cache(ast.parse)


@functools.cache
def _in_python(source: str) -> tuple[tuple[int, str], ...]:
    found = []
    nodes = list(ast.walk(_tree(source)))
    silent: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Expr | ast.JoinedStr):  # docstrings; parts of f-strings
            silent.update(map(id, ast.iter_child_nodes(node)))
        elif isinstance(node, ast.Call) and _is_silent(node.func):
            silent.update(map(id, node.args))
    for node in nodes:
        if id(node) in silent or not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        text = "".join(
            part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "x"
            for part in parts
        )
        if " " in text and not text.startswith(("SELECT ", "INSERT ", "CREATE ")):
            found.append((node.lineno, text))
    return tuple(found)


def _is_silent(function: ast.expr) -> bool:
    """Tell whether what a function is given is no sentence: that of `re`, and `_words`."""
    of = getattr(function, "value", function)
    return getattr(of, "id", "") in ("re", "_words")


def _values(table: object) -> Iterator[str]:
    """Return the strings of a TOML that people read."""
    if isinstance(table, dict):
        for name, value in table.items():
            if name not in ("source", "texts", "pattern", "signature"):
                yield from _values(value)
    elif isinstance(table, list):
        for each in table:
            yield from _values(each)
    elif isinstance(table, str):
        yield table


def in_strings(path: Path) -> Iterator[Finding]:
    """Return the findings of the string literals of a Python file, without its docstrings."""
    for line, text in literals(path):
        for found in _FOUND.finditer(text):
            yield Finding(path, line, found[0])


def vague_names(path: Path) -> Counter[str]:
    """Return how often a file of Python gives one of the names of `VAGUE`."""
    return Counter(
        name
        for node in ast.walk(_tree(path.read_text(encoding="utf-8")))
        if (name := _given_name(node).lstrip("_")) in VAGUE
    )


def _given_name(node: ast.AST) -> str:
    """Return the name that a node of the syntax gives; empty where it gives none."""
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Store) else ""
    return (
        getattr(node, "arg", "") if isinstance(node, ast.arg) else getattr(node, "name", "") or ""
    )


def long_strings(path: Path) -> list[tuple[int, str]]:
    """Return line and text of the printed sentences of more than `LONGEST` words."""
    return [(line, sentence) for line, text in literals(path) for sentence in too_long(text)]


def too_long(text: str) -> list[str]:
    """Return the sentences of a plain text that have more than `LONGEST` words."""
    sentences = re.split(r"[.!?][*)\"]*\s+|\n", text)
    return [" ".join(sentence.split()) for sentence in sentences if _words(sentence) > LONGEST]


def _words(sentence: str) -> int:
    values_filled = re.sub(r"\{[^{}]*\}", "x", sentence)  # a template's field is one value
    return len(re.findall(r"[^\W_][\w'.,-]*", values_filled))


def long_sentences(markdown: str) -> list[str]:
    """Return the sentences of a page that have more than `LONGEST` words; tables do not count."""
    text = re.sub(r"^\s*\|.*$", "\n", prose(markdown), flags=re.MULTILINE)
    # a line that begins a bullet, a heading or a sentence of its own begins a sentence
    blocks = re.split(r"\n\s*\n|^#+ |^\s*(?:[-*]|\d+\.) ", text, flags=re.MULTILINE)
    sentences = (each for block in blocks for each in re.split(r"[.!?][*)\"]*\s+", block))
    return [" ".join(sentence.split()) for sentence in sentences if _words(sentence) > LONGEST]


def printed(rooms: Iterable[Path]) -> list[Path]:
    """Return the files of rooms that hold what is printed."""
    return [
        path
        for room in rooms
        for ending in ("*.py", "*.toml")
        for path in sorted(room.rglob(ending))
    ]


def pages() -> list[Path]:
    """Return what people read at the root, and the sources of the documentation."""
    first = (ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG"))
    return [*first, *sorted((ROOT / "docs").rglob("*.md"))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", type=Path, nargs="*")
    parser.add_argument("--strings", action="store_true", help="count in Python string literals")
    parser.add_argument("--long", action="store_true", help="count long sentences of pages")
    parser.add_argument("--names", action="store_true", help="count names that say nothing")
    given = parser.parse_args(arguments)
    if given.names:
        rooms = given.paths or [ROOT / "perfml", ROOT / "collectors"]
        sources = [path for room in rooms for path in sorted(room.rglob("*.py"))]
        named = sum(map(vague_names, sources), Counter[str]())
        _show([*named.most_common(), ("in all", named.total())])
        return 0
    if given.strings:
        asked = given.paths or [ROOT / "perfml", ROOT / "collectors"]
        files = [each for path in asked for each in (printed([path]) if path.is_dir() else [path])]
        if given.long:
            long = [
                f"{path}:{line}: {text}\n" for path in files for line, text in long_strings(path)
            ]
            sys.stdout.writelines(long)
            return bool(long)
        counts = Counter(finding.word.lower() for path in files for finding in in_strings(path))
        _show([*counts.most_common(), ("in all", counts.total())])
        return 0
    if given.long:
        lengths = [
            (path, len(long_sentences(path.read_text("utf-8")))) for path in given.paths or pages()
        ]
        _show(sorted(lengths, key=lambda each: -each[1]))
        return 0
    found = [finding for path in given.paths or pages() for finding in in_page(path)]
    sys.stdout.writelines(f"{each}\n" for each in found)
    return bool(found)


def _show(counts: Iterable[tuple[object, int]]) -> None:
    sys.stdout.writelines(f"{count:6} {what}\n" for what, count in counts)


if __name__ == "__main__":
    sys.exit(main())
