"""How perfml's objects show themselves: a title, the warnings, one small table.

In a notebook as HTML, at a prompt as text (`perfml.util.text`).
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

import pandas as pd

from perfml.util.text import screen
from perfml.util.words import plain_number

_OPEN = 3
"""More warnings than these fold."""

_STYLE = "<style>table.perfml th, table.perfml td { text-align: left }</style>"
"""Notebooks set cells flush right, which sentences cannot be read in."""


class Shown:
    """A result that shows itself by what its `shown` returns."""

    def shown(self) -> tuple[str, Sequence[str], pd.DataFrame, Sequence[str], str]:
        """Return the title, warnings, the table, sentences below it, and where all rows are."""
        raise NotImplementedError

    def __repr__(self) -> str:
        title, warnings, frame, after, rest = self.shown()
        return screen(title, warnings, frame, after=after, rest=rest)

    def _repr_html_(self) -> str:
        title, warnings, frame, after, _ = self.shown()
        return section(title, warnings, frame, after=" ".join(after))


def section(title: str, warnings: Iterable[str], frame: pd.DataFrame, *, after: str = "") -> str:
    """Return a fragment of HTML; all text in it is shown as text.

    `warnings` are what the reader has to see before the table, whose row labels are not shown and
    whose missing cells are empty; `after` is a sentence below it.
    """
    notes = "".join(f"<p><b>Warning:</b> {html.escape(each)}</p>" for each in warnings)
    if notes.count("<p>") > _OPEN:
        # a page of warnings would hide the table; one line still says how many there are
        count = notes.count("<p>")
        notes = f"<details><summary><b>{count} warnings</b></summary>{notes}</details>"
    with pd.option_context("display.max_colwidth", None):
        table = frame.to_html(
            index=False,
            border=0,
            classes="perfml",
            na_rep="",
            float_format=plain_number,
        )
    below = f"<p>{html.escape(after)}</p>" if after else ""
    return f"<div>{_STYLE}<h4>{html.escape(title)}</h4>{notes}{table}{below}</div>"


def runs(frame: pd.DataFrame, rows: str) -> pd.DataFrame:
    """Return what a Kernels or Layers table holds, a row a run; `rows` is what its rows are."""
    identity = ["workload", "backend", "precision", "batch", "device"]
    grouped = frame.groupby("run_id", sort=False, dropna=False)
    found = grouped[identity].first()
    found["iterations"] = grouped["iteration"].nunique()
    found["layers"] = grouped["layer"].nunique()
    found[rows] = grouped.size()
    found["µs an iteration"] = grouped["time_us"].sum(min_count=1) / found["iterations"]
    return found.reset_index(drop=True)
