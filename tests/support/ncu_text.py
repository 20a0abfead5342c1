"""Text such as ncu prints for people, in the layout of two of its generations."""

from __future__ import annotations

from collections.abc import Sequence

Row = tuple[str, ...]
"""Name, unit and value of a metric; with a summary minimum, maximum and average."""

SPEED: tuple[Row, ...] = (
    ("DRAM Throughput", "%", "46.63"),
    ("Duration", "us", "41.18"),
)
MORE: tuple[Row, ...] = (
    ("Achieved Occupancy", "%", "35.50"),
    ("Registers Per Thread", "register/thread", "40"),
    ("Driver Shared Memory Per Block", "Kbyte/block", "1.02"),
    ("Threads", "thread", "1,048,576"),
    ("Function Cache Configuration", "", "CachePreferNone"),
)
RULE = (
    "    OPT   Est. Local Speedup: 85.38%\n"
    "          All compute pipelines are under-utilized. Either this workload is very small\n"
    "          or it waits for memory.\n"
)


def table(rows: Sequence[Row], *, header: bool = True) -> str:
    """Return the table of a section."""
    many = len(rows[0]) == 5
    titles = ("Metric Name", "Metric Unit", *(("Minimum", "Maximum", "Average") if many else ()))
    titles = titles if many else (*titles, "Metric Value")
    shown = [titles, *rows] if header else list(rows)
    widths = [max(len(row[n]) for row in [titles, *rows]) for n in range(len(titles))]
    dashes = "    " + " ".join("-" * width for width in widths) + "\n"

    def line(row: Row) -> str:
        cells = [
            row[0].ljust(widths[0]),
            *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
        ]
        return "    " + " ".join(cells) + "\n"

    body = "".join(map(line, shown[1:] if header else shown))
    return f"{dashes}{line(titles)}{dashes}{body}{dashes}" if header else f"{dashes}{body}{dashes}"


def launch(name: str, *, header: bool = True, rule: str = RULE, rows: Sequence[Row] = SPEED) -> str:
    """Return the sections of a launch; the older layout has no header and no shape."""
    where = (
        "(8, 16, 1)x(256, 1, 1), Context 1, Stream 13, Device 0, CC 8.9"
        if header
        else "2025-Nov-06 15:20:12, Context 1, Stream 7"
    )
    part = " " if header else ", "
    gap = "\n" if header else ""
    return (
        f"  {name}{part}{where}\n"
        f"    Section: GPU Speed Of Light Throughput\n{table(rows, header=header)}{gap}{rule}\n"
        f"    Section: Launch Statistics\n{table(MORE, header=header)}\n"
    )


def summary() -> str:
    """Return two kernels of ``--print-summary per-kernel``."""
    first = (
        ("DRAM Throughput", "%", "2.62", "15.02", "11.00"),
        ("Duration", "us", "1.95", "2.27", "2.07"),
    )
    second = (
        ("DRAM Throughput", "%", "80.00", "90.00", "85.00"),
        ("Duration", "ms", "3.00", "3.10", "3.06"),
    )
    return "".join(
        f"  {name}(float *) (2, 2, 2)x(8, 8, 8), Device 0, CC 8.9, Invocations {count}\n"
        f"    Section: GPU Speed Of Light Throughput\n{table(rows)}\n"
        for name, count, rows in (("add", 4, first), ("color", 10, second))
    )


HEAD = (
    "==PROF== Connected to process 21592 (/home/someone/app)\n"
    '==PROF== Profiling "gemm" - 0: 0%....50%....100% - 43 passes\n'
    "[verify] all good (1, 2, 3)\n"
    "==PROF== Disconnected from process 21592\n"
    "[21592] app@127.0.0.1\n"
)
