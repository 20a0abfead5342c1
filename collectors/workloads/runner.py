"""Run one workload under one backend: ``python -m collectors.workloads.runner NAME [options]``.

Four modes: ``profile`` marks the measured iterations for a counter profiler around this process,
``timing`` does so for the injected library that times kernels without counters, ``counters``
repeats iterations as long as the injected profiler (`collectors.profilers.cupti`) has something to
measure, ``check`` compares with the reference. Where that takes little (`Workload.check_first`),
``timing`` and ``counters`` do it first, and measure nothing that is wrong.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import dataclasses
import io
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import perfml
from collectors.profilers.gpu import gpus
from collectors.workloads.base import CheckRow, Ladder, TimedKernel, parse_settings
from perfml.errors import InputError, PerfmlError
from perfml.util.files import write_text
from perfml.util.installed import version_of

from . import Options, Session, workload, workloads
from .ranges import NvtxRanges, Ranges
from .turns import wait_for_turn

MODES = ("profile", "timing", "counters", "check")
_MOST_ITERATIONS = 10_000
"""Beyond it whoever measures will never have enough."""
RUN_FILE, TIMING_FILE = "run.json", "timing.csv"


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
        "environment": _environment(given.device),
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
    """Run the measured iterations for the injected library; or write what the session's own times.

    Where the backend's library knows the times of its layers better, nobody else takes them.
    """
    own = getattr(session, "timed_kernels", None)
    if own is None:
        return _profile(session, given)
    write_text(given.out / TIMING_FILE, timing_csv(own(given.iterations)))
    return {"iterations": given.iterations}


def timing_csv(kernels: Sequence[TimedKernel]) -> str:
    """Return the timing table as CSV text; a start that is not known is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(attribute.name for attribute in dataclasses.fields(TimedKernel))
    for row in kernels:
        writer.writerow("" if value != value else value for value in dataclasses.astuple(row))
    return text.getvalue()


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


def _environment(device: str) -> dict[str, Any]:
    """Return versions and GPU as JSON values; what is not there is None.

    Only for the device ``cuda`` torch is asked for a GPU.
    """
    found: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "perfml": perfml.__version__,
        "numpy": version_of("numpy"),
        "torch": version_of("torch"),
        "triton": version_of("triton"),
        **{library: version_of(library) for library in ("torchvision", "timm", "transformers")},
        "driver": _driver_version(),
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        cudnn = torch.backends.cudnn
        found["cuda"] = torch.version.cuda
        found["cudnn"] = cudnn.version() if cudnn.is_available() else None
    if torch is not None and device == "cuda" and torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found["gpu"] = properties.name
        found["compute_capability"] = f"{properties.major}.{properties.minor}"
        found["multiprocessors"] = properties.multi_processor_count
        found["memory_bytes"] = properties.total_memory
    return found


def _driver_version() -> str | None:
    try:
        return gpus()[0].driver
    except PerfmlError:
        return None


if __name__ == "__main__":
    sys.exit(main())
