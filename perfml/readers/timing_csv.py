"""Read the timing pass: kernel durations without counters, as ``perfml collect`` writes them.

Columns ``iteration, layer, kernel, time_us`` and, where known, ``grid``, ``block`` and
``start_us``. ``layer`` is empty for a launch outside every range.
"""

from __future__ import annotations

import io

import pandas as pd

from perfml.errors import InputError
from perfml.readers._frame import kernels_frame
from perfml.readers._options import ReadOptions
from perfml.readers._source import Source
from perfml.tables import Kernels

NAME = "timing-csv"

_REQUIRED = ("iteration", "layer", "kernel", "time_us")
_OPTIONAL = ("grid", "block", "start_us")


def recognises(source: Source) -> bool:
    """Tell whether the first line is the timing pass's header."""
    first = source.head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].strip()
    return first.startswith(b",".join(name.encode() for name in _REQUIRED))


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read a timing CSV; metrics are absent from the table.

    Raises
    ------
    InputError
        If a row is cut, a number is no number, or there is no launch.
    """
    del options
    text = source.text()
    try:
        rows = pd.read_csv(io.StringIO(text), dtype="string", keep_default_na=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        msg = "not a timing CSV"
        raise InputError(
            msg, where=str(source.path), found=str(error), cure="Collect it again."
        ) from error
    if not text.endswith("\n"):
        msg = "the last line is cut"
        where = f"{source.path}:{text.count(chr(10)) + 1}"
        raise InputError(msg, where=where, cure="Copy it again; a whole one ends in a newline.")
    unknown = [name for name in rows.columns if name not in {*_REQUIRED, *_OPTIONAL}]
    if unknown or rows.empty:
        msg = "not a timing CSV" if unknown else "no launch in this timing CSV"
        found = f"column {unknown[0]!r}" if unknown else "only a header"
        raise InputError(msg, where=str(source.path), found=found, cure="Collect it again.")
    iteration = _numbers(rows, "iteration", source)
    launches = pd.DataFrame(
        {"kernel": rows["kernel"], "time_us": _numbers(rows, "time_us", source)}
    )
    for name in ("grid", "block"):
        if name in rows.columns:
            launches[name] = rows[name].replace("", pd.NA)
    launches["time_source"] = "timing"
    ranges = [
        [f"iter_{int(number)}", *([layer] if layer else [])]
        for number, layer in zip(iteration, rows["layer"], strict=True)
    ]
    return Kernels(
        kernels_frame(launches, ranges),
        {
            "path": source.path.name,
            "sha256": source.sha256,
            "format": NAME,
            "tool": "timing pass without counters",
            "iterations": int(iteration.nunique()),
        },
    )


def _numbers(rows: pd.DataFrame, name: str, source: Source) -> pd.Series[float]:
    numbers = pd.to_numeric(rows[name], errors="coerce").astype("float64")
    bad = numbers.isna() | (numbers < 0)
    if bad.any():
        row = int(bad.to_numpy().argmax())
        msg = f"column {name} needs a number that is not negative"
        raise InputError(
            msg,
            where=f"{source.path}, data row {row + 1}",
            found=repr(str(rows[name].iloc[row]))[:80],
            cure="Collect the timing again.",
        )
    return numbers
