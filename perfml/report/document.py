"""What a person reads, apart from how it is written: sentences, tables, pictures, sections.

The sections of a report build a `Document` once from typed results; `perfml.report.render` writes
the same document as HTML, as Markdown and for a terminal. Text here is as it came: each renderer
makes text from outside printable and escapes it.

Here to add a kind of block: a dataclass below, its macro in ``render/blocks.html.j2``, and a case
in ``render/markdown.py`` and ``render/text.py`` where the short forms show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from perfml.explain.confidence import IN_WORDS, Confidence
from perfml.util.json_values import json_object
from perfml.util.shown import Shown
from perfml.util.words import capital, say

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


Sure = Confidence | Literal["caution"]
FALLING: tuple[Sure, ...] = ("high", "medium", "low", "caution")
"""From the surest one on."""

_OF_MODELS = ("metric", "error", "caution")

WIDE, NARROW = 1040, 352
"""Widths of a picture, in points: on a desktop and on a phone."""


def in_words(sure: Sure) -> str:
    """Return how sure a sentence is, as people read it."""
    return "caution" if sure == "caution" else IN_WORDS[sure]


@dataclass(frozen=True)
class Sentence:
    """One statement of an answer."""

    about: Literal["do", "time", "why", "metric", "error", "caution"]  # what it speaks of
    sure: Sure  # how sure it is; the rule of the word stands in the document's `Answer`
    text: str
    title: str = ""  # what to do, in a few words; only where it is ``do``
    gain: str = ""
    command: str = ""  # the line to type
    # whether the gain is a loss, there is none, or nobody knows it
    look: Literal["", "lost", "none", "unknown"] = ""
    at: str = ""  # the condition before its text, unless that is the only one
    named: bool = False  # whether its text begins with a name, which keeps its small letter

    def placed(self, *, alone: bool) -> Sentence:
        """Return it with its condition, or as a sentence of its own where that is the only one."""
        if not self.at:
            return self
        own = self.text if self.named else capital(self.text)
        return replace(self, text=own if alone else f"{self.at}, {self.text}", at="")

    @property
    def confidence(self) -> str:
        """How sure it is; where nobody knows the gain, of what."""
        sure = in_words(self.sure)
        return say("report.first.place", sure=sure) if self.look == "unknown" else sure

    @property
    def line(self) -> str:
        """All of it in one line."""
        if not self.gain:
            return self.text
        typed = f" Type: {self.command}" if self.command else ""
        return f"{self.title}: {self.text}{typed} [{self.gain}; {self.confidence}]"


@dataclass(frozen=True)
class Answer:
    """The sentences at the top of a document, and what their words of confidence mean."""

    heading: str  # above those that say what to do; above all without such
    sentences: tuple[Sentence, ...]  # those that say what to do first
    rules: Mapping[str, str]  # word of confidence to what it means
    evidence: str = "Evidence"  # heading of the others, where there are both

    @property
    def first(self) -> tuple[Sentence, ...]:
        """What to do."""
        return tuple(each for each in self.sentences if each.about == "do")

    @property
    def folded(self) -> tuple[Sentence, ...]:
        """What a page shows at a click where there is something to do: what models say."""
        return tuple(each for each in self.others if self.first and each.about in _OF_MODELS)

    @property
    def shown(self) -> tuple[Sentence, ...]:
        """The others that a page shows."""
        return tuple(each for each in self.others if each not in self.folded)

    @property
    def others(self) -> tuple[Sentence, ...]:
        """What it rests on, and what to fear."""
        return tuple(each for each in self.sentences if each.about != "do")


@dataclass(frozen=True)
class Cell:
    """One cell: what it says, what it sorts by, how it looks."""

    text: str  # what it says, and in smaller print below
    note: str = ""
    value: float | None = None  # what it sorts by; the text without
    series: int | None = None  # number of the backend whose colour stands before the text, or None
    strong: bool = False  # whether it is the best of its row
    bar: float | None = None  # length of the bar below the text, 0..1, or None
    fold: str = ""  # a long text, shown when the cell is opened; `text` is its short form
    link: str = ""  # the address on the page that its text leads to
    anchor: str = ""  # its own address, of a first cell


@dataclass(frozen=True)
class Column:
    """The head of a column, and whether it holds numbers."""

    name: str
    numeric: bool = False


def words(*names: str) -> tuple[Column, ...]:
    """Return columns of text."""
    return tuple(Column(name) for name in names)


def numbers(*names: str) -> tuple[Column, ...]:
    """Return columns of numbers, which are aligned to the right."""
    return tuple(Column(name, numeric=True) for name in names)


@dataclass(frozen=True)
class ReportTable:
    """A table."""

    # what it holds, for those who hear it; the heading of the short forms without a title
    caption: str
    columns: tuple[Column, ...]
    rows: list[list[Cell]] = field(default_factory=list)  # as many cells a row as columns
    title: str = ""  # a heading above it
    # whether a row becomes a card where a page is narrow, because its texts are long
    cards: bool = False
    # rows in Markdown and on a terminal, which say how many more there are; all without
    most: int | None = None
    # names of the columns that a narrow terminal leaves out first; after them go the last ones
    spare: tuple[str, ...] = ()
    bars: bool = False

    @property
    def heading(self) -> str:
        """The title, or else the caption."""
        return self.title or self.caption

    @property
    def widths(self) -> list[int]:
        """Least width of every column of text, in characters: its longest word, within reason."""
        return [
            0 if column.numeric else min(self._longest_word(index), 24)
            for index, column in enumerate(self.columns)
        ]

    def _longest_word(self, index: int) -> int:
        lengths = [len(word) for row in self.rows for word in row[index].text.split(" ")]
        return max(lengths, default=0)

    @property
    def long(self) -> bool:
        """Whether a filter is worth its place."""
        return len(self.rows) > 8


@dataclass(frozen=True)
class Picture:
    """A figure, drawn when a page is written."""

    label: str  # what it is for those who do not see it, and what it shows
    caption: str
    draw: Callable[..., Axes]  # takes ``width`` in points and returns the drawn Axes
    # on a desktop and on a phone; equal ones are drawn once, None leaves the figure out there
    widths: tuple[int, int | None] = (WIDE, NARROW)


@dataclass(frozen=True)
class Text:
    """A paragraph, or a note in smaller print."""

    text: str
    note: bool = False


@dataclass(frozen=True)
class Points:
    """Sentences of one matter, a line each."""

    items: tuple[str, ...]
    heading: str = ""  # marks what the reader must not miss
    # whether that is to be feared, or done; of warnings the heading is what they are about
    look: Literal["warn", "advised", "notices"] = "warn"


def notices(texts: Sequence[str], about: str) -> tuple[Points, ...]:
    """Return warnings about something, such as ``this ranking``; nothing without texts."""
    return (Points(tuple(texts), about, "notices"),) if texts else ()


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Card:
    """A total: what is measured, how long a bar stands for it (0..1), and what is to be noted."""

    name: str
    value: str = ""
    series: int = 0
    length: float | None = None
    notes: tuple[str, ...] = ()
    counts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Totals:
    """Totals beside each other; the short forms show the table instead, where there is one."""

    label: str
    cards: tuple[Card, ...]
    table: ReportTable | None = None


@dataclass(frozen=True)
class KernelChooser:
    """The kernels of a layer that a reader of the page chooses, packed for its script."""

    packed: dict[str, Any]
    cut: str  # a sentence on what was left out, or empty


@dataclass(frozen=True)
class Glossary:
    """The words of `perfml.report.labels` that the page used before; its place is at the end."""


@dataclass(frozen=True)
class Fold:
    """Blocks folded behind a summary; most often what only a page has room for."""

    summary: str
    blocks: tuple[Block, ...]
    page_only: bool = True


@dataclass(frozen=True)
class Section:
    """A part of a document."""

    title: str
    blocks: tuple[Block, ...]  # what it holds; a section inside is a part of its own
    summary: str = ""  # what it says, as a clause; stands right behind the title
    lead: str = ""  # how it is to be read; on the page only
    anchor: str = ""  # its address on the page, and its name in the page's navigation
    link: str = ""
    page_only: bool = False  # whether Markdown and the terminal leave it out


@dataclass(frozen=True)
class Panels:
    """Sections of which a page shows the one that the reader chooses."""

    name: str
    sections: tuple[Section, ...]


Block = (
    Facts | Fold | Glossary | KernelChooser | Panels | Picture | Points
    | ReportTable | Section | Text | Totals
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Document(Shown):
    """What is to be read."""

    title: str
    sections: tuple[Section, ...]  # in the order in which a reader wants them
    answer: Answer | None = None  # the sentences at its top
    facts: tuple[tuple[str, str], ...] = ()  # what was measured, in a few words
    brand: str = "perfml report"  # what kind of page it is

    @property
    def lines(self) -> list[str]:
        """The answer, a sentence a line."""
        return [] if self.answer is None else [each.line for each in self.answer.sentences]

    JSON: ClassVar = ("title", "facts", "lines")
    to_dict = json_object

    def shown(self) -> tuple[str, Sequence[str], pd.DataFrame, Sequence[str], str]:
        """Return the title, what was measured, and the answer."""
        import pandas as pd

        return self.title, (), pd.DataFrame(self.facts, columns=["", " "]), self.lines, ".sections"


def section(
    title: str,
    *blocks: Block | None,
    anchor: str = "",
    link: str = "",
    lead: str = "",
    summary: str = "",
) -> Section:
    """Return a section of the blocks that there are."""
    kept = tuple(block for block in blocks if block is not None)
    return Section(title, kept, summary, lead, anchor, link)
