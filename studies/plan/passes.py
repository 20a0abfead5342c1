"""Measure what replay passes sets of metrics cost (``python -m studies.plan.passes --out DIR``).

Nsight Compute replays a launch until every counter has been read, and what a launch costs is
decided by how often. Which counters fit into one pass is known to the profiler only, so it is
asked: a small CUDA program is profiled with each metric alone, with the named sets, with sets
grown metric by metric under a budget, and with random sets. ``passes.csv`` has one row a set,
``passes.json`` the chip, the versions and what each metric asks for, ``seconds.csv`` the time a
launch takes by passes and by the memory that has to be restored between them.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collectors.profilers import ncu
from collectors.profilers.gpu import NoGpuError, gpus
from collectors.profilers.process import Finished, ProfilerError, last_lines, run
from perfml.metrics import PUBLISHED, load_catalogue
from perfml.tables import replacing

SETS = ("published", "stalls", "roofline")
BUDGETS = (1, 3, 2)
"""Passes that sets are grown under; the budget most people ask for comes early."""
RANDOM_SETS = 40
FOOTPRINTS_MIB = (1, 1024)
TIMED_LAUNCHES = 40
_PASSES = re.compile(r"- (\d+) pass(?:es)?\b")
_COLUMNS = ("kind", "passes", "metrics", "error")

SOURCE = r"""
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

__global__ void busy(float *out, const float *in, size_t n) {
    __shared__ float tile[256];
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        tile[threadIdx.x] = in[i];
        __syncthreads();
        out[i] = __sinf(tile[255 - threadIdx.x]) * 1.5f + 2.0f;
        __syncthreads();
    }
}

int main(int argc, char **argv) {
    int launches = argc > 1 ? atoi(argv[1]) : 2;
    size_t n = (argc > 2 ? (size_t)atoi(argv[2]) : 1) * (1 << 20) / 2 / sizeof(float);
    float *in, *out;
    if (cudaMalloc(&in, n * sizeof(float)) || cudaMalloc(&out, n * sizeof(float))) return 1;
    cudaMemset(in, 0, n * sizeof(float));
    for (int i = 0; i < launches; ++i) busy<<<264, 256>>>(out, in, n);
    cudaError_t status = cudaDeviceSynchronize();
    if (status != cudaSuccess) { printf("%s\n", cudaGetErrorString(status)); return 1; }
    return 0;
}
"""
"""Half of the memory is read, half written; every unit of the published metrics does something."""


@dataclass
class Measured:
    """Sets that were measured, each once.

    Attributes
    ----------
    program, folder
        The CUDA program, and where Nsight Compute may write.
    end
        ``time.monotonic()`` after which nothing new is started.
    rows
        What `_COLUMNS` name, in the order of measuring.
    """

    program: Path
    folder: Path
    end: float
    rows: list[tuple[str, int | None, tuple[str, ...], str]] = field(default_factory=list)
    known: dict[tuple[str, ...], int | None] = field(default_factory=dict)

    def passes(self, kind: str, metrics: Sequence[str]) -> int | None:
        """Return a set's passes; None where it could not be measured, or there is no time left."""
        request = load_catalogue().ncu_request(metrics)
        if request in self.known:
            return self.known[request]
        if time.monotonic() > self.end:
            return None
        count, error, _ = profile_once(self.program, self.folder, request, launches=2)
        self.known[request] = count
        self.rows.append((kind, count, tuple(metrics), error))
        return count


def profile_once(
    program: Path, folder: Path, request: Sequence[str], *, launches: int, mib: int = 1
) -> tuple[int | None, str, float]:
    """Profile the program; return its passes, what went wrong, and the seconds a launch.

    The command is the collector's own, without its conversion to CSV.
    """
    times: list[float] = []

    def watch(text: str) -> None:
        times.extend(time.monotonic() for _ in _PASSES.findall(text))

    options = ncu.NcuOptions(tuple(request))
    command = ncu.profile_command(
        options, [str(program), str(launches), str(mib)], folder / "passes.ncu-rep"
    )
    ended = run(command, log=folder / "log.txt", timeout_s=60, watch=watch, env={"LC_ALL": "C"})
    found = {int(each) for each in _PASSES.findall(ended.output)}
    error = "" if found and ended.returncode == 0 else _problem(ended)
    between = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else float("nan")
    return max(found, default=None), error, between


