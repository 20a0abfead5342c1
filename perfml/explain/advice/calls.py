"""What the code that calls PyTorch or a library can do about a cause in a kernel, by its name.

Here to change: a call that PyTorch has a better one for is a row of ``calls.toml``.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from perfml.explain.advice.persons import Person
from perfml.explain.tree.causes import ONE_SIDED, Kind, Term
from perfml.util.rows import read_rows

_USERS = {Person.LIBRARY: "library", Person.PYTORCH: "pytorch"}


def by_caller(person: Person, term: Term, kernel: str) -> str | None:
    """Return what who calls a kernel can do about a cause; None where only its author can.

    Examples
    --------
    >>> from perfml.explain.tree.causes import TERMS
    >>> by_caller(Person.LIBRARY, TERMS["instructions"], "cutlass_75_tensorop_bf16_nn_align1")[:8]
    'pad rows'
    """
    usual = usual_call(person, term)
    if usual is None:
        return None
    rows = _calls()[_USERS[person]]
    mine = (row for row in rows if re.search(row.get("kernel", ""), kernel))
    return next((str(row["say"]) for row in mine if _applies(row["cause"], term)), usual)


def usual_call(person: Person, term: Term) -> str | None:
    """Return the same where the name of the kernel says nothing."""
    said: str | None = _calls()["usual"].get(_USERS.get(person), {}).get(term.kind)
    return said


@cache
def _calls() -> dict[str, Any]:
    return read_rows("perfml.explain.advice", "calls.toml")


def _applies(cause: str | list[str], term: Term) -> bool:
    if cause == "launches":
        return term.id in ONE_SIDED
    if cause == "others":
        return term.id not in ONE_SIDED
    return term.kind in (Kind.WAVES, Kind.OCCUPANCY) if cause == "size" else term.id in cause
