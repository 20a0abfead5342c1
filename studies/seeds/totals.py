"""Total times with copies, on a GPU: convolution in streams, and fp32 attention with files.

``python -m studies.seeds.totals --part conv --out FILE`` prints nothing but errors and writes JSON.
Its parts:

- ``conv``: wall-clock milliseconds of a launch with the copies of images and outputs around it and
  without, on one stream and divided among four;
- ``attention``: seconds of input (a file to memory), computing (allocation, copies, kernels) and
  output (memory to a file) for the published cases and every version, as the report splits them,
  and of one core at the first case;
- ``slow``: the versions and cases of that which take minutes.

Every result is compared with double precision before its time counts.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from collectors.workloads import Options, workload
from collectors.workloads.cuda import Source, build
from collectors.workloads.ranges import Ranges
from collectors.workloads.session import relative_error
from perfml.util.files import write_text
from studies.workloads.attention import launch
from studies.workloads.attention.problems import Problem, parse_sizes, reference
from studies.workloads.attention.variants import FOLDER, LADDER

CASES = {
    "t10": "10x2048x64",
    "t11": "13600x128x32",
    "t22": "500x2048x64",
    "t29": "4x32768x32",
    "t30": "2x32768x64",
}
"""The report's name of a case to problems, tokens and head dimension."""
SLOW = {("fused", "t29"), ("fused", "t30"), ("shared_48k", "t29"), ("shared_48k", "t30")}
"""One block for a problem of 32,768 tokens: 10 to 40 s by the ladder's times on an H200, so they
are a part of their own."""
SLOW_S = 45.0
"""Time that must be left before one of them is begun."""
CONV_SIZES = tuple(f"conv{n}_b{batch}" for batch in (100, 1000, 10000) for n in (1, 2))
CONV_VERSIONS = ("unroll", "streams", "fused", "fused_streams")
REPEATS = 7


class Deadline:
    """What is left of the time."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def left(self) -> float:
        """Return seconds."""
        return self.end - time.monotonic()


# ---- convolution ---------------------------------------------------------------------------------


def walls(run: Callable[[], None], wait: Callable[[], None], repeats: int = REPEATS) -> list[float]:
    """Return milliseconds from a launch to the end of everything it started."""
    found = []
    for _ in range(repeats + 2):
        wait()
        start = time.perf_counter()
        run()
        wait()
        found.append(1e3 * (time.perf_counter() - start))
    return found[2:]


def conv_rows(deadline: Deadline, sizes: tuple[str, ...] = CONV_SIZES) -> list[dict[str, Any]]:
    """Return a row a size, version and whether copies are a part of it."""
    import torch

    rows = []
    for size in sizes:
        for version in CONV_VERSIONS:
            for copies in (False, True):
                if deadline.left() < 5:
                    return rows
                rows.append(_conv_row(size, version, copies=copies))
                torch.cuda.empty_cache()
    return rows


def _conv_row(size: str, version: str, *, copies: bool) -> dict[str, Any]:
    settings = (("sizes", size), ("copies", str(int(copies))))
    session = workload("conv").session(Options(version, settings=settings))
    with session.active():
        (row,) = session.check()
        times = walls(lambda: session.run(Ranges()), session.synchronize)
    return {
        "size": size, "version": version, "copies": copies, "ms": statistics.median(times),
        "least_ms": min(times), "most_ms": max(times), "error": _finite(row.error),
        "passed": row.passed,
    }  # fmt: skip


def _finite(error: float) -> float | None:
    return error if math.isfinite(error) else None


# ---- attention -----------------------------------------------------------------------------------


def write_case(problem: Problem, path: Path, seed: int) -> None:
    """Write Q, K and V of a case, uniform in -3 to 3 as the report's."""
    import numpy as np

    generator = np.random.default_rng(seed)
    with path.open("wb") as file:
        for _ in range(3):
            values = generator.random(problem.elements, dtype=np.float32)
            (values * np.float32(6) - np.float32(3)).tofile(file)


def read_case(problem: Problem, path: Path) -> dict[str, Any]:
    """Return Q, K and V as numpy arrays of shape (problems, tokens, dim)."""
    import numpy as np

    shape = (3, problem.count, problem.tokens, problem.dim)
    return dict(zip("qkv", np.fromfile(path, dtype=np.float32).reshape(shape), strict=True))


def attention_row(
    version: str, problem: Problem, module: Any, path: Path, out: Path
) -> tuple[dict[str, float], Any]:
    """Return the seconds of one computation from file to file, and O on the host."""
    import numpy as np
    import torch

    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    start = time.perf_counter()
    host = read_case(problem, path)
    read = time.perf_counter()
    values = {name: torch.from_numpy(host[name]).to(launch.DEVICE) for name in "qkv"}
    values["o"] = torch.empty_like(values["q"])
    launch.rung_launch(version, module, launch.Tensors(problem, values))()
    result = values["o"].cpu()
    computed = time.perf_counter()
    np.asarray(result).tofile(out)
    written = time.perf_counter()
    seconds = {
        "input_s": read - start, "computing_s": computed - read, "output_s": written - computed,
        "total_s": written - start,
    }  # fmt: skip
    return seconds, result


