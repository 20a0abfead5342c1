"""What is fuzzed: each reader of text, with seeds from recorded files and what must hold.

A finding is any exception that is no `PerfmlError`, an error that is not one clear message, a
table that no measurement can give, or more than two seconds of processor time for one input.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import gzip
import io
import json
import lzma
import sqlite3
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from collectors.workloads.yolov4_tiny.darknet import read_cfg
from perfml.errors import PerfmlError
from perfml.ingest.layer_map import apply_layer_map, read_layer_map
from perfml.readers import (
    ReadOptions,
    Source,
    cupti_csv,
    jax_trace,
    rocpd,
    rocprof,
    timing_csv,
    torch_trace,
    trtexec,
)
from perfml.readers.frame import kernels_frame
from perfml.readers.ncu import csv_page as ncu_csv
from perfml.readers.ncu import text_page as ncu_text
from perfml.readers.ncu.launches import needed
from perfml.readers.nsys import sqlite_file as nsys_sqlite
from perfml.readers.nsys import stats_csv as nsys_stats
from perfml.readers.nvprof import csv_log as nvprof_csv
from perfml.readers.nvprof import text_log as nvprof_text
from perfml.tables import Kernels, metric_columns
from tests.support.nsys_export import GENERATIONS, Export, fill
from tests.support.rocpd import lines

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "tests" / "data"
CORPUS = Path(__file__).resolve().parent / "corpus"

SLOWEST_S = 2.0
"""Processor time that an input of at most `LARGEST` bytes may take."""

LARGEST = 100_000
_LAUNCHES = 3


class Finding(Exception):  # noqa: N818 - what a fuzzer looks for is called that
    """Something that must not happen, and is no exception of its own."""


@dataclass(frozen=True)
class Target:
    """One thing to fuzz.

    Attributes
    ----------
    run
        Reads a file; anything but a `PerfmlError` that comes out is a finding.
    seeds
        Contents to start from.
    words
        What the format is made of, for the mutations.
    suffix
        Ending of the file's name.
    """

    run: Callable[[Path], None]
    seeds: Callable[[], Iterator[bytes]]
    words: tuple[str, ...]
    suffix: str = ".csv"


_FOLDER = tempfile.TemporaryDirectory(prefix="perfml-fuzz-")


def one(name: str, data: bytes) -> bool:
    """Give one input to a target; tell whether it was accepted.

    Raises
    ------
    Exception
        The finding.
    """
    target = TARGETS[name]
    path = Path(_FOLDER.name) / f"input{target.suffix}"
    path.write_bytes(data)
    began = time.process_time()
    accepted = True
    try:
        target.run(path)
    except PerfmlError as error:
        accepted = False
        _check_error(error)
    took = time.process_time() - began
    if len(data) <= LARGEST and took > SLOWEST_S:
        msg = f"{took:.1f} s for {len(data)} bytes"
        raise Finding(msg)
    return accepted


def _check_error(error: PerfmlError) -> None:
    lines = str(error).splitlines()
    if not 1 <= len(lines) <= 2 or not error.what or len(str(error)) > 4000:
        msg = f"not one clear message: {str(error)[:500]!r}"
        raise Finding(msg)
    if not str(error).replace("\n", "").isprintable():
        msg = f"control characters in a message: {str(error)[:500]!r}"
        raise Finding(msg)


def check_kernels(kernels: Kernels) -> None:
    """Raise `Finding` unless a Kernels table holds what a measurement can give."""
    frame = kernels.frame
    if frame.empty:
        msg = "no launches, and no error"
        raise Finding(msg)
    numbers = frame[["time_us", *metric_columns(frame)]].to_numpy(dtype=float)
    if np.isinf(numbers).any():
        msg = "an infinite number"
        raise Finding(msg)
    if (frame["time_us"].to_numpy(dtype=float) < 0).any():
        msg = "a negative time"
        raise Finding(msg)
    json.dumps(kernels.provenance, allow_nan=False)
    if not all(isinstance(text, str) and text for text in kernels.warnings):
        msg = f"a warning that says nothing: {kernels.warnings!r}"
        raise Finding(msg)


def _reader(module) -> Callable[[Path], None]:  # noqa: ANN001
    def run(path: Path) -> None:
        source = Source(path)
        module.recognises(source)
        # Every other input is read with the profiler's own columns: both cost time.
        raw = bool(zlib.crc32(source.data) & 1)
        check_kernels(module.read(source, ReadOptions(raw=raw)))

    return run


def _database(module, path: Path) -> None:  # noqa: ANN001
    """Make a database of lines of SQL, those that are none left out, and read it."""
    script = path.read_bytes().decode("utf-8", "replace")
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE one_at_least(x)")
        connection.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in _WRITES else sqlite3.SQLITE_DENY
        )
        for line in script.split("\n"):
            with contextlib.suppress(sqlite3.Error, sqlite3.Warning, ValueError):
                connection.execute(line)
        connection.commit()
        connection.set_authorizer(None)
        database = path.with_suffix(".sqlite")
        database.write_bytes(connection.serialize())
    _reader(module)(database)


def _layer_map(path: Path) -> None:
    found = read_layer_map(path)
    apply_layer_map(_LAUNCHED.copy(), found)


def _cfg(path: Path) -> None:
    from collectors.workloads.yolov4_tiny.network import build_network

    build_network(read_cfg(path))


def _text(name: str) -> bytes:
    path = RECORDED / name
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def _ncu_seeds() -> Iterator[bytes]:
    for name in ("vectors.csv", "conv_03_range.csv", "yolov4tiny_cudnn_b1_fp32.csv.xz"):
        yield _narrowed(_text(f"ncu/{name}"))
    details = _text("ncu/details_with_output.csv")
    yield details
    yield details.replace(b'"', b"").replace(b", ", b" ")


def _narrowed(page: bytes) -> bytes:
    """Keep a few launches of a raw page, and of its columns those that perfml reads."""
    rows = list(csv.reader(io.StringIO(page.decode())))
    wanted = needed()
    chosen = [n for n, name in enumerate(rows[0]) if "__" not in name or name in wanted]
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([row[n] for n in chosen] for row in rows[: 2 + _LAUNCHES])
    return out.getvalue().encode()


def _nvprof_seeds(ending: str) -> Callable[[], Iterator[bytes]]:
    def seeds() -> Iterator[bytes]:
        for path in sorted((RECORDED / "nvprof").glob(f"*.{ending}")):
            yield path.read_bytes()

    return seeds


def _timing_seeds() -> Iterator[bytes]:
    recorded = lzma.decompress((RECORDED / "fake_tools/yolov4-tiny/timing.csv.xz").read_bytes())
    yield b"".join(recorded.splitlines(keepends=True)[:12])
    yield b'iteration,layer,kernel,time_us\n0,a,"f<1, 2>(""x"")",1.5\n1,,g,2e-3\n'


def _counters_seeds() -> Iterator[bytes]:
    page = _text("cupti/h100_repeats.csv").splitlines(keepends=True)
    yield b"".join(page)
    comments = [line for line in page if line.startswith(b"#")]
    yield b"".join([*comments, *page[len(comments) : len(comments) + 1 + _LAUNCHES]])


_DASHES = "    ------------------- ----------- ------------\n"
_PRINTED = (
    "==PROF== Connected to process 7 (/home/app)\n"
    "  gemm<1>(float *, int) (8, 16, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 9.0\n"
    f"    Section: GPU Speed Of Light Throughput\n{_DASHES}"
    f"    Metric Name         Metric Unit Metric Value\n{_DASHES}"
    "    DRAM Throughput               %        46.63\n"
    f"    Duration                     us        41.18\n{_DASHES}\n"
    "    OPT   Est. Local Speedup: 85.38%\n          Waits for memory.\n\n"
    "  add, 2025-Nov-06 15:20:12, Context 1, Stream 7\n"
    f"    Section: Launch Statistics\n{_DASHES}"
    f"    Threads                  thread    1,048,576\n{_DASHES}"
    "    WRN   Too few.\n"
)
_SUMMED = (
    "  add(int) (2, 2, 2)x(8, 8, 8), Device 0, CC 8.9, Invocations 4\n    Section: Occupancy\n"
    "    ------------------ ----------- ------- ------- -------\n"
    "    Metric Name        Metric Unit Minimum Maximum Average\n"
    "    ------------------ ----------- ------- ------- -------\n"
    "    Duration                    us    1.95    2.27    2.07\n"
    "    ------------------ ----------- ------- ------- -------\n"
)


def _printed_seeds() -> Iterator[bytes]:
    yield _PRINTED.encode()
    yield _SUMMED.encode()
    yield b"\xff\xfe" + _PRINTED.encode("utf-16-le")


def _trace_seeds() -> Iterator[bytes]:
    """Yield traces of a few launches, one event a line so that mutations meet whole events."""
    recorded = RECORDED / "torch_trace/yolov4tiny_cublas_fp32_b1_h200.json.gz"
    events = json.loads(gzip.decompress(recorded.read_bytes()))["traceEvents"]
    ranges = [event for event in events if event["cat"] == "user_annotation"][:3]
    kernels = [event for event in events if event["cat"] == "kernel"][3 : 3 + _LAUNCHES]
    for kernel in kernels:
        kernel["name"] = kernel["name"][:80]
        kernel["args"] |= {"device": 0, "registers per thread": 32, "shared memory": 1024}
    numbers = {event["args"]["correlation"] for event in kernels}
    calls = [
        event
        for event in events
        if event["cat"] == "cuda_runtime" and event["args"]["correlation"] in numbers
    ]
    steps = [{**ranges[0], "name": "ProfilerStep#2"}, {**ranges[1], "cat": "cpu_op"}]
    modules = [{**ranges[1], "cat": "python_function", "name": "nn.Module: Conv2d_0"}]
    copies = [{**kernels[0], "cat": "gpu_memcpy", "name": "Memcpy DtoH"}]
    for chosen in (
        [*ranges, *calls, *kernels],
        [*steps, *calls, *kernels, *copies],
    ):
        lines = ",\n".join(json.dumps(event) for event in [*chosen, *modules])
        yield f'{{"schemaVersion": 1,\n"traceEvents": [\n{lines}\n]}}\n'.encode()


def _jax_seeds() -> Iterator[bytes]:
    yield gzip.decompress((RECORDED / "deployed/jax.trace.json.gz").read_bytes())


def _rocprof_seeds() -> Iterator[bytes]:
    sizes = [f"{kind}_Size_{axis}" for kind in ("Workgroup", "Grid") for axis in "XYZ"]
    names = ("Agent_Id", "Queue_Id", "Kernel_Name", "Start_Timestamp", "End_Timestamp")
    head = ",".join(f'"{name}"' for name in (*names, "LDS_Block_Size", "VGPR_Count", *sizes))
    rows = [f'"Agent 4",1,"add(float*, int)",{k}000,{k}700,0,8,64,1,1,1024,1,1' for k in (1, 2)]
    yield "\n".join([head, *rows, ""]).encode()
    yield (
        b"Dispatch_Id,Agent_Id,Grid_Size,Kernel_Name,VGPR_Count,Counter_Name,Counter_Value,"
        b"Start_Timestamp,End_Timestamp\n"
        b'1,4,1024,"add(int)",8,SQ_WAVES,16.0,100,900\n1,4,1024,"add(int)",8,FETCH,2e3,100,900\n'
    )
    yield (
        b"Dispatch_ID,GPU_ID,Grid_Size,Arch_VGPR,Kernel_Name,Start_Timestamp,End_Timestamp,"
        b'SQ_WAVES\n0,4,1024,12,"add(int)",100,900,16.0\n'
    )


def _trtexec_seeds() -> Iterator[bytes]:
    yield (
        b'[\n  { "count" : 100 }\n'
        b', { "name" : "conv + relu", "timeMs" : 31.4, "averageMs" : 0.314, "percentage" : 60 }\n'
        b', { "name" : "pool", "timeMs" : 20.0, "percentage" : 40 }\n]\n'
    )
    yield (
        b'{"Layers": [{\n  "Name": "conv + relu",\n  "LayerType": "CaskConvolution",\n'
        b'  "TacticName": "sm75_xmma_fprop"\n},\n{\n  "Name": "pool",\n'
        b'  "LayerType": "TiledPooling"\n},\n"cast"],\n"Bindings": ["input"]}\n'
    )


_TRACED = (
    "Processing [run.sqlite] with [cuda_gpu_trace.py]...\n"
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),"
    "DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
    "1000,500,3,,,,,,,,,,4.194,6337.593,Pinned,Device,GPU (0),1,,7,[CUDA memcpy HtoD]\n"
    '1700,41180,4,8,16,1,256,1,1,96,0.033,0.000,,,,,GPU (0),1,,7,"void gemm<1>(float *, int)"\n'
    "50000,2500,5,64,1,1,128,1,1,16,0.000,0.000,,,,,GPU (0),1,,13,add\n"
)
_KERNEL_SUMS = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    '94.3,82360,2,41180.0,41180.0,41180,41180,0.0,"void gemm<1>(float *, int)"\n'
    "5.7,5000,2,2500.0,2500.0,2400,2600,100.0,add\n"
)


def _stats_seeds() -> Iterator[bytes]:
    yield _TRACED.encode()
    yield _KERNEL_SUMS.encode()


def _nsys_seeds() -> Iterator[bytes]:
    for generation in GENERATIONS:
        export = Export(Path(":memory:"), generation)
        fill(export)
        lines = [" ".join(statement.split()) for statement in export.connection.iterdump()]
        export.connection.close()
        yield "\n".join(lines).encode()


def _rocpd_seeds() -> Iterator[bytes]:
    yield "\n".join(lines()).encode()


def _layer_map_seeds() -> Iterator[bytes]:
    for kernels in (
        '["im2col*", "*gemm*", "activate?"]',
        '["*gemm* +", "[!a-c]* ?", "* *"]',
        "['''x''', \"\\u0061\"]",
    ):
        for skip in ("", 'skip = ["*memset*"]\n'):
            layers = [f'[[layer]]\nname = "conv_{n}"\nkernels = {kernels}\n' for n in (1, 2)]
            yield (skip + "".join(layers)).encode()


def _cfg_seeds() -> Iterator[bytes]:
    yield _text("darknet/every-layer.cfg")
    network = ROOT / "collectors/workloads/yolov4_tiny/yolov4-tiny.cfg"
    yield network.read_bytes()


_LAUNCHED = kernels_frame(
    pd.DataFrame(
        {
            "kernel": ["im2col<1>(float*)", "void ns::gemm<float>(int)", "x", "a", "memset"] * 12,
            "time_us": 1.0,
        }
    ),
    [()] * 60,
)

_NCU_WORDS = (
    *('"ID","Process ID",', '"Metric Value"', "gpu__time_duration.sum", "==PROF== ", "==ERROR== "),
    *("us", "Kbyte", "Gbyte/second", "1,234.5", "1.234,5", "-1", "inf", "-nan", "n/a", "(1, 2, 3)"),
    *('" <default domain>:iter_0:none:none:none:none:none:none"', "iter_99999999999999999999"),
)
_NVPROF_WORDS = (
    *("==1== Metric result:", "==1== Profiling result:", "==1== NVPROF is profiling process 1,"),
    *("======== Warning: ", "Invocations", "Kernel: ", 'Device "', "Mid (5)", "98.76%", "1.5GB/s"),
    *("<OVERFLOW>", "1e308", "-1", "inf", "nan%", "999999999999999", "(1 2 3)", "1e+999"),
    *("API calls:", "NVTX result:", "GPU activities:", "1.5ms", "-1us", "Regs: x: "),
)

_WRITES = frozenset(
    {
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_UPDATE,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_TRANSACTION,
        sqlite3.SQLITE_CREATE_INDEX,
    }
)
"""What a line of SQL may do: no other file, no query that runs for ever."""

TARGETS: dict[str, Target] = {
    "ncu_csv": Target(_reader(ncu_csv), _ncu_seeds, _NCU_WORDS),
    "ncu_text": Target(
        _reader(ncu_text),
        _printed_seeds,
        (
            *(
                "    Section: ",
                ", Context 1, Stream 7",
                ", Invocations 99",
                "    OPT   ",
                "(!) nan",
            ),
            *(_DASHES, "1.234,5", "Duration", "us", "Mbyte", "(1, 2, 3)x(4, 5, 6)", "==ERROR== "),
        ),
        ".txt",
    ),
    "nsys_stats": Target(
        _reader(nsys_stats),
        _stats_seeds,
        ("Start (ns),Duration (ns),", "Time (%),Total Time (us),", "GridXYZ", "1e400", "nan", "-1"),
    ),
    "nvprof_text": Target(_reader(nvprof_text), _nvprof_seeds("txt"), _NVPROF_WORDS, ".txt"),
    "nvprof_csv": Target(_reader(nvprof_csv), _nvprof_seeds("csv"), _NVPROF_WORDS),
    "timing_csv": Target(
        _reader(timing_csv),
        _timing_seeds,
        ("iteration,layer,kernel,time_us", "inf", "-1", "1e400", "nan", '""', "0x10", "1_0", "NA"),
    ),
    "cupti_csv": Target(
        _reader(cupti_csv),
        _counters_seeds,
        ("# perfml counters 1", "# device: ", "\\/", "iter_0/conv_01", "inf", "-1", "nan", '""'),
    ),
    "torch_trace": Target(
        _reader(torch_trace),
        _trace_seeds,
        (
            *('"ts": 1e300', '"dur": -1', '"dur": NaN', '"cat": "kernel"', '"cat": "cpu_op"', "{}"),
            *(
                '"args": []',
                '"correlation": "1"',
                '"grid": "[1, 2, 3]"',
                '"pid": null',
                "[",
                "9e99",
            ),
        ),
        ".json",
    ),
    "jax_trace": Target(
        _reader(jax_trace),
        _jax_seeds,
        ('"hlo_op":', '"kernel_details": "regs:', '"ts": -1e99', '"/device:GPU:0"', "null", "NaN"),
        ".json",
    ),
    "rocprofv3_csv": Target(
        _reader(rocprof), _rocprof_seeds, ('"Agent ', "1e400", "-1", '""', "99999999999999999")
    ),
    "trtexec_profile": Target(
        _reader(trtexec),
        _trtexec_seeds,
        (
            '"averageMs" : ',
            '"count" : 0',
            '"name" : ""',
            "null",
            "-1",
            "1e999",
            "[[",
            '"Layers": 5',
        ),
        ".json",
    ),
    "rocpd": Target(
        functools.partial(_database, rocpd),
        _rocpd_seeds,
        ("INSERT INTO rocpd_kernel_dispatch", "NULL", "9223372036854775807", "-1", "1.5", "'x'"),
        ".sql",
    ),
    "nsys_sqlite": Target(
        functools.partial(_database, nsys_sqlite),
        _nsys_seeds,
        (
            *("INSERT INTO StringIds VALUES(", "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "NULL"),
            *("9223372036854775807", "-1", "1.5", "'x'", "X'00'", "59", "60", "INTEGER", "TEXT"),
        ),
        ".sql",
    ),
    "layer_map": Target(
        _layer_map,
        _layer_map_seeds,
        ("[[layer]]", "name = ", "kernels = [", "skip = [", '"* *"', '"* +"', "[!a]", "'''", "{}"),
        ".toml",
    ),
    "darknet_cfg": Target(
        _cfg,
        _cfg_seeds,
        (
            *("[net]", "[convolutional]", "[yolo]", "[route]", "layers=-1", "from=-3", "filters="),
            *("groups=", "size=", "stride=", "padding=", "mask=", "99999999999999999999", "-1"),
        ),
        ".cfg",
    ),
}