def _problem(ended: Finished) -> str:
    said = [line for line in ended.output.splitlines() if line.startswith("==ERROR==")]
    return (said[0][10:210] if said else last_lines(ended.output, 2)[:200]) or "no launch profiled"


def compile_program(folder: Path) -> Path:
    """Compile `SOURCE` for the GPU that is there.

    Raises
    ------
    ProfilerError
        If there is no CUDA compiler, or it refuses.
    """
    compiler = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if compiler is None:
        msg = "nvcc is not installed, or not on the PATH"
        raise ProfilerError(msg, cure="Put the CUDA Toolkit's bin folder on the PATH.")
    source, program = folder / "busy.cu", folder / "busy"
    source.write_text(SOURCE, encoding="utf-8")
    command = [compiler, "-O2", "-arch=native", "-o", str(program), str(source)]
    ended = run(command, log=folder / "log.txt", timeout_s=120)
    if ended.returncode != 0 or not program.is_file():
        msg = "nvcc does not compile the small CUDA program"
        raise ProfilerError(msg, where=compiler, found=last_lines(ended.output, 3))
    return program


def measure(measured: Measured, seconds: Callable[[], None]) -> None:
    """Measure the families of sets, those that matter most first."""
    ask = measured.passes
    ask("single", ())
    for name in PUBLISHED:
        ask("single", (name,))
    for kind, metrics in _named_sets():
        ask(kind, metrics)
    for metrics in random_sets(PUBLISHED, RANDOM_SETS, seed=0):
        ask("random", metrics)
    seconds()
    grow(measured, USEFUL_FIRST)
    for name in load_catalogue().select(SETS):
        ask("single", (name,))
    grow(measured, tuple(reversed(USEFUL_FIRST)))
    grow(measured, PUBLISHED)


def _named_sets() -> Iterator[tuple[str, tuple[str, ...]]]:
    catalogue = load_catalogue()
    for names in (("published",), ("stalls",), ("roofline",), ("published", "stalls"), SETS):
        yield "set", catalogue.select(names)
    patched = tuple(name for name in PUBLISHED if is_patched(name))
    yield "set", patched
    yield "set", tuple(name for name in PUBLISHED if name not in patched)


def is_patched(name: str) -> bool:
    """Say whether a metric needs instrumented code (``smsp__sass`` and ``sm__sass`` counters)."""
    return any("__sass_" in each for each in load_catalogue().ncu_request((name,)))


def random_sets(names: Sequence[str], count: int, *, seed: int) -> list[tuple[str, ...]]:
    """Return distinct random subsets of 2 to all but one of the names, in the names' order."""
    source = random.Random(seed)
    found: dict[tuple[str, ...], None] = {}
    sizes = range(2, len(names))
    while len(found) < count:
        size = sizes[len(found) % len(sizes)]
        found[tuple(sorted(source.sample(list(names), size), key=list(names).index))] = None
    return list(found)


USEFUL_FIRST = (
    "single_precision_fu_utilization",
    "stall_inst_fetch",
    "shared_efficiency",
    "special_fu_utilization",
    "stall_memory_dependency",
    "warp_execution_efficiency",
    "achieved_occupancy",
    "gld_efficiency",
    "stall_pipe_busy",
    "l2_utilization",
    "dram_utilization",
    "stall_exec_dependency",
    "shared_utilization",
    "cf_fu_utilization",
    "ldst_fu_utilization",
    "stall_sync",
    "gst_efficiency",
    "tex_fu_utilization",
    "double_precision_fu_utilization",
)
"""The published metrics, roughly as they rank on the H200 dataset (studies/h200/RESULTS.md)."""


def grow(measured: Measured, order: Sequence[str]) -> None:
    """Grow sets along an order, keeping each metric that leaves the budget unbroken."""
    for budget in BUDGETS:
        kept: list[str] = []
        for name in order:
            passes = measured.passes(f"grown-{budget}", (*kept, name))
            if passes is not None and passes <= budget:
                kept.append(name)


