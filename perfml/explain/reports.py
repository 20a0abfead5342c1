"""The reports of Nsight Compute behind what a user named, and which of their launches are meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.datasets import Input
from perfml.datasets.selection import split_place
from perfml.errors import InputError, MissingExtraError
from perfml.readers import Source, recognise
from perfml.readers.ncu import report
from perfml.readers.ncu.instructions import Wanted, instructions
from perfml.util.digest import sha256_of_file

_ENDING = ".ncu-rep"
_COLLECTED = f"metrics{_ENDING}"
"""What `perfml collect` leaves in a run's folder beside the table that is read."""


@dataclass(frozen=True)
class Report:
    """A report, and the launches of it that are meant.

    Attributes
    ----------
    source
        The report.
    run_id
        The run that was read from it.
    launches
        Their places in it, from 0; None for all.
    has_instructions
        Whether it may have counters of single instructions.
    """

    source: Source
    run_id: str
    launches: frozenset[int] | None = None
    has_instructions: bool = True


def reports_behind(given: Input, kernels: pd.DataFrame | None = None) -> list[Report]:
    """Return the reports that a table was read from; none where it was read from other files.

    `kernels` are launches of the runs that are asked for; all runs by default.
    """
    path = Path(split_place(given.name)[0])
    runs = None if kernels is None else set(kernels["run_id"].dropna().astype(str))
    files = Counter(each.get("run_id") for each in given.sources)
    found = []
    for each in given.sources:
        if runs is not None and each.get("run_id") not in runs:
            continue
        source = next(_reports_of(each, path), None)
        if source is not None:
            run_id = str(each.get("run_id"))
            # with times of another pass a launch has a row for each of that one's iterations
            alone = files[each.get("run_id")] == 1
            places = given.places.get(run_id, frozenset()) if given.places and alone else None
            found.append(Report(source, run_id, places, each.get("instructions", True)))
    return found


def _reports_of(known: Mapping[str, Any], path: Path) -> Iterator[Source]:
    """Yield the reports that one source of a table is, or has beside it."""
    inside = [path] if path.is_file() else sorted(path.rglob(f"*{_ENDING}*"))
    for each in inside:
        read = each if known.get("format") == report.NAME else each.parent / str(known.get("path"))
        same = read.name == known.get("path") and (read == each or each.name == _COLLECTED)
        with suppress(InputError, OSError):
            if same and read.is_file() and sha256_of_file(read) == known.get("sha256"):
                source = Source(each)
                if recognise(source).NAME == report.NAME:
                    yield source


def code_of(*sides: tuple[list[Report], set[str]]) -> list[dict[str, pd.DataFrame]]:
    """Return the instructions of the kernels of each side, each of the first launch meant.

    A report that is behind both sides is opened once: it may take a gigabyte of memory.
    """
    found: list[dict[str, pd.DataFrame]] = [{} for _ in sides]
    sources = {each.source.path: each.source for reports, _ in sides for each in reports}
    for path, source in sources.items():
        asked = [
            (tables, Wanted(kernels - tables.keys(), each.launches))
            for tables, (reports, kernels) in zip(found, sides, strict=True)
            for each in reports
            if each.source.path == path and each.has_instructions and kernels - tables.keys()
        ]
        # a table that was read without the package tells what it tells without it
        with suppress(MissingExtraError):
            told = instructions(source, *(wanted for _, wanted in asked)) if asked else []
            for (tables, _), code in zip(asked, told, strict=True):
                tables |= code
    return found
