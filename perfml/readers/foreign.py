"""What a file is that no reader knows, and what to do with it."""

from __future__ import annotations

import codecs
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfml.errors import InputError, plain

_TAR_MAGIC = slice(257, 262)


@dataclass(frozen=True)
class Foreign:
    """A kind of file that is no profile, or none that can be read as it is.

    Attributes
    ----------
    signature
        How such a file begins.
    what
        What it is.
    cure
        What to do; None for a list of what is read.
    """

    signature: bytes
    what: str
    cure: str | None = None


_FOREIGN = (
    Foreign(
        b"NVIDIA Tegra Profiler Report",
        "a report of Nsight Systems, which only its own tool can open",
        "Export it with: nsys export --type sqlite --output {export} {name} "
        "and give the .sqlite file. Any machine that has Nsight Systems will do.",
    ),
    Foreign(
        b"version https://git-lfs.github.com/spec/",
        "a pointer of Git LFS, which stands for the file",
        "Get the file itself: git lfs pull --include {name}",
    ),
    Foreign(b"SQLite format 3\x00", "an SQLite database of another tool"),
    Foreign(b"PAR1", "a Parquet file: already a table, so merge or train on it"),
    Foreign(b"\x7fELF", "a program"),
    Foreign(b"PK\x03\x04", "a zip archive", "Unpack it, and give the profiles: unzip {name}"),
    Foreign(b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "Unpack it, and give the profiles."),
    Foreign(b"Rar!", "a RAR archive", "Unpack it, and give the profiles."),
    Foreign(
        b"\x28\xb5\x2f\xfd",
        "a Zstandard file",
        "Decompress it, and give the result: unzstd {name}",
    ),
)
_TAR = Foreign(b"", "a tar archive", "Unpack it, and give the profiles: tar xf {name}")
_SESSION = Foreign(
    b"",
    "a session of the Visual Profiler: how its window looked, and none of the measurements",
    "Give the profile that was opened in it, or make one: nvprof --export-profile FILE CMD ...",
)
_SESSION_TAG = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]{0,200}\?>\s*)?<session\b")
_STATISTICS = Foreign(
    b"",
    "a printout of statistics by Nsight Systems, without single launches",
    "Give the .sqlite file that nsys stats or nsys export --type sqlite leaves beside the "
    ".nsys-rep. Or give the output of nsys stats --report cuda_gpu_trace --format csv.",
)
_STATISTICS_TABLE = re.compile(
    rb"(?m)^(?:CUDA (?:Kernel|API|GPU Kernel|Memory Operation|GPU Summary)\b.{0,60}Statistics"
    rb"|Operating System Runtime API Statistics|Processing \[.{0,300}\] with \[.{0,300}\]\.\.\."
    rb"| \*\* (?:CUDA|OS Runtime|NVTX) .{0,80}\((?:\w+sum|\w+trace|\w+_sum|\w+_trace)\):?"
    rb"|\"?Time ?\(%\)\"?,\"?Total Time ?\()"
)
_TRACE_TIMES = Foreign(
    b"",
    "trtexec's times of whole inferences, without layers",
    "Export the layers with: trtexec --dumpProfile --separateProfileRun --exportProfile=FILE ...",
)
_NSYS_JSON = Foreign(
    b"",
    "the JSON export of Nsight Systems, or a Chrome trace that was made of it",
    "Export the report as it is: nsys export --type sqlite --output {export} FILE.nsys-rep",
)
_TRACE_SUMMARY = Foreign(
    b"",
    "the summary of a TensorRT run that TensorRT's engine explorer writes, without layers",
    "Give the .profile.json and the .graph.json beside it.",
)


def is_archive(head: bytes) -> bool:
    """Tell whether a file holds other files, from its first bytes."""
    return head[_TAR_MAGIC] == b"ustar" or head.startswith((b"PK\x03\x04", b"7z\xbc\xaf", b"Rar!"))


def unread(head: bytes, path: Path, titles: Sequence[str]) -> InputError:
    """Return the error for a file that no reader knows; it says what it looks like.

    `head` are its first bytes, decompressed; `titles` are what is read, as a person calls it.
    """
    kind = _kind(head)
    if kind is not None and kind.cure is not None:
        export = f"{path.stem}.sqlite"
        quoted = {"name": plain(shlex.quote(path.name)), "export": plain(shlex.quote(export))}
        return InputError(f"this is {kind.what}", where=str(path), cure=kind.cure.format(**quoted))
    msg = "not a profile in a format that perfml reads"
    found = kind.what if kind is not None else _looks_like(head)
    cure = f"perfml reads: {'; '.join(titles)}."
    if kind is None and _is_table(head):
        own = "A table with columns of your own is for Python: perfml.rank(X, y) ranks its columns."
        cure = f"{own} {cure}"
    return InputError(msg, where=str(path), found=found, cure=cure)


def _is_table(head: bytes) -> bool:
    """Say whether a file begins with two lines of as many values between commas."""
    lines = head.splitlines()[:2]
    values = [line.count(b",") for line in lines]
    return len(values) == 2 and values[0] == values[1] > 0


def _kind(head: bytes) -> Foreign | None:
    if head[_TAR_MAGIC] == b"ustar":
        return _TAR
    for kind in _FOREIGN:
        if head.startswith(kind.signature):
            return kind
    if _SESSION_TAG.match(head[:4096]):
        return _SESSION
    if _STATISTICS_TABLE.search(head):
        return _STATISTICS
    if head.lstrip()[:1] == b"[" and b'"startComputeMs"' in head:
        return _TRACE_TIMES
    if head.lstrip()[:1] == b"{" and b'"performance_summary"' in head[:4096]:
        return _TRACE_SUMMARY
    first = head.lstrip()[:4096]
    if first.startswith(b'{"Type":') or (first[:1] == b"[" and b'"cat": "cuda"' in first):
        return _NSYS_JSON
    return None


def _looks_like(head: bytes) -> str:
    marked = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if not marked:
        if head[:1024].count(b"\x00") * 5 > len(head[:1024]) * 2 and b"," in head[:1024]:
            return "text in UTF-16 without a byte order mark: convert it to UTF-8"
        if b"\x00" in head[:1024]:
            return "binary data, beginning " + repr(head[:16])
    text = head.decode("utf-16" if marked else "utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return f"text, beginning {lines[0].strip()[:80]!r}" if lines else "only blank lines"
