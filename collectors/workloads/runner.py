"""Run one workload under one backend: ``python -m collectors.workloads.runner NAME [options]``.

Four modes: ``profile`` marks the measured iterations for a counter profiler around this process,
``timing`` measures every kernel without counters, ``counters`` repeats iterations as long as the
injected profiler (`collectors.profilers.cupti`) has something to measure, ``check`` compares with
the reference. Where that takes little (`Workload.check_first`), ``timing`` and ``counters`` do it
first, and measure nothing that is wrong.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import gzip
import io
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from collectors.workloads.base import CheckRow, Ladder, parse_settings
from collectors.workloads.environment import environment
from perfml.errors import InputError, PerfmlError
from perfml.util.files import replacing, write_text

from . import Options, Session, workload, workloads
from .ranges import NvtxRanges, Ranges, RecordedRanges
from .trace import COLUMNS, TimedKernel, read_trace
from .turns import wait_for_turn

MODES = ("profile", "timing", "counters", "check")
_MOST_ITERATIONS = 10_000
"""Beyond it whoever measures will never have enough."""
RUN_FILE, TIMING_FILE, TRACE_FILE = "run.json", "timing.csv", "trace.json.gz"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m collectors.workloads.runner",
        description="Run a built-in workload so that a profiler can measure it layer by layer.",
    )
    add = made.add_argument
    add("workload", help=f"torch:LIBRARY/NAME, or one of: {', '.join(workloads())}")
    add("--backend", required=True, help="the library that does the work")
    add("--precision", default="fp32", help="fp32 (TF32 off), tf32, fp16, bf16, int8")
    add("--batch", type=int, default=1, help="images in one inference")
    add("--iterations", type=int, default=10, help="measured inferences")
    add("--warmup", type=int, default=5, help="inferences before them; tuning happens here")
    add("--seed", type=int, default=0, help="seed of random weights and inputs")
    add("--cfg", type=Path, help="a Darknet cfg instead of the built-in network")
    add("--weights", type=Path, help="a Darknet weights file instead of random weights")
    add("--classes", type=int, default=2, help="classes of the built-in network")
    # off as in PyTorch: measuring picks other kernels in the profiled process than in the timed one
    add("--cudnn-benchmark", action=argparse.BooleanOptionalAction, default=False)
    add(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="the workload's own setting"
    )
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu is for --mode check")
    add("--mode", choices=MODES, default="profile")
    add("--out", type=Path, required=True, help="folder for run.json and what the mode records")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0 done, 1 failed, 2 wrong usage (raised by argparse)."""
    given = parser().parse_args(arguments)
    try:
        return _run(given)
    except PerfmlError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def _run(given: argparse.Namespace) -> int:
    if given.iterations < 1 or given.warmup < 0:
        what = "iterations start at 1, warm-up iterations at 0"
        found = f"--iterations {given.iterations} --warmup {given.warmup}"
        raise InputError(what, where="--iterations", found=found)
    if given.device == "cpu" and given.mode != "check":
        what = f"the mode {given.mode} measures GPU kernels"
        raise InputError(what, where="--device cpu", cure="Use --device cuda or --mode check.")
    options = Options(
        backend=given.backend,
        precision=given.precision,
        batch=given.batch,
        seed=given.seed,
        device=given.device,
        cudnn_benchmark=given.cudnn_benchmark,
        cfg=given.cfg,
        weights=given.weights,
        classes=given.classes,
        settings=parse_settings(given.set),
    )
    chosen = workload(given.workload)
    if isinstance(chosen, Ladder):  # its session begins on the GPU
        wait_for_turn("torch", "cupy")
    session = chosen.session(options)
    given.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    with session.active():
        if given.mode in ("timing", "counters") and chosen.check_first:
            results["check"] = _check(session, given)
        if _right(results):
            for _ in range(given.warmup):
                session.run(Ranges())
            session.synchronize()
            results[given.mode] = _MODES[given.mode](session, given)
    record = {
        "workload": given.workload,
        "mode": given.mode,
        "backend": given.backend,
        "precision": given.precision,
        "batch": given.batch,
        "iterations": given.iterations,
        "warmup": given.warmup,
        "seed": given.seed,
        "device": given.device,
        "set": dict(options.settings),
        **session.describe(),
        "environment": environment(given.device),
        **results,
    }
    write_json(given.out / RUN_FILE, record)
    for name, document in getattr(session, "files", dict)().items():
        write_json(given.out / name, document)
    return 0 if _right(results) else 1


def _right(results: dict[str, Any]) -> bool:
    return "check" not in results or bool(results["check"]["passed"])


def _profile(session: Session, given: argparse.Namespace) -> dict[str, Any]:
    """Run the measured iterations between profiler start and stop, in NVTX ranges."""
    from torch.cuda import profiler

    ranges = NvtxRanges()
    profiler.start()
    _measure(session, ranges, given.iterations)
    profiler.stop()
    return {"ranges": [f"iter_N/{name}" for name in session.layer_names()]}


def _counters(session: Session, given: argparse.Namespace) -> dict[str, Any]:
    """Repeat iterations as long as the injected profiler has something to measure."""
    from torch.cuda import profiler

    wanted = _counters_wanted()
    ranges = NvtxRanges()
    profiler.start()
    done = 0
    while done < given.iterations or (wanted() and done < _MOST_ITERATIONS):
        with ranges.iteration(done):
            session.run(ranges)
        session.synchronize()
        done += 1
    profiler.stop()
    result: dict[str, Any] = {"iterations": done}
    if hasattr(session, "timed_kernels"):  # its library knows its layers' times better
        result["timing"] = _timing(session, given)
    return result


