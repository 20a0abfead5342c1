"""Record this dataset: check every level, profile it, and ask Nsight Compute's own rules.

Run it from the repository's root on a machine with one GPU, nvcc and ncu::

    PYTHONPATH=. python3 datasets/h200-planted/record.py --out OUT --seconds 560

A family with a wrong result is not profiled. Finished runs are kept in ``--work``, so a second
call on the same machine does what is missing. ``OUT/recording.tar.xz`` is the only file in OUT; a
table is last.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

LEVELS = ("base", "level_1", "level_2", "level_3")
METRICS = (
    "published", "stalls", "roofline", "sm_efficiency", "ipc", "issue_slot_utilization",
    "global_load_requests", "global_store_requests", "shared_load_transactions_per_request",
    "l2_tex_read_hit_rate", "registers_per_thread", "shared_memory_per_block", "waves_per_sm",
    "theoretical_occupancy",
)  # fmt: skip
SECTIONS = (
    "SpeedOfLight", "LaunchStats", "Occupancy", "SchedulerStats", "WarpStateStats",
    "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables",
    "InstructionStats", "SourceCounters", "WorkloadDistribution",
)  # fmt: skip
RULES_LEVEL = "level_3"
"""Nsight Compute's rules look at one launch: the slow side, at the first size."""


def runner(level: str, given: argparse.Namespace, *words: str) -> list[str]:
    """Return the command that runs one level of the workload."""
    command = [sys.executable, "-m", "collectors.workloads.run", "planted", "--backend", level]
    return [*command, "--set", f"families={given.families}", *words]


def collect_command(level: str, given: argparse.Namespace) -> list[str]:
    """Return the command that measures one level."""
    command = [sys.executable, "-m", "perfml", "collect", "planted", "--backend", level]
    command += ["--set", f"families={given.families}", "--set", f"sizes={given.sizes}"]
    command += ["--iterations", "3", "--metric-iterations", "1", "--warmup", "2"]
    for name in METRICS:
        command += ["--metrics", name]
    return [*command, "--out", str(given.work / "runs"), "--json"]


def names_of(families: str) -> list[str]:
    """Return the families that a setting names."""
    from collectors.workloads.planted.families import BY_NAME

    return list(BY_NAME) if families == "all" else families.split(",")


def rules_command(given: argparse.Namespace) -> list[str]:
    """Return the command that has Nsight Compute's rules judge the slow side."""
    from perfml.metrics import load_catalogue

    command = ["ncu", "--profile-from-start", "off", "--nvtx", "--clock-control", "none"]
    command += ["--metrics", ",".join(load_catalogue().ncu_request(list(METRICS)))]
    for section in SECTIONS:
        command += ["--section", section]
    command += ["--force-overwrite", "--export", str(given.work / "rules.ncu-rep")]
    words = ("--set", "sizes=1", "--iterations", "1", "--out", str(given.work / "rules"))
    return [*command, *runner(RULES_LEVEL, given, *words)]


