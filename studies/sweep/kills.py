"""What a kill costs a sweep: of a worker, of the driver, and of the whole machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tarfile
import time
from pathlib import Path
from typing import Any

from studies.sweep.cases import PROGRAM, WORK, finish, sweep

MARK = b"PERFML_SWEEP_WORKER="
LEFT = WORK / "left"
"""The sweep that is left half done on one machine and taken up on another, at this same path."""


def four(path: Path, program: Path) -> Path:
    """Write a sweep of four short runs."""
    commands = [[str(program), "6", str(size)] for size in range(1, 5)]
    document = {"matrix": {"command": commands}, "defaults": {"metric_iterations": 100}}
    path.write_text(json.dumps(document))
    return path


def marked() -> dict[int, int]:
    """Return the processes under a worker's mark, and their parents."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if any(each.startswith(MARK) for each in entry.read_bytes().split(b"\0")):
                fields = (entry.parent / "stat").read_text().rpartition(")")[2].split()
                if fields[0] not in "ZX":
                    found[int(entry.parent.name)] = int(fields[1])
        except OSError:
            continue
    return found


def wait(condition: Any, seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            msg = "it did not happen in time"
            raise TimeoutError(msg)
        time.sleep(0.05)
    return found


def profiled() -> int | None:
    """Return a worker that has a program under its profiler."""
    tree = marked()
    for pid, parent in tree.items():
        if parent not in tree and any(each == pid for each in tree.values()):
            return parent
    return None


def below(worker: int) -> set[int]:
    """Return the marked processes that descend from a worker."""
    tree, found = marked(), {worker}
    for _ in range(8):
        found |= {pid for pid, parent in tree.items() if parent in found}
    return found - {worker}


def finished(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.glob("*/run.json")}


def kill_worker() -> dict[str, Any]:
    """Kill a worker while it profiles; its run must be done again, and nothing else."""
    out = WORK / "worker-killed"
    file = four(WORK / "worker.json", PROGRAM)
    started = time.monotonic()
    process = sweep(file, out, "--gpus", "2")
    wait(lambda: finished(out))
    worker = wait(profiled)
    children = below(worker)
    os.kill(worker, signal.SIGKILL)
    killed = time.monotonic()
    wait(lambda: not children & set(marked()), 30)
    cleared = time.monotonic() - killed
    document = finish(process, started, 90)
    runs = document.get("runs", [])
    return {
        "code": document["code"],
        "attempts": sorted(each["attempts"] for each in runs),
        "states": sorted(each["state"] for each in runs),
        "lost": document.get("summary", {}).get("lost_attempts"),
        "profiler_gone_s": round(cleared, 2),
        "wall_s": round(document["wall_s"], 1),
        "passed": document["code"] == 0
        and sorted(each["attempts"] for each in runs) == [1, 1, 1, 2]
        and len(finished(out)) == 4,
    }


def half(file: Path, out: Path) -> float:
    """Kill a driver after its second run; return when what it left was gone."""
    process = sweep(file, out, "--gpus", "2")
    wait(lambda: len(finished(out)) >= 2)
    wait(profiled)
    process.kill()
    process.communicate()
    killed = time.monotonic()
    wait(lambda: not marked(), 30)
    return time.monotonic() - killed


def resumed(file: Path, out: Path, started: float, gpus: int) -> dict[str, Any]:
    """Go on with a sweep of four; finished runs must stay as they are."""
    before = finished(out)
    document = finish(sweep(file, out, "--gpus", str(gpus), "--resume"), started, 90)
    kept = all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    summary = document.get("summary", {})
    return {
        "code": document["code"],
        "finished_before": len(before),
        "kept": summary.get("kept"),
        "untouched": kept,
        "attempts": sorted(each["attempts"] for each in document.get("runs", [])),
        "devices": summary.get("devices"),
        "wall_s": round(document["wall_s"], 1),
        "passed": document["code"] == 0
        and kept
        and summary.get("kept") == len(before) > 0
        and len(finished(out)) == 4,
    }


def kill_driver() -> dict[str, Any]:
    """Kill a driver in the middle and go on on the same machine."""
    out = WORK / "driver-killed"
    file, started = four(WORK / "driver.json", PROGRAM), time.monotonic()
    cleared = half(file, out)
    return {**resumed(file, out, started, 2), "profiler_gone_s": round(cleared, 2)}


def leave(archive: Path) -> dict[str, Any]:
    """Leave a sweep half done, with its file and its program, as a tar file."""
    LEFT.mkdir(parents=True)
    program = Path(shutil.copy(PROGRAM, LEFT / "sweep_program"))
    half(four(LEFT / "sweep.json", program), LEFT / "runs")
    with tarfile.open(archive, "w") as whole:
        whole.add(LEFT, arcname=".")
    return {"finished": len(finished(LEFT / "runs")), "boot": boot(), "passed": True}


def take_up(archive: Path, gpus: int) -> dict[str, Any]:
    """Go on with a sweep that was left half done by `leave` on another machine."""
    started = time.monotonic()
    with tarfile.open(archive) as whole:
        whole.extractall(LEFT, filter="data")
    return {**resumed(LEFT / "sweep.json", LEFT / "runs", started, gpus), "boot": boot()}


def boot() -> str:
    """Return what tells this start of this machine from any other."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
