"""Count the words of the documentation: ``python docs/_site/words.py [SITE]``.

Prints all words, those outside the reference, and the entries of the navigation. With the folder
of a built site its text is counted as a reader sees it. Without, the sources are: pages filled
with what is generated, notebooks without outputs, and for the packages the docstrings of the names
that their pages list. That needs perfml and no extra, and is a little less than the site has.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = "reference/"
"""Pages to look something up in; most are made from the program."""
NOT_SHOWN = {"architecture.md"}
"""Pages for those who change perfml, and read its sources."""
_WORD = re.compile(r"[^\W_]")


@dataclass(frozen=True)
class Count:
    """Words by page (a path below ``docs/``), and entries of the navigation."""

    pages: dict[str, int]
    entries: int

    @property
    def total(self) -> int:
        """All words."""
        return sum(self.pages.values())

    @property
    def outside(self) -> int:
        """Words outside the reference."""
        return sum(n for page, n in self.pages.items() if not page.startswith(REFERENCE))

    def __str__(self) -> str:
        """Return the three numbers in a line."""
        return (
            f"{self.total} words, {self.outside} outside the reference, "
            f"{self.entries} navigation entries"
        )


def entries() -> list[str]:
    """Return the pages that the navigation lists."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    return re.findall(r"([\w/-]+\.md)\s*$", navigation, re.MULTILINE)


def words_in(text: str) -> int:
    """Return how many words a text has: what has a letter or a digit."""
    return sum(bool(_WORD.search(each)) for each in text.split())


def of_sources() -> Count:
    """Count the sources of the pages, with what the program gives them."""
    from generated import filled

    pages = {}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = path.relative_to(ROOT / "docs").as_posix()
        if name not in NOT_SHOWN:
            text = path.read_text(encoding="utf-8")
            pages[name] = words_in(_shown(filled(text))) + sum(_documented(text))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
        pages[f"notebooks/{path.stem}.md"] = words_in(_shown(text))
    return Count(pages, len(entries()))


def of_site(folder: Path) -> Count:
    """Count the text of every page of a built site, without navigation and search."""
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        parser = _Article()
        parser.feed(path.read_text(encoding="utf-8"))
        if parser.text:
            name = path.relative_to(folder).with_suffix(".md").as_posix()
            pages[name] = words_in(" ".join(parser.text))
    return Count(pages, len(entries()))


class _Article(HTMLParser):
    """Collects the text of ``<article>``."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self._inside = 0
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._inside += tag == "article"
        self._silent += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._inside -= tag == "article"
        self._silent -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if self._inside and not self._silent:
            self.text.append(data)


def _shown(markdown: str) -> str:
    """Return a page without front matter, comments, markup and the targets of links."""
    text = re.sub(r"\A---\n.*?\n---\n", "", markdown, flags=re.DOTALL)
    text = re.sub(r"^:::.*(?:\n    options:.*)?$", "", text, flags=re.MULTILINE)
    return re.sub(r"<!--.*?-->|<[^>]+>|\]\([^)]*\)", " ", text, flags=re.DOTALL)


def _documented(markdown: str) -> Iterator[int]:
    """Return the words of the docstrings that a page asks for, with names of parameters."""
    import importlib
    import inspect

    asked = re.findall(r"^::: (\S+)\n    options: \{(.*)\}$", markdown, re.MULTILINE)
    for name, options in asked:
        package = importlib.import_module(name)
        listed = re.search(r"members: \[(.*?)\]", options)
        members = listed[1].split(", ") if listed else list(package.__all__)
        yield words_in(inspect.getdoc(package) or "")
        for member in (getattr(package, each) for each in members):
            yield _of_object(member)
            for key, part in vars(member).items() if inspect.isclass(member) else ():
                if not key.startswith("_") and (callable(part) or isinstance(part, property)):
                    yield _of_object(part)


def _of_object(thing: object) -> int:
    import inspect

    parameters = len(inspect.signature(thing).parameters) if inspect.isfunction(thing) else 0
    return words_in(inspect.getdoc(thing) or "") + 2 * parameters + 2


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]
    print(of_site(Path(sys.argv[1])) if sys.argv[1:] else of_sources())  # noqa: T201
