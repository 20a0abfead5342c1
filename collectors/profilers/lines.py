"""Samples of the program counter: for which source lines warps wait, and where.

A library loaded into the program (``injected/pc_samples.cpp``) lets CUPTI sample while it runs; no
permissions of ncu's replay, no serialisation. ``lines.csv`` has a row a kernel and line.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collectors.profilers.inject import SAMPLES, library, run_injected
from collectors.profilers.process import ProfilerError
from collectors.profilers.stall_lines import Code, SampledInstruction, StallLine, stall_lines
from collectors.profilers.timing import check_ended
from perfml.util.files import temporary_folder, write_text
from perfml.util.machine_code import BROKEN, Program

LINES_FILE = "lines.csv"
SHOWN = 10
"""Lines that ``run.json`` names."""

_COLUMNS = ("kernel", "file", "line", "called_at", "stalled", "reason", "waits_at", "sampled")
_STALLED = "smsp__pcsamp_warps_issue_stalled_"


def sample(
    program: Sequence[str],
    *,
    log: Path,
    timeout_s: float,
    launcher: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> list[StallLine]:
    """Run a program and sample it; most stalled lines first.

    The parameters are those of `collectors.profilers.timing.trace`.

    Raises `ProfilerError` if CUPTI refuses, the program fails, or no sample was taken.
    """
    with temporary_folder("lines") as folder:
        ended = run_injected(
            library(SAMPLES),
            [*launcher, *program],
            log=log,
            timeout_s=timeout_s,
            env={**(env or {}), "PERFML_COUNTERS_DIR": str(folder)},
        )
        check_ended(ended, timeout_s)
        return lines_of(sorted(folder.glob("*.tsv")))


def lines_of(records: Iterable[Path]) -> list[StallLine]:
    """Return the lines of what processes recorded, most stalled first.

    Raises a `ProfilerError` if a record is damaged or tells of a failure, or there is no sample.
    """
    sampled: list[SampledInstruction] = []
    code: dict[str, Code] = {}
    programs: dict[Path, Program | None] = {}
    for path in records:
        text = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if refused := [line for line in text if line.startswith("# error ")]:
            msg = "CUPTI cannot sample this program"
            cure = "Another profiler may be attached to it, or counters are forbidden here."
            raise ProfilerError(msg, found=refused[0].removeprefix("# error "), cure=cure)
        for row in (line.split("\t") for line in text if line.startswith("P\t")):
            try:
                _, kernel, function, checksum, offset, *stalls = row
                sampled.append(SampledInstruction(kernel, int(offset), _reasons(stalls)))
            except ValueError as error:
                msg = "a line of the samples is damaged"
                cure = "The disk may be full; collect again."
                found = "\t".join(row)[:120]
                raise ProfilerError(msg, where=path.name, found=found, cure=cure) from error
            if kernel not in code:
                cubin = path.parent / f"{checksum}.cubin"
                if cubin not in programs:
                    programs[cubin] = _program(cubin)
                if known := _code(programs[cubin], function):
                    code[kernel] = known
    if not sampled:
        msg = "no sample was taken"
        cure = "The program ran too briefly on the GPU: let it do more iterations."
        raise ProfilerError(msg, found="0 samples", cure=cure)
    return stall_lines(sampled, code)


def _reasons(cells: Sequence[str]) -> Counter[str]:
    named = (cell.removeprefix(_STALLED).split("=") for cell in cells)
    # the same warps once more: those sampled while their scheduler issued nothing
    return Counter({name: int(count) for name, count in named if not name.endswith("_not_issued")})


def _program(cubin: Path) -> Program | None:
    """Return the code of kernels; None where it has no lines, and was not kept."""
    try:
        return Program(memoryview(cubin.read_bytes()))
    except (OSError, *BROKEN):
        return None


def _code(program: Program | None, function: str) -> Code | None:
    try:
        if program is not None and function in program.functions:
            calls = dict(program.calls({function}))
            return Code(program.functions[function], calls.get(function, {}))
    except BROKEN:
        pass
    return None


def hottest(lines: Sequence[StallLine]) -> list[dict[str, Any]]:
    """Return the first lines as JSON values, with their share of all stalled samples."""
    whole = sum(line.stalled for line in lines) or 1
    return [{**_cells(line), "share": round(line.stalled / whole, 4)} for line in lines[:SHOWN]]


def write_lines(lines: Sequence[StallLine], path: Path) -> None:
    """Write ``lines.csv``: a row a kernel and line, and a column a stall reason."""
    reasons = sorted({name for line in lines for name in line.waiting})
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_COLUMNS, *reasons])
    for line in lines:
        cells = ["" if value is None else value for value in _cells(line).values()]
        writer.writerow([*cells, *(round(line.waiting[name]) for name in reasons)])
    write_text(path, text.getvalue())


def _cells(line: StallLine) -> Mapping[str, Any]:
    return {
        "kernel": line.kernel,
        "file": line.file,
        "line": line.line,
        "called_at": line.called_at,
        "stalled": round(line.stalled),
        "reason": line.reason,
        "waits_at": line.elsewhere,
        "sampled": round(line.sampled),
    }