class Recorder:
    """Runs commands until the time is up, and remembers how each ended."""

    def __init__(self, out: Path, seconds: float) -> None:
        self.out, self.end = out, time.monotonic() + seconds
        self.table: list[tuple[str, str]] = []

    def run(self, name: str, command: list[str], least: float = 20) -> bool:
        """Run one command; return whether it succeeded."""
        left = self.end - time.monotonic()
        if left < least:
            self.table.append((name, "no time left"))
            return False
        began = time.monotonic()
        try:
            done = subprocess.run(  # noqa: S603 - argument lists of our own, no shell
                command, capture_output=True, text=True, timeout=left, check=False
            )
        except subprocess.TimeoutExpired:
            self.table.append((name, f"cut after {time.monotonic() - began:.0f} s"))
            return False
        text = done.stdout + done.stderr
        (self.out / f"{name}.log").write_text(text, encoding="utf-8")
        said = f"{time.monotonic() - began:.0f} s, exit {done.returncode}"
        self.table.append((name, said if done.returncode == 0 else f"{said} {text[-300:]}"))
        return done.returncode == 0

    def check(self, given: argparse.Namespace) -> set[str] | None:
        """Check all levels at once, each in a process of its own.

        Returns
        -------
        set of str or None
            Families with a wrong result at any level; None if a level could not be checked.
        """
        began, running = time.monotonic(), {}
        for level in given.levels:
            words = ("--mode", "check", "--warmup", "0", "--out", str(self.out / "check" / level))
            running[level] = subprocess.Popen(  # noqa: S603 - as above
                runner(level, given, *words),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        wrong: set[str] = set()
        ran = True
        for level, process in running.items():
            text, _ = process.communicate()
            (self.out / f"check_{level}.log").write_text(text, encoding="utf-8")
            bad = [line for line in text.splitlines() if "ABOVE" in line]
            good = sum("within" in line for line in text.splitlines())
            wrong |= {re.sub(r"_s\d+/.*", "", line.split()[2]) for line in bad}
            ran &= good + len(bad) > 0
            tail = "; ".join(bad[:4]) if good + len(bad) else text[-400:]
            said = f"{good} right, {len(bad)} wrong {tail}"
            self.table.append((f"check {level}", f"{time.monotonic() - began:.0f} s, {said}"))
        return wrong if ran else None


def pages(out: Path) -> None:
    """Write the packed raw and details pages of the report with the rules."""
    for page in ("raw", "details"):
        command = ["ncu", "--import", str(out / "rules.ncu-rep"), "--csv", "--page", page]
        command += ["--print-details", "all"] if page == "details" else []
        text = subprocess.run(command, capture_output=True, check=False).stdout  # noqa: S603
        (out / f"rules_{page}.csv.xz").write_bytes(lzma.compress(text))


def pack(work: Path, archive_file: Path) -> None:
    """Put everything worth keeping into one archive."""
    kept = {"run.json", "truth.json", "metrics.csv", "timing.csv", "log.txt"}
    with tarfile.open(archive_file, "w:xz") as archive:
        for path in sorted(work.rglob("*")):
            wanted = path.name in kept or path.suffix == ".log" or path.name.startswith("rules_")
            if path.is_file() and wanted:
                archive.add(path, path.relative_to(work))


def main() -> int:
    """Check, measure, pack, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    work = Path(tempfile.gettempdir()) / "perfml-planted"
    parser.add_argument("--work", type=Path, default=work)
    parser.add_argument("--seconds", type=float, default=560)
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=list(LEVELS))
    parser.add_argument("--families", default="all")
    parser.add_argument("--sizes", type=int, default=4)
    parser.add_argument("--no-rules", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    given.work.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(given.work, given.seconds - 15)
    wrong = recorder.check(given)
    if wrong:
        given.families = ",".join(name for name in names_of(given.families) if name not in wrong)
    if wrong is not None and given.families:
        for level in given.levels:
            recorder.run(f"collect {level}", collect_command(level, given))
        if not given.no_rules and recorder.run("rules", rules_command(given)):
            pages(given.work)
    pack(given.work, given.out / "recording.tar.xz")
    for path in sorted((given.work / "runs").glob("*/run.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        sys.stdout.write(
            f"{path.parent.name}: {record.get('launches_profiled')} launches, "
            f"{record.get('passes')} passes, {record.get('seconds_per_launch')} s a launch, "
            f"missing {record.get('metrics_missing')}\n"
        )
    for name, said in recorder.table:
        sys.stdout.write(f"{name:18s} {said}\n")
    if wrong is None:
        sys.stdout.write("a level could not be checked: nothing was profiled\n")
    elif wrong:
        sys.stdout.write(f"WRONG RESULTS, left out: {', '.join(sorted(wrong))}\n")
    else:
        sys.stdout.write("all results right\n")
    return 0 if wrong is not None and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
