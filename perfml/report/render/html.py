"""A document as one self-contained HTML page: it needs no network and no other file."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections.abc import Sequence
from importlib import resources

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from perfml import __version__
from perfml.report.document import Block, Document, Picture
from perfml.report.figures.axes import alternative
from perfml.report.figures.style import svg
from perfml.report.labels import Entry, clean, entries
from perfml.util.words import capital, ended


def to_html(document: Document) -> str:
    """Return a document as one HTML page.

    Every text is made printable and escaped; the page's Content-Security-Policy allows no
    connection, and no script but its own.

    Parameters
    ----------
    document
        With an answer, and sections with anchors and links.
    """
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
        loader=FunctionLoader(_part),
    )
    figures, words = itertools.count(), Words(entries())

    def draw(picture: Picture, width: int) -> Markup:
        drawn = picture.draw(width=width)
        label = clean(f"{picture.label}. {alternative(drawn)}".rstrip(". "))
        image = svg(drawn, prefix=f"f{next(figures)}", label=label)
        return Markup(image)  # noqa: S704 - drawn here; its texts are escaped as XML

    def show(block: Block) -> Markup:
        shown: Markup = getattr(macros, type(block).__name__)(block)
        return shown

    environment.globals.update(show=show, svg=draw, words=words)
    environment.filters.update(told=words.marked, sentence=lambda text: ended(capital(text)))
    macros = environment.get_template("blocks.html.j2").module
    script, style = _part("script.js"), _part("style.css")
    page = environment.get_template("page.html.j2").render(
        document=document,
        version=__version__,
        script=Markup(script),  # noqa: S704 - a file of this package
        style=Markup(style),  # noqa: S704 - a file of this package
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    # a lone surrogate that no cleaning saw must not keep the file from being written
    return page.encode("utf-8", "replace").decode("utf-8")


_UNIT = re.compile(r"(?<=\d) (?=(?:%|[µm]s|[GT]B/s|TFLOP/s)(?!\w))")
"""The blank between a number and its unit."""


class Words:
    """Links words of the glossary to what they mean, once a part of the page."""

    def __init__(self, known: Sequence[Entry]) -> None:
        self._entries = {text: each for each in known for text in each.texts}
        longest = sorted(self._entries, key=len, reverse=True)
        inside = "|".join(re.escape(text) for text in longest)
        self._pattern = re.compile(rf"(?<![\w-])(?:{inside})(?![\w-])")
        self._here: set[str] = set()
        self._used: set[str] = set()
        self._known = known

    def part(self) -> str:
        """Begin a part of the page: its words are linked anew."""
        self._here = set()
        return ""

    @property
    def used(self) -> list[Entry]:
        """The words that the page uses, in the order of the glossary."""
        return [entry for entry in self._known if entry.name in self._used]

    def marked(self, text: object) -> Markup:
        """Return a text, made printable and escaped, with its first words linked."""
        # a number and its unit stay on one line
        shown = _UNIT.sub("\xa0", clean(text))
        parts, end = [], 0
        for found in self._pattern.finditer(shown):
            entry = self._entries[found.group()]
            if entry.name in self._here:
                continue
            self._here.add(entry.name)
            self._used.add(entry.name)
            parts.append(escape(shown[end : found.start()]))
            parts.append(
                Markup('<a class="word" href="#{}" title="{}">{}</a>').format(
                    entry.anchor, entry.sentence, found.group()
                )
            )
            end = found.end()
        return Markup().join([*parts, escape(shown[end:])])


def _printable(value: object) -> object:
    """Return what a template prints: text from outside as printable text."""
    return clean(value) if type(value) is str else value


def _part(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
