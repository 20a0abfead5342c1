"""Small files from outside: regular, readable, and no more than what they should be."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from perfml.errors import InputError

LARGEST_DOCUMENT = 256 << 20
"""Bytes of the largest JSON or TOML document that is read."""


def require_file(path: Path) -> None:
    """Raise `InputError` unless `path` is a regular file that can be read."""
    try:
        path.stat()
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            msg = "no such file"
            raise InputError(msg, where=str(path), cure="Check the path.") from error
        msg = "cannot look at this file"
        said = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InputError(msg, where=str(path), found=said, cure="Check the path.") from error
    if not path.is_file():
        kind = "a directory" if path.is_dir() else "a special file"
        msg = "not a regular file"
        raise InputError(msg, where=str(path), found=kind, cure="Name a file.")
    if not os.access(path, os.R_OK):
        msg = "no permission to read this file"
        raise InputError(msg, where=str(path), cure="Check its mode and owner.")


def read_document(path: Path) -> bytes:
    """Return the bytes of a small file.

    Raises
    ------
    InputError
        If it is no regular file, cannot be read, or is too large for a document.
    """
    require_file(path)
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST_DOCUMENT + 1)
    except OSError as error:
        msg = "the file cannot be read"
        raise InputError(
            msg, where=str(path), found=error.strerror or str(error), cure="Copy it again."
        ) from error
    if len(data) > LARGEST_DOCUMENT:
        msg = f"larger than {LARGEST_DOCUMENT >> 20} MiB"
        raise InputError(msg, where=str(path), cure="Check that it is the right file.")
    return data


def parse_json(data: bytes) -> Any:
    """Parse JSON from outside.

    Raises
    ------
    ValueError
        If it is no JSON: not text, an absurd number, or nested beyond reason.
    """
    try:
        return json.loads(data)
    except RecursionError:
        msg = "nested too deeply"
        raise ValueError(msg) from None
