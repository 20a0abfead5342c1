"""The instruction that carries a cause, and the sentence that says where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath

from perfml.util.words import Readable


@dataclass(frozen=True)
class Line:
    """The instruction that carries most of a cause.

    Attributes
    ----------
    term
        Id of the cause, or of the rule of advice.
    kernel
        Whose instruction it is.
    offset
        Bytes from the start of the kernel's code.
    sass
        The instruction.
    share
        Its part, of 1, and that of those `alike`.
    alike
        Instructions that count as one: of the same line; without lines, those with the same
        operation and base register, which is what unrolling makes of one.
    of
        What that is a part of.
    file, line
        Of the source, or None. Of CUDA's own headers the line that calls them.
    called_at
        Where the line is code that was inlined: the line that calls it, or None.
    waits_at
        Where warps wait for the instruction: the one at which most of them do, or None.
    """

    term: str
    kernel: str
    offset: int
    sass: str
    share: float
    of: str
    alike: int = 1
    file: str | None = None
    line: int | None = None
    called_at: str | None = None
    waits_at: str | None = None

    def sentence(self) -> str:
        """Say it in words."""
        where = ""
        if self.file is not None:
            called = f" (called at {self.called_at})" if self.called_at else ""
            where = f"{file_name(self.file)}:{self.line}{called}, "
        have = "has" if self.alike == 1 else f"and {self.alike - 1} more like it have"
        return (
            f"{where}{self.sass} at {self.offset:#06x} {have} {Readable(self.share):.0%} of "
            f"{self.of}" + (f", most of them at {self.waits_at}" if self.waits_at else "")
        )


def file_name(path: str) -> str:
    """Return the last part of a path: reports come from both kinds of systems.

    A folder tells a person's name, so it is not shown.
    """
    return (PureWindowsPath if "\\" in path else PurePosixPath)(path).name
