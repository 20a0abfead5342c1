"""Samples of the program counter: at which source lines warps wait, and for what.

A library loaded into the program (``injected/pc_samples.cpp``) lets CUPTI sample while it runs; no
permissions of ncu's replay, no serialisation. ``lines.csv`` has a row a kernel and line.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from collectors.profilers.inject import SAMPLES, library, run_injected
from collectors.profilers.process import ProfilerError
from collectors.profilers.timing import check_ended
from perfml.util.files import write_text

LINES_FILE = "lines.csv"
SHOWN = 10
"""Lines that ``run.json`` names."""

_COLUMNS = ("kernel", "file", "line", "samples", "stalled", "reason")
_STALLED = "smsp__pcsamp_warps_issue_stalled_"
_NOT_STALLED = ("selected", "not_selected")
"""States of a sampled warp that could issue."""


@dataclass
class LineSamples:
    """Samples at one source line of a kernel.

    Attributes
    ----------
    kernel
        Demangled name.
    file, line
        Innermost inlined source line; empty and None without ``-lineinfo``.
    reasons
        Samples by CUPTI's name of what the warp waited for.
    """

    kernel: str
    file: str
    line: int | None
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def samples(self) -> int:
        """All of them."""
        return self.reasons.total()

    @property
    def stalled(self) -> int:
        """Those of warps that could not issue."""
        return sum(count for name, count in self.reasons.items() if not _issues(name))

    @property
    def reason(self) -> str:
        """What warps waited for most; empty if none waited."""
        waits = {name: count for name, count in self.reasons.items() if not _issues(name)}
        return max(waits, key=lambda name: (waits[name], name)) if waits else ""


def sample(
    program: Sequence[str],
    *,
    log: Path,
    timeout_s: float,
    launcher: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> list[LineSamples]:
    """Run a program and sample it; most stalled lines first.

    The parameters are those of `collectors.profilers.timing.trace`.

    Raises
    ------
    ProfilerError
        If CUPTI refuses, the program fails, or no sample was taken.
    """
    with TemporaryDirectory(prefix="perfml-lines-") as folder:
        ended = run_injected(
            library(SAMPLES),
            [*launcher, *program],
            log=log,
            timeout_s=timeout_s,
            env={**(env or {}), "PERFML_COUNTERS_DIR": folder},
        )
        check_ended(ended, timeout_s)
        return lines_of(sorted(Path(folder).glob("*.tsv")))


def lines_of(records: Iterable[Path]) -> list[LineSamples]:
    """Return the lines of what processes recorded, most stalled first.

    Raises a `ProfilerError` if a record is damaged or tells of a failure, or there is no sample.
    """
    found: dict[tuple[str, str, str], LineSamples] = {}
    for path in records:
        text = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if refused := [line for line in text if line.startswith("# error ")]:
            msg = "CUPTI cannot sample this program"
            cure = "Another profiler may be attached to it, or counters are forbidden here."
            raise ProfilerError(msg, found=refused[0].removeprefix("# error "), cure=cure)
        for row in (line.split("\t") for line in text if line.startswith("P\t")):
            try:
                _, kernel, _, file, line, *stalls = row
                number = int(line) if line else None
                named = (each.removeprefix(_STALLED).split("=") for each in stalls)
                # the same warps once more: those sampled while their scheduler issued nothing
                counts = {
                    name: int(count) for name, count in named if not name.endswith("_not_issued")
                }
            except ValueError as error:
                msg = "a line of the samples is damaged"
                cure = "The disk may be full; collect again."
                found_ = "\t".join(row)[:120]
                raise ProfilerError(msg, where=path.name, found=found_, cure=cure) from error
            known = found.setdefault((kernel, file, line), LineSamples(kernel, file, number))
            known.reasons.update(counts)
    if not found:
        msg = "no sample was taken"
        cure = "The program ran too briefly on the GPU: let it do more iterations."
        raise ProfilerError(msg, found="0 samples", cure=cure)
    return sorted(found.values(), key=lambda each: (-each.stalled, each.kernel, each.line or 0))


def hottest(lines: Sequence[LineSamples]) -> list[dict[str, Any]]:
    """Return the first lines as JSON values, with their share of all stalled samples."""
    whole = sum(each.stalled for each in lines) or 1
    return [{**_cells(each), "share": round(each.stalled / whole, 4)} for each in lines[:SHOWN]]


def write_lines(lines: Sequence[LineSamples], path: Path) -> None:
    """Write ``lines.csv``: a row a kernel and line, and a column a stall reason."""
    reasons = sorted({name for each in lines for name in each.reasons})
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_COLUMNS, *reasons])
    for each in lines:
        cells = ["" if value is None else value for value in _cells(each).values()]
        writer.writerow([*cells, *(each.reasons[name] for name in reasons)])
    write_text(path, text.getvalue())


def _cells(line: LineSamples) -> Mapping[str, Any]:
    return {name: getattr(line, name) for name in _COLUMNS}


def _issues(reason: str) -> bool:
    return reason in _NOT_STALLED
