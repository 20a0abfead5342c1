"""Make the damaged files of tests/data/bad from recorded exports.

``python tests/support/bad_inputs.py`` writes them again. What each must give stands in
``tests/data/bad/expected.json``, looked through by hand.
"""

from __future__ import annotations

import csv
import io
import lzma
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.support.paths import ROOT

DATA = ROOT / "tests" / "data"
BAD = DATA / "bad"

DURATION = "gpu__time_duration.sum"
NVTX = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
_COLUMNS = (
    *("ID", "Process ID", "Process Name", NVTX, "Kernel Name", "Block Size", "Grid Size", "CC"),
    *(DURATION, DRAM, "launch__thread_count"),
    "sm__warps_active.avg.pct_of_peak_sustained_active",
)


@dataclass(frozen=True)
class Base:
    """A whole export that the damage is done to.

    Attributes
    ----------
    name, suffix
        Of the files.
    data
        The export.
    kernel, time
        A kernel's name in it, and a duration as it is written.
    """

    name: str
    suffix: str
    data: bytes
    kernel: bytes
    time: bytes


def bases() -> list[Base]:
    """Return the exports, all but the timing pass small as they are."""
    nvprof = DATA / "nvprof"
    return [
        Base("ncu-raw", ".csv", _ncu_raw(), b"add", b"4.736000"),
        Base("ncu-details", ".csv", _ncu_details(), b"add(float", b"10.59"),
        Base(
            "nvprof-metrics",
            ".txt",
            (nvprof / "gtx1080_flash_attention_events.txt").read_bytes(),
            b"flash_attention_kernel",
            b"98.33%",
        ),
        Base(
            "nvprof-summary", ".txt", (nvprof / "summary.txt").read_bytes(), b"sgemm", b"800.00ms"
        ),
        Base("nvprof-trace", ".txt", (nvprof / "trace.txt").read_bytes(), b"sgemm", b"512.00us"),
        Base(
            "nvprof-trace-csv", ".csv", (nvprof / "trace.csv").read_bytes(), b"gemm", b"12.500000"
        ),
        Base(
            "nvprof-metrics-csv",
            ".csv",
            (nvprof / "metrics.csv").read_bytes(),
            b"gemm",
            b"0.850643",
        ),
        Base("timing", ".csv", _timing(), b"im2col", b"4.768"),
    ]


def _ncu_raw() -> bytes:
    rows = list(csv.reader(io.StringIO((DATA / "ncu/vectors.csv").read_text(encoding="utf-8"))))
    place = [rows[0].index(name) for name in _COLUMNS]
    return _csv([[row[n] for n in place] for row in rows[:5]])


def _ncu_details() -> bytes:
    return (DATA / "ncu/details_with_output.csv").read_bytes()


def _timing() -> bytes:
    recorded = lzma.decompress((DATA / "fake_tools/yolov4-tiny/timing.csv.xz").read_bytes())
    return (
        b"".join(line for line in recorded.splitlines(keepends=True) if len(line) < 250)[
            :1000
        ].rpartition(b"\n")[0]
        + b"\n"
    )


