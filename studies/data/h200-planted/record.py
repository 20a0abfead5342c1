"""Record this dataset: check every level, profile it, and ask Nsight Compute's own rules.

Run it from the repository's root on a machine with one GPU, nvcc and ncu::

    PYTHONPATH=. python3 studies/data/h200-planted/record.py --out OUT --seconds 560

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
    "published", "ldgsts_efficiency", "stalls", "roofline", "sm_efficiency", "ipc",
    "issue_slot_utilization",
    "global_load_requests", "global_store_requests", "shared_load_transactions_per_request",
    "l2_tex_read_hit_rate", "registers_per_thread", "shared_memory_per_block", "waves_per_sm",
    "theoretical_occupancy",
)  # fmt: skip
CAUSES = (
    "global_load_requests", "global_store_requests", "gld_transactions", "gst_transactions",
    "global_atomic_requests", "global_reduction_requests", "inst_executed_shared_atomics",
    "local_load_requests", "local_store_requests", "local_load_transactions",
    "local_store_transactions", "l2_tex_read_transactions", "l2_atomic_transactions",
    "inst_fp_32", "inst_fp_64", "inst_integer", "inst_bit_convert", "inst_compute_ld_st",
    "inst_inter_thread_communication", "tensor_precision_fu_utilization",
    "sm__cycles_active.avg", "sm__cycles_active.min", "sm__cycles_active.max",
    "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_shared_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_fmaheavy_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__inst_executed_pipe_adu.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_uniform.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "sm__mio_inst_issued.avg.pct_of_peak_sustained_elapsed",
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum",
    "idc__requests.sum", "idc__request_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "smsp__imc_requests.sum", "smsp__inst_executed_op_ldgsts.sum",
    "lts__t_sectors.avg", "lts__t_sectors.max", "lts__t_sectors_srcunit_tex_op_red.sum",
    "lts__d_atomic_input_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "lts__d_atomic_input_cycles_active.max.pct_of_peak_sustained_elapsed",
)  # fmt: skip
"""What causes beyond those of the first families need; asked for with ``--causes``."""
BULK = (
    "default",
    "smsp__inst_executed_op_tma_ld.sum",
    "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",
    "sm__pipe_tma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tma.sum", "sm__inst_executed_pipe_uniform.sum",
)  # fmt: skip
"""The default set, and what only Hopper counts of bulk copies; asked for with ``--bulk``."""
SECTIONS = (
    "SpeedOfLight", "LaunchStats", "Occupancy", "SchedulerStats", "WarpStateStats",
    "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables",
    "InstructionStats", "SourceCounters", "WorkloadDistribution",
)  # fmt: skip
RULES_LEVEL = "level_3"
"""Nsight Compute's rules look at one launch: the slow side, at the first size."""


def runner(level: str, given: argparse.Namespace, *words: str) -> list[str]:
    """Return the command that runs one level of the workload."""
    command = [sys.executable, "-m", "collectors.workloads.runner", "planted", "--backend", level]
    return [*command, "--set", f"families={given.families}", *words]


def collect_command(level: str, given: argparse.Namespace) -> list[str]:
    """Return the command that measures one level."""
    command = [sys.executable, "-m", "perfml", "collect", "planted", "--backend", level]
    command += ["--set", f"families={given.families}", "--set", f"sizes={given.sizes}"]
    command += ["--iterations", "3", "--metric-iterations", "1", "--warmup", "2"]
    asked = (*METRICS, *(CAUSES if given.causes else ()), *(BULK if given.bulk else ()))
    for name in dict.fromkeys(asked):
        command += ["--metrics", name]
    return [*command, "--out", str(given.work / "runs"), "--json"]


def names_of(families: str) -> list[str]:
    """Return the families that a setting names."""
    from studies.workloads.planted.families import BY_NAME

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
    parser.add_argument("--causes", action="store_true", help="ask for the metrics of all causes")
    parser.add_argument("--bulk", action="store_true", help="and those of bulk copies")
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
