"""Make pages as ``ncu --csv`` prints them, from a few cells."""

import csv
import io

import pyarrow as pa

from perfml.readers.ncu.table import push_pops

NVTX = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
IDENTITY = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    NVTX,
    "Kernel Name",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
)
DURATION = "gpu__time_duration.sum"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
THREADS = "launch__thread_count"
BYTES = "dram__bytes_read.sum"


def table(header, units, rows, *, newline="\n"):
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator=newline)
    writer.writerows([header, units, *rows])
    return out.getvalue()


def launch(number, values, *, kernel="gemm", ranges=("iter_0", "conv_01"), process="7"):
    entries = "  ".join(f'"<default domain>:{name}' + ":none" * 6 + '"' for name in ranges)
    cell = f"{process}  {entries} " if ranges else ""
    return [
        str(number),
        process,
        "python3",
        "127.0.0.1",
        cell,
        kernel,
        "(64, 1, 1)",
        "(8, 2, 1)",
        "0",
        "9.0",
        *values,
    ]


def raw_page(columns, *, newline="\n", **launches):
    """Return a raw page of columns {metric: (unit, cells)}."""
    header = [*IDENTITY, *columns]
    units = [""] * len(IDENTITY) + [unit for unit, _ in columns.values()]
    cells = zip(*(cells for _, cells in columns.values()), strict=True)
    rows = [launch(number, values, **launches) for number, values in enumerate(cells)]
    return table(header, units, rows, newline=newline)


def push_pop(cell):
    """Return the names of the push/pop ranges in a cell, outermost first."""
    return push_pops(pa.array([cell])).path(0)
