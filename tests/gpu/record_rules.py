"""Record what Nsight Compute's own rules say, beside the counters that perfml's rules need.

Run it from the repository's root on a machine with a GPU, nvcc and ncu::

    PYTHONPATH=. python3 tests/gpu/record_rules.py --out OUT --seconds 170

Each part is a report, its raw page and its details page (packed); a part that does not fit into
the time is left out and said so in the table at the end. Peaks are measured last.
"""

from __future__ import annotations

import argparse
import functools
import lzma
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

SECTIONS = (
    "SpeedOfLight",
    "LaunchStats",
    "Occupancy",
    "SchedulerStats",
    "WarpStateStats",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables",
    "InstructionStats",
    "SourceCounters",
    "WorkloadDistribution",
)
"""Sections with rules, without those of sampling over time and of links between GPUs."""

ROOFS = (
    "l1tex__t_bytes.sum.peak_sustained",
    "l1tex__cycles_elapsed.avg.per_second",
    "lts__t_bytes.sum.peak_sustained",
    "lts__cycles_elapsed.avg.per_second",
    "dram__bytes.sum.peak_sustained",
    "dram__cycles_elapsed.avg.per_second",
    "sm__cycles_elapsed.avg.per_second",
)
"""The device's own peaks, which ncu tells without a measurement."""

EXTRA = (
    "sm_efficiency",
    "ipc",
    "branch_efficiency",
    "issue_slot_utilization",
    "shared_load_transactions_per_request",
    "shared_store_transactions_per_request",
    "global_load_requests",
    "global_store_requests",
)

NETWORK = ("conv_01", "conv_03", "conv_08", "conv_15", "conv_20", "conv_21")
PARTS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("hazards", ("./hazards",), ()),
    ("cublas_fp32", ("cublas", "fp32"), NETWORK),
    ("cudnn_fp32", ("cudnn", "fp32"), NETWORK),
    ("cudnn_fp16", ("cudnn", "fp16"), ("conv_03", "conv_20")),
)


def program(words: tuple[str, ...], out: Path, name: str) -> list[str]:
    """Return the argument list of a part's program."""
    if words[0].startswith("./"):
        return [str(out / words[0])]
    backend, precision = words
    command = [sys.executable, "-m", "collectors.workloads.runner", "yolov4-tiny"]
    command += ["--backend", backend, "--precision", precision]
    return [*command, "--iterations", "1", "--out", str(out / f"run_{name}")]


def command_of(words: tuple[str, ...], layers: tuple[str, ...], out: Path, name: str) -> list[str]:
    """Return the argument list that profiles a part."""
    from perfml.metrics import load_catalogue

    request = load_catalogue().ncu_request(["published", "stalls", "roofline", *EXTRA])
    command = ["ncu", "--metrics", ",".join([*request, *ROOFS]), "--nvtx"]
    for section in known_sections():
        command += ["--section", section]
    command += ["--clock-control", "none", "--target-processes", "all"]
    if layers:
        # the machine code of torch's libraries would make the report 17 MB larger
        command += ["--import-sass", "no"]
    for layer in layers:
        command += ["--nvtx-include", f"iter_0/{layer}/"]
    command += ["--force-overwrite", "--export", str(out / f"{name}.ncu-rep")]
    return [*command, *program(words, out, name)]


@functools.cache
def known_sections() -> tuple[str, ...]:
    """Return those of `SECTIONS` that this version of ncu has."""
    listed = subprocess.run(
        ["ncu", "--list-sections"], capture_output=True, text=True, check=False
    ).stdout.split()
    return tuple(name for name in SECTIONS if name in listed)


def run(command: list[str], log: Path, seconds: float) -> str:
    """Run a command into a log; say how it ended."""
    began = time.monotonic()
    if seconds < 5:
        return "no time left"
    try:
        with log.open("ab") as sink:
            done = subprocess.run(
                command, stdout=sink, stderr=sink, timeout=seconds, check=False, env=os.environ
            )
    except subprocess.TimeoutExpired:
        return f"cut after {time.monotonic() - began:.0f} s"
    return f"{time.monotonic() - began:.1f} s, exit {done.returncode}"


def pages(report: Path) -> str:
    """Write the packed raw and details pages of a report; say how many launches it has."""
    launches = 0
    for page in ("raw", "details"):
        command = ["ncu", "--import", str(report), "--csv", "--page", page]
        if page == "details":
            command += ["--print-details", "all"]
        text = subprocess.run(command, capture_output=True, check=False).stdout
        with lzma.open(report.with_name(f"{report.stem}_{page}.csv.xz"), "wb") as packed:
            packed.write(text)
        if page == "raw":
            launches = max(0, text.count(b"\n") - 2)
    return f"{launches} launches, {report.stat().st_size >> 10} KiB"


def main() -> None:
    """Build, profile, convert, measure peaks, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=170)
    given = parser.parse_args()
    out = given.out
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + given.seconds
    source = Path(__file__).parent / "programs" / "hazards.cu"
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    build = [nvcc, "-O2", "-arch=sm_90", "-lineinfo", "-o", str(out / "hazards"), str(source)]
    table = [("build", run(build, out / "log.txt", 60))]
    table.append(("plain run", run([str(out / "hazards")], out / "log.txt", 30)))
    for name, words, layers in PARTS:
        spare = 12 if name == PARTS[-1][0] else 25
        command = command_of(words, layers, out, name)
        said = run(command, out / "log.txt", end - time.monotonic() - spare)
        report = out / f"{name}.ncu-rep"
        table.append((name, f"{said}; {pages(report) if report.exists() else 'no report'}"))
    peaks = [sys.executable, "-m", "collectors.peaks"]
    table.append(("peaks", run(peaks, out / "peaks.json", max(15, end - time.monotonic()))))
    (out / "hazards").unlink(missing_ok=True)
    table.append(("sections", " ".join(known_sections())))
    for row in table:
        sys.stdout.write("{:14s} {}\n".format(*row))
    sys.stdout.write((out / "peaks.json").read_text() if (out / "peaks.json").exists() else "")
    for line in (out / "log.txt").read_text(errors="replace").splitlines():
        if "==ERROR==" in line or "==WARNING==" in line or "rror:" in line:
            sys.stdout.write(line[:300] + "\n")


if __name__ == "__main__":
    main()
