"""What the gate says and by which exit code, what may change before it closes, named baselines.

Here to change: a verdict, its exit code, a tolerance more. Tolerances stand in one small TOML file
because people comment on their exceptions. The command line shows exit codes before pandas is
loaded.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum, StrEnum
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfml.errors import InputError, PerfmlError, did_you_mean
from perfml.util.files import files_like, require_file

if TYPE_CHECKING:
    import pandas as pd

    from perfml.tables import Table


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


MEANINGS = {
    ExitCode.PASSED: "the same or less work",
    ExitCode.MORE_WORK: "more work",
    ExitCode.USAGE: "wrong use of the command",
    ExitCode.CANNOT_TELL: "cannot tell",
    ExitCode.SLOWER: "slower on the clock without more work",
    ExitCode.NOT_COMPARABLE: "another GPU, batch or clock",
    ExitCode.UNREADABLE: "an input that cannot be read",
}
"""What an exit code tells, as a clause."""

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


FOLDER = Path(".perfml") / "baselines"
"""Where named baselines lie, from the folder that the command runs in."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def save_baseline(name: str, layers: pd.DataFrame, provenance: dict[str, Any]) -> Path:
    """Keep a Layers table as a named baseline; an older one of that name is replaced whole.

    Raises `PerfmlError` if the name is none for a file.
    """
    from perfml.tables import write_table  # not above: the command line starts without pandas

    path = _path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(layers, path, kind="layers", provenance={**provenance, "baseline": name})
    return path


def load_baseline(name: str) -> Table | None:
    """Return a named baseline; None where there is none of that name.

    Raises `InputError` if the file is damaged.
    """
    if not _NAME.fullmatch(name):
        return None
    from perfml.tables import read_table

    path = _path(name)
    return read_table(path, kind="layers") if path.is_file() else None


def unknown_baseline(name: str) -> InputError:
    """Return the error for what is neither a file, a data set nor a named baseline."""
    names = sorted(path.stem for path in FOLDER.glob("*.parquet"))
    msg = "neither a file, a data set nor a named baseline"
    path = Path(name)
    meant = (
        "Check the path." if path.suffix else f"Save one with: perfml gate --save {name} PROFILE"
    )
    return InputError(
        msg,
        where=name,
        found=f"baselines: {', '.join(names)}" if names else "no baseline was saved here",
        cure=did_you_mean(name, [*names, *files_like(path)], meant),
    )


def _path(name: str) -> Path:
    if not _NAME.fullmatch(name):
        msg = "a baseline's name is letters, digits, dots, dashes and underscores"
        raise PerfmlError(msg, found=name, cure="Choose another name, such as: main")
    return FOLDER / f"{name}.parquet"
