"""Errors that a user can act on: what is wrong, where, what was found, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypedDict, TypeVar


class Failed(TypedDict):
    """What is wrong, where, what was found, and what to do."""

    what: str
    where: str | None
    found: str | None
    cure: str | None


class PerfmlError(Exception):
    """An error caused by input or environment, shown to the user without a traceback.

    Parameters
    ----------
    what
        What is wrong, as one clause.
    where
        File, ``file:line``, column or option that is at fault.
    found
        What was found instead of what was expected.
    cure
        What the user can do about it.
    """

    exit_code = 1
    """Exit code of a command that this error ends."""

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        found: str | None = None,
        cure: str | None = None,
    ) -> None:
        self.what = plain(what)
        self.where = plain(where) if where is not None else None
        self.found = plain(found) if found is not None else None
        self.cure = cure
        super().__init__(str(self))

    def __str__(self) -> str:
        first = f"{self.where}: {self.what}" if self.where else self.what
        if self.found:
            first += f" (found: {self.found})"
        return f"{first}\n{self.cure}" if self.cure else first

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel between processes whole: a worker's error reads as it would here."""
        return _again, (type(self), self.what, self.where, self.found, self.cure)

    def as_dict(self) -> Failed:
        """Return the parts of the message, for ``--json``."""
        return {"what": self.what, "where": self.where, "found": self.found, "cure": self.cure}


Error = TypeVar("Error", bound=PerfmlError)


def _again(
    kind: type[Error], what: str, where: str | None, found: str | None, cure: str | None
) -> Error:
    """Make an error of its parts, whatever its class asks for."""
    error = kind.__new__(kind)
    PerfmlError.__init__(error, what, where=where, found=found, cure=cure)
    return error


def did_you_mean(name: str, known: Iterable[object], otherwise: str) -> str:
    """Return a cure for a name that is not known: the nearest ones, then what else to do.

    Examples
    --------
    >>> did_you_mean("cudn", ["cublas", "cudnn"], "Choose one of these.")
    'Did you mean cudnn? Choose one of these.'
    >>> did_you_mean("conv_1", ["conv_01", "conv_11"], "")
    'Did you mean conv_01? '
    >>> did_you_mean("x", ["cublas", "cudnn"], "Choose one of these.")
    'Choose one of these.'
    """
    import difflib

    names = list(dict.fromkeys(map(str, known)))
    near = [each for each in names if _unpadded(each) == _unpadded(name)]
    near = near or difflib.get_close_matches(name, names, n=3)
    return f"Did you mean {' or '.join(map(plain, near))}? {otherwise}" if near else otherwise


def _unpadded(name: str) -> str:
    return re.sub(r"(?<!\d)0+(?=\d)", "", name).lower()


LONGEST = 1000
"""Characters of foreign text that a message shows."""


def plain(text: str) -> str:
    r"""Return text from outside as one line that is safe to print.

    Names of kernels and files go into messages; a terminal must not obey what stands in them, and
    a name of ten thousand characters must not hide the message.

    Examples
    --------
    >>> plain("a\x1b[2J\nb")
    'a\\x1b[2J b'
    """
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 4 :]}"
    if text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character == "\n" else character.encode("unicode_escape").decode()


class InputError(PerfmlError):
    """A file from outside cannot be read as what it claims to be."""


class TableError(PerfmlError):
    """A table lacks a column, or holds values that no measurement can give."""


class MissingExtraError(PerfmlError):
    """An optional dependency is needed for this and is not installed.

    Parameters
    ----------
    package
        The dependency.
    purpose
        What needs it, the subject of the message.
    command
        What installs it; see `perfml.util.installed.missing_extra`.
    """

    def __init__(self, package: str, purpose: str, command: str) -> None:
        what = f"{purpose} needs the package {package}, which is not installed"
        super().__init__(what, cure=f"Install it with: {command}")
