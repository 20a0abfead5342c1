"""Tables that ship as TOML beside a module, and their rows as records."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any, TypeVar

Row = TypeVar("Row")


def read_rows(package: str, name: str) -> dict[str, Any]:
    """Return what a TOML file of a package holds."""
    return tomllib.loads(resources.files(package).joinpath(name).read_text(encoding="utf-8"))


def record(kind: type[Row], row: Mapping[str, Any], /, **made: Any) -> Row:
    """Return a row as a dataclass, with what is `made` of some of its keys.

    Arrays become tuples, and what the row does not say has its default.
    """
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return kind(**values | made)
