"""The version of what a verb prints with ``--json``: the key ``schema``, such as ``explain/1``.

Apart from the types (`perfml.cli.documents`), which load all results: a verb needs its name alone.
"""

from __future__ import annotations

from typing import Any

VERSIONS: dict[str, int] = {}
"""Versions of the documents that changed since the first one."""


def version_of(verb: str) -> int:
    """Return the version of a verb's document."""
    return VERSIONS.get(verb, 1)


def marked(verb: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with its schema's name as the first key."""
    return {"schema": f"{verb}/{version_of(verb)}", **document}
