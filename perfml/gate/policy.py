"""What the gate says, by which exit code, and how much may change before it closes.

Here to change: a verdict, its exit code, a tolerance more. Tolerances stand in one small TOML file
because people comment on their exceptions. The command line shows exit codes before pandas is
loaded.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum, StrEnum
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from perfml.errors import InputError
from perfml.util.files import require_file


class Verdict(StrEnum):
    """What the gate says of a layer or of all, the one that decides first.

    Of all layers the first of these that any layer has is the answer.
    """

    WORSE = "worse"
    SLOWER = "slower"
    NOT_COMPARABLE = "not comparable"
    UNCLEAR = "cannot tell"
    BETTER = "better"
    SAME = "same"


class ExitCode(IntEnum):
    """Exit codes of the command; 2 is a wrong use of it, as for every verb."""

    PASSED = 0
    MORE_WORK = 1
    USAGE = 2
    CANNOT_TELL = 3
    SLOWER = 4
    NOT_COMPARABLE = 5
    UNREADABLE = 6

    @property
    def meaning(self) -> str:
        """What it tells, as a clause."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.PASSED: "the same or less work",
    ExitCode.MORE_WORK: "more work",
    ExitCode.USAGE: "wrong use of the command",
    ExitCode.CANNOT_TELL: "cannot tell",
    ExitCode.SLOWER: "slower on the clock without more work",
    ExitCode.NOT_COMPARABLE: "another GPU, batch or clock",
    ExitCode.UNREADABLE: "an input that cannot be read",
}

EXIT_CODES = {
    Verdict.SAME: ExitCode.PASSED,
    Verdict.BETTER: ExitCode.PASSED,
    Verdict.WORSE: ExitCode.MORE_WORK,
    Verdict.UNCLEAR: ExitCode.CANNOT_TELL,
    Verdict.SLOWER: ExitCode.SLOWER,
    Verdict.NOT_COMPARABLE: ExitCode.NOT_COMPARABLE,
}
"""Exit code of a verdict."""

FILE = "gate.toml"
"""Name of the file of tolerances, beside the named baselines."""


@dataclass(frozen=True)
class Policy:
    """Tolerances of the gate, as shares (0.005 is half a per cent)."""

    # growth of counted work that passes. Repeats that differ by more do not agree; those of the
    # same code differ by 3e-5 at most.
    work: float = 0.005
    time: float = 0.02  # change of a time that is taken for one: its interval must lie beyond
    # Exceptions: pattern of a layer's name to the growth of its work that passes; the first that
    # matches counts
    layers: Mapping[str, float] = field(default_factory=dict)

    def work_of(self, layer: str) -> float:
        """Return the growth of work that passes for a layer."""
        for pattern, tolerance in self.layers.items():
            if fnmatch(layer, pattern):
                return tolerance
        return self.work


def load_policy(path: str | Path) -> Policy:
    """Read tolerances from a TOML file with ``work``, ``time`` and a table ``layers``.

    Raises `InputError` if it is no TOML, or holds another key, or a number that is no share.
    """
    given = Path(path)
    require_file(given)
    try:
        document = tomllib.loads(given.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = "not a TOML file"
        raise InputError(msg, where=str(given), found=str(error), cure=_EXAMPLE) from error
    known = {entry.name for entry in fields(Policy)}
    for key in document:
        if key not in known:
            msg = f"unknown key {key!r}"
            raise InputError(msg, where=str(given), cure=_EXAMPLE)
    layers = document.get("layers", {})
    if not isinstance(layers, dict):
        msg = "layers must be a table"
        raise InputError(msg, where=str(given), found=repr(layers), cure=_EXAMPLE)
    return Policy(
        work=_share(document.get("work", Policy.work), "work", given),
        time=_share(document.get("time", Policy.time), "time", given),
        layers={name: _share(value, name, given) for name, value in layers.items()},
    )


_EXAMPLE = "It looks like: work = 0.005, time = 0.02, and a table [layers] of patterns."


def _share(value: Any, name: str, path: Path) -> float:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not 0 <= number < 10:
        msg = f"{name} must be a share, such as 0.005 for half a per cent"
        raise InputError(msg, where=str(path), found=repr(value), cure=_EXAMPLE)
    return float(number)