def _counters_wanted() -> Callable[[], bool]:
    """Return the injected profiler's question whether it wants another iteration."""
    injected = os.environ.get("CUDA_INJECTION64_PATH")
    if not injected:
        msg = "the mode counters is for the profiler that perfml injects"
        raise InputError(msg, cure="Use perfml collect --profiler cupti.")
    asked = ctypes.CDLL(injected).perfml_counters_wanted
    return lambda: bool(asked())


def _measure(session: Session, ranges: Ranges, iterations: int) -> None:
    for i in range(iterations):
        with ranges.iteration(i):
            session.run(ranges)
        session.synchronize()


def _timing(session: Session, given: argparse.Namespace) -> dict[str, Any]:
    """Time the measured iterations kernel by kernel and write the CSV."""
    own = getattr(session, "timed_kernels", None)
    if own is not None:
        kernels: list[TimedKernel] = own(given.iterations)
        outside, moves = 0, []
    else:
        trace = given.out / TRACE_FILE
        _record_trace(session, given.iterations, trace)
        timing = read_trace(trace, session.layer_names())
        kernels, outside, moves = timing.kernels, timing.outside, timing.moves
    write_text(given.out / TIMING_FILE, timing_csv(kernels, moves))
    result = summarise(kernels, given.iterations)
    _say_timing(given, result)
    return result | {"kernels_outside": outside, "memory_operations": len(moves)}


def _record_trace(session: Session, iterations: int, path: Path) -> None:
    # torch.profiler.profile is this one, but its start imports torch.compile's machinery (seconds)
    from torch.autograd.profiler import profile

    ranges = RecordedRanges()
    with profile(use_kineto=True, use_device="cuda") as recorded:
        # One inference that is not measured: the first one under the profiler pays for its start.
        session.run(ranges)
        session.synchronize()
        _measure(session, ranges, iterations)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, replacing(path) as temporary:
        plain = Path(folder, "trace.json")
        recorded.export_chrome_trace(str(plain))
        with plain.open("rb") as source, gzip.open(temporary, "wb", 1) as target:
            shutil.copyfileobj(source, target)


def timing_csv(kernels: list[TimedKernel], moves: Sequence[TimedKernel] = ()) -> str:
    """Return the timing table as CSV text; a start that is not known is an empty field.

    Copies and fills of memory stand below the kernels, with their bytes.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*COLUMNS, "bytes") if moves else COLUMNS)
    for row in (*kernels, *moves):
        start = "" if math.isnan(row.start_us) else row.start_us
        cells = (row.iteration, row.layer, row.kernel, row.time_us, start, row.grid, row.block)
        moved = "" if row.bytes is None else row.bytes
        writer.writerow((*cells, moved) if moves else cells)
    return text.getvalue()


def summarise(kernels: list[TimedKernel], iterations: int) -> dict[str, Any]:
    """Return totals, the kernels of each layer, and whether every iteration ran the same ones.

    Returns
    -------
    dict
        ``kernels_per_iteration``, ``time_us`` (mean over iterations, all kernels),
        ``unattributed_us`` (its part outside layers), ``same_kernels_every_iteration``, and
        ``kernels``: layer to kernel names of iteration 0 in order of start.
    """
    sequences: dict[int, list[tuple[str, str]]] = {i: [] for i in range(iterations)}
    for row in kernels:
        sequences[row.iteration].append((row.layer, row.kernel))
    chosen: dict[str, list[str]] = {}
    for layer, kernel in sequences[0]:
        chosen.setdefault(layer, []).append(kernel)
    total = math.fsum(row.time_us for row in kernels)
    bare = math.fsum(row.time_us for row in kernels if not row.layer)
    return {
        "kernels_per_iteration": len(sequences[0]),
        "time_us": round(total / iterations, 3),
        "unattributed_us": round(bare / iterations, 3),
        "same_kernels_every_iteration": all(s == sequences[0] for s in sequences.values()),
        "kernels": chosen,
    }


def _say_timing(given: argparse.Namespace, result: dict[str, Any]) -> None:
    sys.stdout.write(
        f"{given.backend} {given.precision} batch {given.batch}: {result['time_us']:.1f} µs in "
        f"{result['kernels_per_iteration']} kernels an inference, "
        f"{result['unattributed_us']:.1f} µs outside layers\n"
    )


def _check(session: Session, given: argparse.Namespace) -> dict[str, Any]:
    """Compare with the reference and print one line an output."""
    began = time.monotonic()
    rows = session.check()
    for row in rows:
        sys.stdout.write(f"{given.backend} {given.precision} {_verdict(row)}\n")
    return {
        "passed": all(row.passed for row in rows),
        "seconds": round(time.monotonic() - began, 3),
        "outputs": [
            {
                "output": row.output,
                "relative_error": float(f"{row.error:.3g}") if math.isfinite(row.error) else None,
                "limit": row.limit,
                "passed": row.passed,
            }
            for row in rows
        ],
    }


def _verdict(row: CheckRow) -> str:
    verdict = "within" if row.passed else "ABOVE"
    return f"{row.output}: relative error {row.error:.2e}, {verdict} the limit {row.limit:.0e}"


def write_json(path: Path, document: Any) -> None:
    """Write a document as JSON; an undefined number is an error, not ``NaN``."""
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


_MODES = {"profile": _profile, "timing": _timing, "counters": _counters, "check": _check}


if __name__ == "__main__":
    sys.exit(main())
