"""Types that documents of several verbs share."""

from __future__ import annotations

from typing import Annotated, TypedDict

MaybeMicroseconds = Annotated[float | None, "microseconds; null where not known"]
Number = float | None
Warnings = Annotated[list[str], "sentences that a person should see"]


class Failed(TypedDict):
    """What is wrong, where, what was found, and what to do."""

    what: str
    where: str | None
    found: str | None
    cure: str | None
