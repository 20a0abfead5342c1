"""A document as GitHub's Markdown, for a pull request: the answer, short tables, what to fear."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from perfml import __version__
from perfml.report import document as doc
from perfml.report.labels import clean
from perfml.report.render.text import one_line
from perfml.util.words import capital, count, ended

_SPECIAL = re.compile(r"([\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
"""What Markdown reads as markup inside a line; an underscore within a word is none."""

_MOST_OPEN = 14
"""Lines of a table that is not folded."""


def to_markdown(document: doc.Document) -> str:
    """Return a document in GitHub's Markdown; long tables fold, pictures are left out."""
    lines = [f"# {escape(document.title)}", ""]
    if document.answer is not None:
        for sentence in document.answer.first:
            lines += _sentence(sentence)
        lines.append("")
        for sentence in document.answer.others:
            lines += _sentence(sentence)
    for section in document.sections:
        lines += _section(section, 2)
    text = "\n".join([*lines, "", f"perfml {__version__}"])
    return re.sub(r"\n{3,}", "\n\n", text) + "\n"


def escape(text: object) -> str:
    r"""Return text from outside so that Markdown shows it as it is: no markup, HTML or mention.

    Examples
    --------
    >>> escape("<b>a|b</b>")
    '&lt;b&gt;a\\|b&lt;/b&gt;'
    """
    plain = " ".join(clean(text, 1000).split())
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # a word joiner is invisible, and keeps a name from notifying the person it resembles
    return _SPECIAL.sub(r"\\\1", plain).replace("@", "@\u2060")


def _marked(sentence: doc.Sentence) -> str:
    return "" if sentence.sure == "caution" else f" *({sentence.confidence})*"


def _sentence(sentence: doc.Sentence) -> list[str]:
    text = f"{escape(sentence.text)}{_marked(sentence)}"
    if sentence.about == "do":
        title = f"**{escape(sentence.title)}: {escape(sentence.gain)}.**"
        code = [f"   {one_line(line)}" for line in sentence.command.replace("`", "'").splitlines()]
        typed = ["   ```", *code, "   ```"] if code else []
        return [f"1. {title} {escape(sentence.text)}{_marked(sentence)}", *typed]
    return ["", "> [!WARNING]", f"> {text}"] if sentence.about == "caution" else [f"- {text}"]


def _section(section: doc.Section, level: int) -> list[str]:
    """Return a section's lines; none where all it holds is for a page."""
    summary = ended(capital(section.summary))
    lines = [escape(summary), *_blocks(section.blocks)]
    shown = any(lines) and not section.page_only
    return ["", f"{'#' * level} {escape(section.title)}", "", *lines] if shown else []


def _blocks(blocks: Iterable[doc.Block], *, inside_fold: bool = False) -> Iterator[str]:
    for block in blocks:
        yield ""
        yield from _block(block, inside_fold)


def _block(block: doc.Block, inside_fold: bool) -> Iterator[str]:
    match block:
        case doc.Panels():
            for section in block.sections:
                yield from _section(section, 3)
        case doc.Section():
            yield from _section(block, 4)
        case doc.Text():
            yield escape(block.text)
        case doc.Points(texts, about, "notices"):
            listed = [f"- {escape(text)}" for text in texts]
            yield from _folded(f"{count(len(texts), 'warning')} about {escape(about)}", listed)
        case doc.Points():
            yield from ([f"{escape(block.heading)}:", ""] if block.heading else [])
            yield from (f"- {escape(item)}" for item in block.items)
        case doc.Totals(table=doc.ReportTable() as table):
            yield from table_lines(table)
        case doc.ReportTable():
            lines = table_lines(block)
            long = len(lines) > _MOST_OPEN and not inside_fold
            yield from (_folded(escape(block.heading), lines) if long else lines)
        case doc.Fold(page_only=False):
            yield from _folded(escape(block.summary), [*_blocks(block.blocks, inside_fold=True)])
        case (
            doc.Facts() | doc.Fold() | doc.Glossary() | doc.KernelChooser() | doc.Picture()
            | doc.Totals()
        ):  # fmt: skip
            return  # what only a page has room for


def table_lines(table: doc.ReportTable) -> list[str]:
    """Return a table's lines, without those that its short form leaves out."""
    head = [escape(column.name) for column in table.columns]
    rule = ["---:" if column.numeric else "---" for column in table.columns]
    rows = [[_cell(cell) for cell in row] for row in table.rows[: table.most]]
    lines = [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]
    more = len(table.rows) - len(rows)
    return [*lines, "", f"{count(more, 'more row')}: on the page."] if more else lines


def _cell(cell: doc.Cell) -> str:
    text = escape(cell.text)
    if cell.strong:
        text = f"**{text}**"
    return f"{text} <sub>{escape(cell.note)}</sub>" if cell.note else text


def _folded(summary: str, lines: Iterable[str]) -> list[str]:
    return ["<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>"]
