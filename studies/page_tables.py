"""Tables of a page between the markers ``<!-- NAME -->`` and ``<!-- end -->``."""

from __future__ import annotations

import re

from perfml.util.files import replacing

_PERCENT = re.compile(r"(?<=\d)%")
"""A sign of per cent without the blank that every unit has."""

_TABLE = re.compile(r"(<!-- (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def table_on(page, name):
    """Return a table as it stands on a page."""
    found = {m.group(2): m.group(3) for m in _TABLE.finditer(page.read_text(encoding="utf-8"))}
    return found[name].rstrip("\n")


def write_tables(page, tables, names=()):
    """Write the tables of a page anew, or those with these names.

    `tables` maps a name to a function that returns the table; all on the page have to be there.
    """

    def anew(match):
        name = match.group(2)
        if names and name not in names:
            return match.group(0)
        return f"{match.group(1)}{tables[name]()}\n{match.group(4)}"

    text = _TABLE.sub(anew, page.read_text(encoding="utf-8"))
    with replacing(page) as temporary:
        temporary.write_text(text, encoding="utf-8")


def markdown(header, rows, *, numbers=False):
    """Return a table in Markdown, all columns but the first to the right if they are numbers."""
    others = "---:" if numbers else "---"
    rule = ["---", *[others] * (len(header) - 1)]
    lines = ("| " + " | ".join(map(str, row)) + " |" for row in (header, rule, *rows))
    return _PERCENT.sub(" %", "\n".join(lines))