def _csv(rows: list[list[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()


def cases() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of every damaged file."""
    for base in bases():
        for name, data in damages(base):
            yield f"{base.name}/{name}{base.suffix}", data
    yield from _columns()
    yield from _foreign()


def damages(base: Base) -> Iterator[tuple[str, bytes]]:
    """Yield an export under every kind of damage that any text can have."""
    yield "whole", base.data
    yield from _cuts(base.data)
    text = base.data.decode()
    yield "utf-8-bom", text.encode("utf-8-sig")
    yield "utf-16-le", b"\xff\xfe" + text.encode("utf-16-le")
    yield "utf-16-be", b"\xfe\xff" + text.encode("utf-16-be")
    yield "utf-16-without-mark", text.encode("utf-16-le")
    yield "utf-16-cut", (b"\xff\xfe" + text.encode("utf-16-le"))[:-1]
    yield "windows-lines", base.data.replace(b"\n", b"\r\n")
    for name, word in (
        ("latin-1-name", "größe".encode("latin-1")),
        ("not-utf-8-name", b"\xff\xfe\x80"),
        ("escape-in-name", b"\x1b[31m"),
        ("null-in-name", b"\x00"),
    ):
        yield name, base.data.replace(base.kernel, base.kernel + word, 1)
    for name, number in (
        ("negative", b"-"),
        ("infinite", b"inf"),
        ("too-large", b"1e999"),
        ("not-a-number", b"nan"),
        ("words", b"fast"),
        ("hexadecimal", b"0x1F"),
        ("comma", b"12,5"),
    ):
        digits = re.sub(rb"[\d.]+", b"", base.time, count=1)
        changed = b"-" + base.time if number == b"-" else number + digits
        yield f"{name}-value", base.data.replace(base.time, changed, 1)
    lines = base.data.splitlines(keepends=True)
    yield "twice", base.data * 2
    yield "last-line-twice", base.data + lines[-1]
    yield "lines-backwards", b"".join(reversed(lines))
    yield "no-first-line", b"".join(lines[1:])
    yield "only-last-line", lines[-1]
    yield "stray-quote", base.data.replace(base.kernel, b'"' + base.kernel, 1)


def _cuts(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Cut at the end of every kind of line, in the middle of it, and in a cell."""
    lines = data.splitlines(keepends=True)
    at = 0
    shown = sorted({*range(min(4, len(lines))), len(lines) - 2, len(lines) - 1})
    for number, line in enumerate(lines):
        if number in shown:
            yield f"cut-in-line-{number + 1}", data[: at + len(line) // 2]
            yield f"cut-before-end-of-line-{number + 1}", data[: at + len(line) - 1]
            if number < len(lines) - 1:
                yield f"cut-after-line-{number + 1}", data[: at + len(line)]
        at += len(line)


def _columns() -> Iterator[tuple[str, bytes]]:
    """Change columns, units and locales of the raw page."""
    rows = list(csv.reader(io.StringIO(_ncu_raw().decode())))
    name, time, size = (rows[0].index(each) for each in ("Kernel Name", DURATION, DRAM))

    def changed(change: Callable[[list[list[str]]], object]) -> bytes:
        copy = [list(row) for row in rows]
        change(copy)
        return _csv(copy)

    def swap(row: list[str], left: int, right: int) -> None:
        row[left], row[right] = row[right], row[left]

    yield "ncu-raw/columns-in-another-order.csv", _csv([list(reversed(row)) for row in rows])
    yield (
        "ncu-raw/two-columns-in-another-order.csv",
        changed(lambda copy: [swap(row, name, size) for row in copy]),
    )
    yield "ncu-raw/swapped-headers.csv", changed(lambda copy: swap(copy[0], name, time))
    yield "ncu-raw/swapped-in-one-row.csv", changed(lambda copy: swap(copy[3], name, time))
    yield "ncu-raw/doubled-column.csv", _csv([[*row, row[time]] for row in rows])
    yield (
        "ncu-raw/units-change-within.csv",
        _csv([*rows[:3], rows[0], [u.replace("us", "ms") for u in rows[1]], *rows[3:]]),
    )
    yield (
        "ncu-raw/units-again.csv",
        _csv([*rows[:3], [u.replace("us", "ms") for u in rows[1]], *rows[3:]]),
    )
    yield (
        "ncu-raw/unknown-unit.csv",
        changed(lambda copy: copy[1].__setitem__(time, "fortnight")),
    )
    german = [[c.replace(".", ",") if n >= time else c for n, c in enumerate(r)] for r in rows]
    yield "ncu-raw/german.csv", _csv([*rows[:2], *german[2:]])
    yield "ncu-raw/mixed-locales.csv", _csv([*rows[:3], *german[3:]])
    yield (
        "ncu-raw/infinite-metric.csv",
        changed(lambda copy: copy[2].__setitem__(size, "inf")),
    )
    yield (
        "ncu-raw/negative-metric.csv",
        changed(lambda copy: copy[2].__setitem__(len(rows[0]) - 1, "-5")),
    )
    yield "ncu-raw/no-names.csv", _csv([[c for n, c in enumerate(r) if n != name] for r in rows])
    yield (
        "ncu-raw/no-durations.csv",
        _csv([[c for n, c in enumerate(r) if n != time] for r in rows]),
    )
    yield "ncu-raw/empty-name.csv", changed(lambda copy: copy[3].__setitem__(name, ""))
    yield (
        "ncu-raw/endless-iteration.csv",
        changed(lambda copy: copy[2].__setitem__(0, "9" * 30)),
    )


def _foreign() -> Iterator[tuple[str, bytes]]:
    """Yield what is no profile at all."""
    yield "foreign/empty.csv", b""
    yield "foreign/blank.csv", b"\n \n\r\n"
    yield "foreign/nulls.csv", b"\x00" * 4096
    yield (
        "foreign/nsys-summary.csv",
        b"Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Name\n61.0,1234,2,617.0,617.0,k\n",
    )
    yield "foreign/spreadsheet.csv", b"Name;Zeit\ngemm;1,5\n"
    yield "foreign/table.json", b'[{"kernel": "gemm", "time_us": 1.5}]\n'
    yield "foreign/page.html", b"<!doctype html><title>404</title><p>Not found\n"
    yield "foreign/program.elf", b"\x7fELF\x02\x01\x01" + b"\x00" * 9
    yield "foreign/archive.zip", b"PK\x03\x04" + b"\x00" * 26
    yield "foreign/cut.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00"
    yield "foreign/damaged.xz", b"\xfd7zXZ\x00" + bytes(range(64))
    yield "foreign/damaged.bz2", b"BZh9" + bytes(range(64))


def main() -> None:
    """Write all files."""
    for folder in BAD.iterdir() if BAD.is_dir() else ():
        if folder.is_dir():
            shutil.rmtree(folder)
    for name, data in cases():
        path = BAD / name
        assert not path.exists(), name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
