"""Attributes of a table that copies of it share: pandas deep-copies them at every step."""

from __future__ import annotations

from typing import Any


class SharedDict(dict[str, Any]):
    """Facts beside a table that nothing changes."""

    def __deepcopy__(self, memo: object) -> SharedDict:
        return self


class SharedList(list[Any]):
    """Notes beside a table that nothing changes."""

    def __deepcopy__(self, memo: object) -> SharedList:
        return self
