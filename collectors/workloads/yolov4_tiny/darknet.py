"""Read Darknet's ``.cfg`` text into sections that remember their line numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from perfml.errors import InputError

NETWORK_SECTIONS = ("net", "network")
BUILTIN_CFG = "yolov4-tiny.cfg"


@dataclasses.dataclass(frozen=True)
class Option:
    """One ``key=value`` line: its text and the line it stands on."""

    value: str
    line: int


@dataclasses.dataclass(frozen=True)
class Section:
    """One ``[type]`` block of a cfg file."""

    type: str  # the name between the brackets, lower case
    line: int  # line of the bracket, counted from 1
    options: dict[str, Option]  # the `key=value` lines below it
    source: str  # name of the file, for error messages

    def where(self, key: str | None = None) -> str:
        """Return ``file:line`` of an option, or of the section's head if it has no such option."""
        option = self.options.get(key) if key is not None else None
        return f"{self.source}:{option.line if option else self.line}"

    def text(self, key: str, default: str) -> str:
        """Return the text of an option."""
        option = self.options.get(key)
        return option.value if option else default

    def integer(self, key: str, default: int | None = None, *, minimum: int | None = None) -> int:
        """Return an option as an integer.

        Raises `InputError` if it is missing without a default, is no integer, or lies under
        ``minimum``.
        """
        option = self.options.get(key)
        if option is None:
            if default is None:
                what = f"[{self.type}] has no {key}"
                cure = f"Add a line such as {key}=1 below the section's head."
                raise InputError(what, where=self.where(), cure=cure)
            return default
        value = _integer(option.value)
        if value is None or (minimum is not None and value < minimum):
            bound = "an integer" if minimum is None else f"an integer of at least {minimum}"
            what = f"[{self.type}] {key} must be {bound}"
            raise InputError(what, where=self.where(key), found=option.value)
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """Return a comma-separated option as integers; a missing option is an error."""
        option = self.options.get(key)
        if option is None:
            what = f"[{self.type}] has no {key}"
            raise InputError(what, where=self.where(), cure=f"Add a line {key}=N[,N...].")
        values = [_integer(part) for part in option.value.rstrip(", ").split(",")]
        if any(value is None for value in values):
            what = f"[{self.type}] {key} must be integers separated by commas"
            raise InputError(what, where=self.where(key), found=option.value)
        return tuple(value for value in values if value is not None)

    def number(self, key: str, default: float) -> float:
        """Return an option as a real number."""
        option = self.options.get(key)
        if option is None:
            return default
        try:
            return float(option.value)
        except ValueError:
            what = f"[{self.type}] {key} must be a number"
            raise InputError(what, where=self.where(key), found=option.value) from None


def _integer(text: str) -> int | None:
    try:
        return int(text.strip())
    except ValueError:
        return None


def parse_cfg(lines: Iterable[str], source: str) -> list[Section]:
    """Parse the lines of a cfg file: the ``[net]`` section first, then one section per layer.

    ``#`` and ``;`` start a comment, as in Darknet; `source` is the name used in error messages.
    Raises an `InputError` if a line is neither a section, an option nor a comment, an option comes
    before the first section or twice in one, or the file does not start with ``[net]``.
    """
    sections: list[Section] = []
    for number, raw in enumerate(lines, start=1):
        line = raw.split("#", 1)[0].split(";", 1)[0].strip()
        if not line:
            continue
        if line.startswith("["):
            sections.append(_head(line, number, source))
        else:
            _add_option(sections, line, number, source)
    if not sections or sections[0].type not in NETWORK_SECTIONS:
        found = f"[{sections[0].type}]" if sections else "no section at all"
        where = sections[0].where() if sections else f"{source}:1"
        what = "a Darknet cfg starts with the section [net]"
        cure = "Give the .cfg file that belongs to the network, not its .weights or .data file."
        raise InputError(what, where=where, found=found, cure=cure)
    return sections


def _head(line: str, number: int, source: str) -> Section:
    if not line.endswith("]") or len(line) < 3:
        what = "a section's head is a name between square brackets"
        raise InputError(what, where=f"{source}:{number}", found=line)
    return Section(line[1:-1].strip().lower(), number, {}, source)


def _add_option(sections: list[Section], line: str, number: int, source: str) -> None:
    key, equals, value = (part.strip() for part in line.partition("="))
    where = f"{source}:{number}"
    if not equals or not key:
        what = "a line must be [section], key=value or a comment"
        raise InputError(what, where=where, found=line[:80])
    if not sections:
        what = f"the option {key} comes before the first section"
        raise InputError(what, where=where, cure="Start the file with [net].")
    options = sections[-1].options
    if key in options:
        what = f"[{sections[-1].type}] gives {key} twice, first on line {options[key].line}"
        raise InputError(what, where=where, found=line[:80], cure="Keep one of the two lines.")
    options[key] = Option(value, number)


def read_cfg(path: str | Path) -> list[Section]:
    """Read a cfg file; see :func:`parse_cfg` for what is accepted."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        what = "the cfg file cannot be read"
        raise InputError(what, where=str(path), found=error.strerror) from error
    except UnicodeDecodeError as error:
        what = "a Darknet cfg is text"
        found = f"byte {error.start} is not UTF-8"
        cure = "Give the network's .cfg file, not its .weights."
        raise InputError(what, where=str(path), found=found, cure=cure) from error
    return parse_cfg(text.splitlines(), str(path))


def builtin_cfg() -> list[Section]:
    """Return the cfg of YOLOv4-Tiny that comes with perfml; it has the published 2 classes."""
    resource = resources.files(__package__).joinpath(BUILTIN_CFG)
    return parse_cfg(resource.read_text(encoding="utf-8").splitlines(), BUILTIN_CFG)
