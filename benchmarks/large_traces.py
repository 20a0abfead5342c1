"""Reading large traces: seconds a GB and memory of perfml beside its neighbours.

A recorded trace of PyTorch is written again and again into one file, each time later and with new
ids, until the file is large enough: as Kineto writes it, and as the tables of ``nsys export --type
sqlite`` (operators become NVTX ranges, as with ``emit_nvtx``). Each side reads the same file in a
process of its own, in turns.

- ``perfml``: `perfml.readers.read`, which is the reading part of ``perfml report FILE``.
- ``hta``: HolisticTraceAnalysis' own parser, ``json``: its way by hand, `json.load` and a frame.
- ``nsys-ai``: its ``Profile`` and the rows of all kernels, ``sqlite3``: the same by hand.

Run: ``python -m benchmarks.large_traces [--gib 1] [--rivals PYTHON] [--side NAME ...]``; PYTHON is
of an environment with ``HolisticTraceAnalysis`` and ``nsys-ai``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT.parent / "shared/data/pairs_2026_11_25/torch/p05_slow.json.gz"
FOLDER = Path("/tmp/perfml-large")  # noqa: S108 - large, and made anew when it is gone
GIB = 1 << 30
_STEP_US = 300_000
"""The recorded trace lasts 274 ms."""
_SHIFTED = re.compile(
    r'"(ts|correlation|External id|Ev Idx|id|Sequence number)": (\d+)(\.\d+)?|ProfilerStep#(\d+)'
)
_TABLES = """
CREATE TABLE StringIds(id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE EXPORT_META_DATA(name TEXT NOT NULL, value TEXT);
CREATE TABLE TARGET_INFO_GPU(vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT,
  cuDevice INTEGER, computeMajor INTEGER, computeMinor INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
  returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
  shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER,
  registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
  gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
  blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
  dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL,
  localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER,
  graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
  globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE NVTX_EVENTS(start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
  rangeId INTEGER, category INTEGER, color INTEGER, text TEXT, globalTid INTEGER,
  endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
"""
_PROCESS = (1 << 56) | (4321 << 24)


def kineto(recorded: Path, out: Path, size: int) -> None:
    """Write a trace of at least `size` bytes, as PyTorch writes it."""
    text = gzip.decompress(recorded.read_bytes()).decode()
    head, body = text.split('"traceEvents": [', 1)
    body, _, tail = body.rpartition("]")
    kept = [part for part in re.split(r",\n(?=  \{)", body) if '"ph": "M"' not in part]
    body = ",\n".join(part for part in kept if '"Spans"' not in part and '"Record Win' not in part)
    with out.open("w") as stream:
        stream.write(head + '"traceEvents": [')
        for turn in range(1 << 20):
            stream.write((",\n" if turn else "") + _SHIFTED.sub(_shift(turn), body))
            if stream.tell() >= size:
                break
        stream.write("]" + tail)


def _shift(turn: int) -> Callable[[re.Match[str]], str]:
    later, apart = turn * _STEP_US, turn * 10_000_000

    def shifted(match: re.Match[str]) -> str:
        name, whole, part, step = match.groups()
        if step is not None:
            return f"ProfilerStep#{int(step) + 1000 * turn}"
        added = later if name == "ts" else apart if int(whole) else 0
        return f'"{name}": {int(whole) + added}{part or ""}'

    return shifted


def nsys(recorded: Path, out: Path, size: int) -> None:
    """Write an export of at least `size` bytes, in the tables of Nsight Systems."""
    out.unlink(missing_ok=True)
    events = json.loads(gzip.decompress(recorded.read_bytes()))["traceEvents"]
    events = [event for event in events if event.get("ph") == "X" and "args" in event]
    connection = sqlite3.connect(out)
    connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _TABLES)
    strings: dict[str, int] = {}
    for table, row in _rows(events, strings):
        marks = ", ".join("?" * len(row))
        connection.execute(f"INSERT INTO {table} VALUES ({marks})", row)  # noqa: S608
    connection.executemany(
        "INSERT INTO StringIds VALUES (?, ?)", [(n, s) for s, n in strings.items()]
    )
    connection.execute("INSERT INTO EXPORT_META_DATA VALUES ('EXPORT_PRODUCT_VERSION', '2025.5.1')")
    connection.execute("INSERT INTO TARGET_INFO_GPU VALUES (1, 0, 'NVIDIA H100', 0, 9, 0)")
    connection.commit()
    once = os.path.getsize(out)
    turns = -(-size // once) - 1
    shifts = {"start": _STEP_US * 1000, "end": _STEP_US * 1000, "correlationId": 10_000_000}
    numbers = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < ?)"
    for table in ("RUNTIME", "KERNEL", "MEMCPY", "NVTX_EVENTS"):
        full = table if table == "NVTX_EVENTS" else f"CUPTI_ACTIVITY_KIND_{table}"
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({full})")]
        shifted = [
            f'"{name}" + n * {shifts[name]}' if name in shifts else f'"{name}"' for name in columns
        ]
        if table == "NVTX_EVENTS":
            step = "'step ' || (substr(text, 6) + n * 1000)"
            step = f"CASE WHEN text LIKE 'step %' THEN {step} ELSE text END"
            shifted[columns.index("text")] = step
        query = f"{numbers} INSERT INTO {full} SELECT {', '.join(shifted)} FROM t, {full} AS r"  # noqa: S608
        query += " WHERE r.rowid <= ? ORDER BY n, r.rowid"
        last = connection.execute(f"SELECT MAX(rowid) FROM {full}").fetchone()[0]  # noqa: S608
        connection.execute(query, (turns, last))
        connection.commit()
    connection.close()


def _rows(
    events: list[dict[str, Any]], strings: dict[str, int]
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    origin = min(event["ts"] for event in events)
    for event in sorted(events, key=lambda event: event["ts"]):
        arguments, kind, name = event["args"], event["cat"], event["name"]
        start = round((event["ts"] - origin) * 1e3) + 10**9
        end = start + round(event["dur"] * 1e3)
        thread = _PROCESS | (int(event["tid"]) if str(event["tid"]).isdigit() else 0)
        correlation = arguments.get("correlation")
        number = strings.setdefault(name, len(strings))
        if kind in ("cuda_runtime", "cuda_driver"):
            yield (
                "CUPTI_ACTIVITY_KIND_RUNTIME",
                (start, end, 1, thread, correlation, number, 0, None),
            )
        elif kind == "kernel":
            place = (start, end, 0, 1, event["tid"], correlation, _PROCESS, number, number, number)
            sizes = (*arguments["grid"], *arguments["block"], 0, arguments["shared memory"])
            more = (arguments["registers per thread"], *sizes, 0, 0, correlation, 102400, None, 0)
            yield "CUPTI_ACTIVITY_KIND_KERNEL", (*place, 1, 0, *more)
        elif kind == "gpu_memcpy":
            row = (
                start,
                end,
                0,
                1,
                event["tid"],
                correlation,
                _PROCESS,
                arguments["bytes"],
                8,
                2,
                2,
            )
            yield "CUPTI_ACTIVITY_KIND_MEMCPY", row
        elif kind in ("user_annotation", "cpu_op"):
            name = name.replace("ProfilerStep#", "step ")
            row = (start, end, 59, None, None, None, name, thread, None, None, 0)
            yield "NVTX_EVENTS", row


_SIDES = {
    "kineto": {
        "perfml": "from perfml.readers import read; print(len(read(path).frame))",
        "json": (
            "import json, pandas as pd; events = json.load(open(path))['traceEvents'];"
            "frame = pd.DataFrame(events); print((frame['cat'] == 'kernel').sum())"
        ),
        "hta": (
            "from hta.common.trace_parser import parse_trace_dataframe;"
            "from hta.configs.parser_config import ParserConfig;"
            "print(len(parse_trace_dataframe(path, ParserConfig())[1]))"
        ),
    },
    "nsys": {
        "perfml": "from perfml.readers import read; print(len(read(path).frame))",
        "sqlite3": (
            "import sqlite3; c = sqlite3.connect(path); c.row_factory = sqlite3.Row;"
            "names = dict(c.execute('SELECT id, value FROM StringIds'));"
            "rows = [dict(r) for r in c.execute('SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL k "
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId')];"
            "ranges = c.execute('SELECT * FROM NVTX_EVENTS').fetchall(); print(len(rows))"
        ),
        "nsys-ai": (
            "from nsys_ai import profile; opened = profile.open(path);"
            "ever = (0, 1 << 62); kernels = opened.kernels(None); threads = opened.gpu_threads(0);"
            "calls = opened.runtime_index(threads, ever);"
            "ranges = opened.nvtx_events(threads, ever); print(len(kernels))"
        ),
    },
}


def measured(python: str, code: str, path: Path) -> tuple[float, float, float, str]:
    """Return seconds, processor seconds and GiB of a process, and what it printed last."""
    began = time.perf_counter()
    command = [python, "-c", f"path = {str(path)!r}\n{code}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert child.stdout is not None
    printed = child.stdout.read().decode().split()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - began
    cpu, gib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / (1 << 20)
    return seconds, cpu, gib, printed[-1] if status == 0 and printed else f"status {status}:"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--recorded", type=Path, default=RECORDED)
    parser.add_argument("--rivals", default=sys.executable)
    parser.add_argument("--side", action="append")
    parser.add_argument("--turns", type=int, default=1)
    given = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for form, make in (("kineto", kineto), ("nsys", nsys)):
        path = FOLDER / f"{form}-{given.gib}.{'json' if form == 'kineto' else 'sqlite'}"
        if not path.exists():
            make(given.recorded, path, round(given.gib * GIB))
        size = path.stat().st_size / 1e9
        for _ in range(given.turns):
            for side, code in _SIDES[form].items():
                if given.side and f"{form}:{side}" not in given.side:
                    continue
                python = sys.executable if side == "perfml" else given.rivals
                seconds, cpu, gib, rows = measured(python, code, path)
                each = f"{seconds / size:6.1f} s/GB  {cpu / size:6.1f} processor s/GB"
                print(
                    f"{form:7} {side:8} {size:.2f} GB  {each}  {gib:5.2f} GiB  {rows} rows",
                    flush=True,
                )


if __name__ == "__main__":
    main()
