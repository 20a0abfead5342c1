"""The vocabulary of causes: every one that an explanation by counters can name.

A cause is identified by its id everywhere: in frames, JSON, planted truth and studies. Its label is
for people and may change. `TERMS` is the one registry, read from ``causes.toml``.

Here to change: a new cause is a row of ``causes.toml``, named by a limit, a factor or a
replacement of ``limits.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from perfml.explain.tree.term import SHARE_OF_TIME
from perfml.explain.tree.term import Contribution as Contribution
from perfml.explain.tree.term import Kind as Kind
from perfml.explain.tree.term import Term as Term
from perfml.metrics.expressions import parse

ONE_SIDED = ("kernels_appeared", "kernels_vanished", "launch_count")
"""Ids of the causes that are launches which one side lacks."""


def _read() -> dict[str, Term]:
    path = resources.files("perfml.explain.tree").joinpath("causes.toml")
    rows: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: _term(name, row) for name, row in rows.items()}


def _term(name: str, row: Mapping[str, Any]) -> Term:
    level = row.get("level")
    waited = level is not None and level.startswith("wait.")
    words = row.get("words", SHARE_OF_TIME if waited else Term.words)
    return Term(
        id=name,
        label=row["label"],
        kind=Kind(row["kind"]),
        evidence=tuple(row.get("needs", ())),
        action=row["action"],
        words=words,
        falls=row.get("falls", False),
        or_evidence=tuple(row.get("or", ())),
        level=None if level is None else parse(level),
        limits=tuple(row.get("limits", ())),
        none_where=tuple(row.get("none_where", ())),
        place=row.get("place", False),
        resolved_by=row["resolved_by"],
        author_only=row.get("author_only", False),
    )


TERMS: dict[str, Term] = _read()
"""Every cause by its id."""