def attention_rows(
    deadline: Deadline,
    folder: Path,
    expected: Path,
    cases: Sequence[str] | None = None,
    *,
    slow: bool = False,
) -> list[dict[str, Any]]:
    """Return a row a case (all by default) and version: the slow ones, or all others.

    `expected` gets O of the first case of `CASES`, if that is asked for.
    """
    import numpy as np
    import torch

    problems = {case: parse_sizes(CASES[case])[0] for case in cases or CASES}
    modules = build({str(dim): Source(FOLDER / "ladder.cu", {"HEAD_DIM": dim}) for dim in (32, 64)})
    rows: list[dict[str, Any]] = []
    for case, problem in problems.items():
        number = list(CASES).index(case)
        versions = [each for each in reversed(LADDER) if ((each, case) in SLOW) == slow]
        if not versions:
            continue
        path = folder / f"{case}.in"
        if not path.exists():
            write_case(problem, path, seed=number)
        host = read_case(problem, path)
        q, k, v = (torch.from_numpy(host[name]).to(launch.DEVICE) for name in "qkv")
        right = reference(q, k, v, causal=False).float().cpu()
        if number == 0:
            np.asarray(right).tofile(expected)
        del q, k, v
        module, out = modules[str(problem.dim)], folder / "o.out"
        attention_row("o_registers", problem, module, path, out)  # the first launch loads a kernel
        for version in versions:
            if deadline.left() < (SLOW_S if slow else 5):
                continue
            made = [
                attention_row(version, problem, module, path, out) for _ in range(1 if slow else 3)
            ]
            row = _judged(relative_error(made[-1][1], right))
            seconds = {
                name: statistics.median(each[0][name] for each in made) for name in made[0][0]
            }
            rows.append({"case": case, "version": version, **row, **seconds})
    return rows


def _judged(error: float) -> dict[str, Any]:
    passed = error <= launch.LIMITS["fp32"]
    return {"error": _finite(error), "passed": passed}


# ---- one core ------------------------------------------------------------------------------------


def compile_sequential(folder: Path) -> Path:
    """Compile the program of one core and return its path."""
    program, source = folder / "sequential", Path(__file__).with_name("sequential.c")
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    subprocess.run([compiler, "-O3", "-o", str(program), str(source), "-lm"], check=True)
    return program


def start_sequential(folder: Path, case: str = "t10") -> tuple[Any, Path]:
    """Begin it beside what the GPU does; return the process and where O will be."""
    (problem,) = parse_sizes(CASES[case])
    path, out = folder / f"{case}.in", folder / "sequential.out"
    write_case(problem, path, seed=0)
    sizes = [str(each) for each in (problem.count, problem.tokens, problem.dim)]
    command = [str(compile_sequential(folder)), *sizes, str(path), str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True), out


def end_sequential(process: Any, out: Path, expected: Path, wait_s: float) -> dict[str, Any]:
    """Return its seconds, and its error against the reference that the GPU's part kept."""
    import numpy as np

    try:
        text, _ = process.communicate(timeout=max(1.0, wait_s))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"version": "sequential", "passed": True, "failed": f"not done in {wait_s:.0f} s"}
    if process.returncode:
        return {"version": "sequential", "passed": False, "failed": f"exit {process.returncode}"}
    seconds = dict(
        zip(("input_s", "computing_s", "output_s"), map(float, text.split()), strict=True)
    )
    o, right = (np.fromfile(path, dtype=np.float32).astype(float) for path in (out, expected))
    error = float(np.linalg.norm(o - right) / np.linalg.norm(right))
    seconds["total_s"] = sum(seconds.values())
    return {"case": "t10", "version": "sequential", **_judged(error), **seconds}


def main(arguments: list[str] | None = None) -> int:
    """Measure; return 1 if a result was wrong."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--out", type=Path, required=True, help="the JSON file")
    made.add_argument("--seconds", type=float, default=80.0, help="nothing is begun after these")
    made.add_argument("--part", choices=("conv", "attention", "slow"), required=True)
    made.add_argument("--cases", default=",".join(CASES), help="of attention, with commas")
    given = made.parse_args(arguments)
    cases = given.cases.split(",")
    deadline = Deadline(given.seconds)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        expected = folder / "expected.out"
        if given.part == "conv":
            found["conv"] = conv_rows(deadline)
        elif given.part == "slow":
            found["slow"] = attention_rows(deadline, folder, expected, cases, slow=True)
        elif next(iter(CASES)) in cases:
            process, out = start_sequential(folder)
            found["attention"] = attention_rows(deadline, folder, expected, cases)
            found["sequential"] = [end_sequential(process, out, expected, deadline.left())]
        else:
            found["attention"] = attention_rows(deadline, folder, expected, cases)
    write_text(given.out, json.dumps(found, indent=1, allow_nan=False) + "\n")
    wrong = [row for rows in found.values() for row in rows if not row["passed"]]
    for row in wrong:
        sys.stderr.write(f"wrong: {row}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
