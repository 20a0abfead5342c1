"""SHA-256, the way every part of perfml names bytes: lower-case hexadecimal."""

from __future__ import annotations

import hashlib
from pathlib import Path


def sha256_of(data: bytes | memoryview) -> str:
    """Return the SHA-256 of bytes.

    Examples
    --------
    >>> sha256_of(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 of a file as it lies on disk, read in parts.

    Raises `OSError` if it cannot be read.
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
