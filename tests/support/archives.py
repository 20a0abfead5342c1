"""Make archives of files."""

from __future__ import annotations

import bz2
import gzip
import io
import tarfile
import zipfile


def tar_of(files: dict[str, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as found:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            found.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as found:
        for name, content in files.items():
            found.writestr(name, content)
    return buffer.getvalue()


PACKED = {
    "x.tar": tar_of,
    "x.tar.gz": lambda files: gzip.compress(tar_of(files)),
    "x.tar.bz2": lambda files: bz2.compress(tar_of(files)),
    "x.tar.xz": lambda files: tar_of(files, "w:xz"),
    "x.zip": zip_of,
}
"""Makers of archives, by name."""
