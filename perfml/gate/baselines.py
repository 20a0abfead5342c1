"""Named baselines: layers of an accepted version, kept in a folder of the repository.

Here to change: where they lie and what of a profile is kept. A baseline is a Layers table with its
provenance, small enough to be committed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.errors import InputError, PerfmlError, did_you_mean
from perfml.tables import Table, read_table, write_table
from perfml.util.files import files_like

FOLDER = Path(".perfml") / "baselines"
"""Where named baselines lie, from the folder that the command runs in."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def save_baseline(name: str, layers: pd.DataFrame, provenance: dict[str, Any]) -> Path:
    """Keep a Layers table as a named baseline; an older one of that name is replaced whole.

    Raises `PerfmlError` if the name is none for a file.
    """
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