def measure_seconds(program: Path, folder: Path, end: float) -> list[tuple[int, int, int, float]]:
    """Return (passes, metrics, MiB in use, seconds a launch) for requests of growing cost."""
    hardware = tuple(name for name in USEFUL_FIRST if not is_patched(name))
    requests: list[tuple[str, ...]] = [(), hardware[:3], hardware[:6], hardware, PUBLISHED]
    requests.insert(1, tuple(name for name in PUBLISHED if is_patched(name)))
    rows: list[tuple[int, int, int, float]] = []
    for mib in FOOTPRINTS_MIB:
        for metrics in requests:
            if time.monotonic() > end:
                return rows
            request = load_catalogue().ncu_request(metrics)
            passes, _, between = profile_once(
                program, folder, request, launches=TIMED_LAUNCHES, mib=mib
            )
            if passes is not None:
                rows.append((passes, len(metrics), mib, round(between, 5)))
    return rows


def _chip() -> list[str]:
    try:
        gpu = gpus()[0]
    except NoGpuError:
        return ["", "", ""]
    return [gpu.name, gpu.compute_capability, gpu.driver]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the three files, and print a short table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", type=Path, help="measure these sets only: one a line, by blanks")
    parser.add_argument("--seconds", type=float, default=185, help="start nothing new after these")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    folder = given.out
    folder.mkdir(parents=True, exist_ok=True)
    version = ncu.version()
    program = compile_program(folder)
    measured = Measured(program, folder, began + given.seconds)
    timed: list[tuple[int, int, int, float]] = []
    if given.sets is None:
        measure(measured, lambda: timed.extend(measure_seconds(program, folder, measured.end)))
    else:
        for line in given.sets.read_text(encoding="utf-8").splitlines():
            measured.passes("asked", line.split())
    name, capability, driver = _chip()
    catalogue = load_catalogue()
    document = {
        "chip": name,
        "compute_capability": capability,
        "driver": driver,
        "ncu": version,
        "measured": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": ncu.profile_command(
            ncu.NcuOptions(("METRICS",)), ["busy", "2", "1"], Path("passes.ncu-rep")
        ),
        "request": {each: list(catalogue.ncu_request((each,))) for each in catalogue.select(SETS)},
        "seconds": round(time.monotonic() - began, 1),
    }
    with replacing(folder / "passes.json") as temporary:
        temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    _write(
        folder / "passes.csv",
        _COLUMNS,
        [(kind, count, " ".join(names), error) for kind, count, names, error in measured.rows],
    )
    _write(folder / "seconds.csv", ("passes", "metrics", "mib", "seconds_per_launch"), timed)
    for each in (program, folder / "busy.cu", folder / "passes.ncu-rep"):
        each.unlink(missing_ok=True)
    _print(measured, timed, document)
    return 0 if any(count for _, count, _, _ in measured.rows) else 1


def _write(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as sink:
        writer = csv.writer(sink, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def _print(
    measured: Measured, timed: Sequence[tuple[int, int, int, float]], document: dict[str, object]
) -> None:
    lines = [f"{document['chip']}, ncu {document['ncu']}: {len(measured.rows)} sets"]
    for kind, count, names, error in measured.rows:
        shown = f"{len(names)} metrics" if len(names) > 9 else " ".join(names)
        if kind in ("single", "set", "asked") or error:
            lines.append(f"{kind} {shown}: {count} passes {error}".rstrip())
    drawn = [(len(names), count) for kind, count, names, _ in measured.rows if kind == "random"]
    lines.append("random (size, passes): " + " ".join(f"{n}:{count}" for n, count in sorted(drawn)))
    lines += [f"{row[0]} passes, {row[1]} metrics, {row[2]} MiB: {row[3]} s" for row in timed]
    lines.append(f"{document['seconds']} s")
    sys.stdout.write(os.linesep.join(lines) + os.linesep)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ProfilerError as problem:
        sys.stderr.write(f"error: {problem}\n")
        sys.exit(1)
