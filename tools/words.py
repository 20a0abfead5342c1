"""Find words that people should not have to read: in pages, and in the strings of the program.

``python tools/words.py [PAGE ...]`` looks at README.md and docs/ and exits with 1 if it finds one.
``python tools/words.py --strings perfml`` counts them in string literals (docstrings aside).
``--long`` counts sentences of more than 20 words instead.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
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


def in_strings(path: Path) -> Iterator[Finding]:
    """Return the findings of the string literals of a Python file, without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if " " in node.value and id(node) not in docstrings:  # a sentence, not an id
            for found in _FOUND.finditer(node.value):
                yield Finding(path, node.lineno, found[0])


def long_sentences(markdown: str) -> list[str]:
    """Return the sentences of a page that have more than `LONGEST` words; tables do not count."""
    text = re.sub(r"^\s*\|.*$", "\n", prose(markdown), flags=re.MULTILINE)
    # a line that begins a bullet, a heading or a sentence of its own begins a sentence
    blocks = re.split(r"\n\s*\n|^#+ |^\s*(?:[-*]|\d+\.) ", text, flags=re.MULTILINE)
    sentences = (each for block in blocks for each in re.split(r"[.!?][*)\"]*\s+", block))
    return [
        " ".join(each.split())
        for each in sentences
        if len(re.findall(r"[^\W_][\w'.,-]*", each)) > LONGEST
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
    given = parser.parse_args(arguments)
    if given.strings:
        files = [
            each
            for path in given.paths or [ROOT / "perfml"]
            for each in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
        ]
        counts = Counter(each.word.lower() for path in files for each in in_strings(path))
        _show([*counts.most_common(), ("in all", counts.total())])
        return 0
    if given.long:
        lengths = [
            (path, len(long_sentences(path.read_text("utf-8")))) for path in given.paths or pages()
        ]
        _show(sorted(lengths, key=lambda each: -each[1]))
        return 0
    found = [each for path in given.paths or pages() for each in in_page(path)]
    sys.stdout.writelines(f"{each}\n" for each in found)
    return bool(found)


def _show(counts: Iterable[tuple[object, int]]) -> None:
    sys.stdout.writelines(f"{count:6} {what}\n" for what, count in counts)


if __name__ == "__main__":
    sys.exit(main())
