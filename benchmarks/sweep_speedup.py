"""A sweep on one GPU and on two: speed, equal metrics, and what a kill costs.

Run it from the repository's root on a machine with two GPUs, nvcc and ncu::

    PYTHONPATH=. python3 benchmarks/sweep_speedup.py --out OUT --seconds 390

It first measures what a launch costs alone and with a second profiler beside it, in several
surroundings, then runs the same twelve runs with ``--gpus 1`` and ``--gpus 2``, then kills a worker
in the middle of a sweep and a driver in the middle of another, then, if time is left, compares
sweeps that are nearly all profiling, in eight passes and in one. Exit 1 if two GPUs are not 1.8
times as fast, metrics differ, or a kill lost something. The table at the end is also
OUT/results.json. Dask has to be importable there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORK = Path("/tmp/perfml-sweep-benchmark")  # noqa: S108  # local disk of the GPU's machine
PROGRAM = WORK / "sweep_program"
MARK = b"PERFML_SWEEP_WORKER="
GOAL = 1.8
NOISE = 0.02
"""Largest difference of a metric, all of which are fractions, that counts as noise."""
WITHIN = 0.95


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, **extra}


def build() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    source = Path(__file__).with_name("sweep_program.cu")
    subprocess.run(["nvcc", "-O2", "-o", str(PROGRAM), str(source)], check=True)


def warm() -> None:
    """Start torch once: reading it from a cold disk would count against one GPU."""
    command = [sys.executable, "-c", "import torch; torch.zeros(1).cuda()"]
    subprocess.run(command, check=True)


# ---- what a launch costs -------------------------------------------------------------------


@dataclass(frozen=True)
class Probe:
    """One way to profile the same program on one GPU, or on two at once."""

    name: str
    gpus: tuple[int, ...] = (0, 1)
    metrics: str = "published"
    own: bool = True
    pin: bool = False
    hide: bool = False
    options: tuple[str, ...] = ()
    steps: int = 6


FEW = "stall_inst_fetch,warp_execution_efficiency,achieved_occupancy"
THREE = "gld_efficiency,gst_efficiency,shared_efficiency"
APPLICATION = ("--replay", "application")
PROBES = (
    Probe("8 passes, alone", (0,)),
    Probe("8 passes, two"),
    Probe("1 pass, alone", (0,), FEW, steps=40),
    Probe("1 pass, two", metrics=FEW, steps=40),
    Probe("3 passes, alone", (0,), THREE),
    Probe("3 passes, two", metrics=THREE),
    Probe("8 passes, two, half the cores each", pin=True),
    Probe("8 passes, two, other GPU hidden", hide=True),
    Probe("8 passes, two, one TMPDIR", own=False),
    Probe("8 passes, two, caches not flushed", options=("--cache-control", "none")),
    Probe("application replay, alone", (0,), options=APPLICATION, steps=40),
    Probe("application replay, two", options=APPLICATION, steps=40),
)


def probe(how: Probe) -> dict[str, Any]:
    """Profile the same program on some GPUs at once; return seconds a launch on each."""
    started, processes = time.monotonic(), []
    cores = sorted(os.sched_getaffinity(0))
    for place, gpu in enumerate(how.gpus):
        folder = WORK / f"probe-{PROBES.index(how)}-{gpu}"
        folder.mkdir(parents=True)
        extra = {"CUDA_VISIBLE_DEVICES": str(gpu), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        if how.own:
            extra["TMPDIR"] = str(folder)
        half = len(cores) // len(how.gpus)
        share = cores[place * half : (place + 1) * half] if how.pin else cores
        command = ["taskset", "-c", ",".join(map(str, share))]
        if how.hide:
            # in a mount namespace of its own: no other process sees that the device is gone
            script = f'mount --bind /dev/null /dev/nvidia{1 - gpu} && exec "$@"'
            command += ["unshare", "-m", "sh", "-c", script, "sh"]
            extra["CUDA_VISIBLE_DEVICES"] = "0"
        command += [sys.executable, "-m", "perfml", "collect", "--timing", "ncu", "--json"]
        for word in how.metrics.split(","):
            command += ["--metrics", word]
        command += [*how.options, "--out", str(folder / "runs"), "--", str(PROGRAM)]
        processes.append(
            subprocess.Popen(
                [*command, str(how.steps), "2"],
                env=environment(**extra),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    said = [each.communicate(timeout=120) for each in processes]
    found: dict[str, Any] = {"what": how.name, "wall_s": round(time.monotonic() - started, 1)}
    try:
        records = [json.loads(answer)["runs"][0]["record"] for answer, _ in said]
        found["launches"] = records[0]["launches_profiled"]
        found["passes"] = records[0]["passes"]
        found["seconds_per_launch"] = [each["seconds_per_launch"] for each in records]
        # without the profiler's own start: application replay repeats the whole program
        found["profiling_s"] = [each["profiling_seconds"] for each in records]
    except (ValueError, LookupError, TypeError):
        found["failed"] = " | ".join(
            " ".join((error or answer).split())[-200:] for answer, error in said
        )
    return found


def probes(until: float) -> list[dict[str, Any]]:
    found = []
    for how in PROBES:
        if time.monotonic() > until:
            found.append({"what": how.name, "skipped": "no time left"})
            continue
        found.append(probe(how))
        say(found[-1])
    return found


# ---- sweeps ---------------------------------------------------------------------------------


def twelve(path: Path) -> Path:
    """Write the sweep that is measured: four of YOLOv4-Tiny, eight of a program."""
    document = {
        "defaults": {"metrics": ["published"]},
        "matrix": {
            "workload": "yolov4-tiny",
            "backend": ["cublas", "cudnn"],
            "precision": ["fp32", "fp16"],
            "iterations": 5,
            "metric_iterations": 1,
            "layers": "conv_0[1-4]",
        },
        "include": [
            {"command": [str(PROGRAM), str(steps), str(size)], "metric_iterations": 100}
            for steps in (4, 5)
            for size in (1, 2, 4, 8)
        ],
    }
    path.write_text(json.dumps(document))
    return path


def programs(path: Path, steps: int, count: int, metrics: str = "published") -> Path:
    commands = [[str(PROGRAM), str(steps), str(size)] for size in range(1, count + 1)]
    defaults = {"metric_iterations": 100, "metrics": metrics.split(",")}
    document = {"matrix": {"command": commands}, "defaults": defaults}
    path.write_text(json.dumps(document))
    return path


def sweep(file: Path, out: Path, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "perfml", "sweep", str(file), "--out", str(out), "--json"]
    log = out.with_suffix(".log").open("a")
    return subprocess.Popen(
        [*command, *arguments], env=environment(), stdout=subprocess.PIPE, stderr=log, text=True
    )


def finish(process: subprocess.Popen, started: float) -> dict[str, Any]:
    answer = process.communicate(timeout=300)[0]
    document = json.loads(answer) if answer else {}
    return {**document, "code": process.returncode, "wall_s": time.monotonic() - started}


def timed(file: Path, out: Path, *arguments: str) -> dict[str, Any]:
    started = time.monotonic()
    return finish(sweep(file, out, *arguments), started)


def rates(out: Path) -> list[float]:
    records = [json.loads(path.read_text()) for path in sorted(out.glob("*/run.json"))]
    return [each["seconds_per_launch"] for each in records if each["seconds_per_launch"]]


def differences(one: Path, two: Path) -> dict[str, Any]:
    """Compare the metrics of the same launches in both sweeps."""
    import numpy as np

    from perfml.metrics import load_catalogue
    from perfml.readers import read

    names = list(load_catalogue().select(["published"]))
    values: list[np.ndarray] = []
    for path in sorted(one.glob("*/metrics.csv")):
        left = read(path).frame
        right = read(two / path.parent.name / "metrics.csv").frame
        if list(left["kernel"]) != list(right["kernel"]):
            return {"same_kernels": False, "run": path.parent.name, "within": 0.0}
        have = [name for name in names if name in left]
        values.append(np.abs(left[have].to_numpy(float) - right[have].to_numpy(float)).ravel())
    if not values:
        return {"same_kernels": False, "within": 0.0}
    every = np.concatenate(values)
    every = every[~np.isnan(every)]
    return {
        "same_kernels": True,
        "values": len(every),
        "median": float(np.median(every)),
        "largest": float(every.max()),
        "within": float((every <= NOISE).mean()),
    }


# ---- kills ----------------------------------------------------------------------------------


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
            raise SystemExit(msg)
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


def kill_worker(out: Path) -> dict[str, Any]:
    file = programs(WORK / "worker.json", 6, 4)
    started = time.monotonic()
    process = sweep(file, out, "--gpus", "2")
    wait(lambda: finished(out))
    worker = wait(profiled)
    children = below(worker)
    os.kill(worker, signal.SIGKILL)
    killed = time.monotonic()
    wait(lambda: not children & set(marked()), 30)
    cleared = time.monotonic() - killed
    document = finish(process, started)
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


def kill_driver(out: Path) -> dict[str, Any]:
    file = programs(WORK / "driver.json", 6, 4)
    started = time.monotonic()
    process = sweep(file, out, "--gpus", "2")
    wait(lambda: len(finished(out)) >= 2)
    wait(profiled)
    process.kill()
    process.communicate()
    killed = time.monotonic()
    wait(lambda: not marked(), 30)
    cleared = time.monotonic() - killed
    before = finished(out)
    document = finish(sweep(file, out, "--gpus", "2", "--resume"), started)
    kept = all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    return {
        "code": document["code"],
        "finished_before": len(before),
        "kept": document.get("summary", {}).get("kept"),
        "untouched": kept,
        "attempts": sorted(each["attempts"] for each in document.get("runs", [])),
        "profiler_gone_s": round(cleared, 2),
        "wall_s": round(document["wall_s"], 1),
        "passed": document["code"] == 0 and kept and len(finished(out)) == 4,
    }


# ---- the whole ------------------------------------------------------------------------------


def say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def compared(name: str, file: Path, pin: bool = False) -> dict[str, Any]:
    """Run the same sweep on one GPU and on two."""
    extra = ("--pin",) if pin else ()
    folders = (WORK / f"{name}-one", WORK / f"{name}-two")
    one = timed(file, folders[0], "--gpus", "1")
    two = timed(file, folders[1], "--gpus", "2", *extra)
    for each in (*one["runs"], *two["runs"]):
        if each["message"]:
            say({each["run_id"]: each["message"][:300]})
    found = {
        "pinned": pin,
        "codes": [one["code"], two["code"]],
        "runs": len(one["runs"]),
        "wall_s": [round(each["wall_s"], 2) for each in (one, two)],
        "gpu_s": [each["summary"]["gpu_seconds"] for each in (one, two)],
        "done": [each["summary"]["done"] for each in (one, two)],
        "launches": [each["summary"]["launches"] for each in (one, two)],
        "seconds_per_launch": [
            round(statistics.median(rates(each) or [0.0]), 4) for each in folders
        ],
        "ratio": round(one["wall_s"] / two["wall_s"], 3),
        "run_s": {
            each["run_id"]: [each["seconds"], other["seconds"], other["gpu"]]
            for each, other in zip(one["runs"], two["runs"], strict=True)
        },
        "metrics": differences(*folders),
    }
    say({name: found})
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=390)
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    given.out.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    build()
    warm()
    results: dict[str, Any] = {"probes": probes(time.monotonic() + 95)}
    rate = {each["what"]: max(each.get("seconds_per_launch", [9])) for each in results["probes"]}
    pinned = rate["8 passes, two, half the cores each"] < 0.97 * rate["8 passes, two"]
    results["sweep"] = compared("twelve", twelve(WORK / "twelve.json"), pinned)
    save(given.out, results)
    for name, kill in (("worker killed", kill_worker), ("driver killed", kill_driver)):
        if time.monotonic() + 40 > end:
            results[name] = {"passed": False, "skipped": "no time left"}
        else:
            results[name] = kill(WORK / name.replace(" ", "-"))
            say({name: results[name]})
        save(given.out, results)
    # most of the time under the profiler, once in eight passes and once in a single one
    for name, metrics in (("heavy, 8 passes", "published"), ("heavy, 1 pass", FEW)):
        if time.monotonic() + 60 < end:
            file = programs(WORK / "heavy.json", 12, 4, metrics)
            results[name] = compared(name.replace(", ", "-").replace(" ", "-"), file, pinned)
        save(given.out, results)
    for log in WORK.glob("*.log"):
        shutil.copy(log, given.out / log.name)
    return table(results)


def save(out: Path, results: dict[str, Any]) -> None:
    temporary = out / "results.tmp"
    temporary.write_text(json.dumps(results, indent=1))
    os.replace(temporary, out / "results.json")


def table(results: dict[str, Any]) -> int:
    """Print what was found; return 1 if a goal is missed."""
    for each in results["probes"]:
        rate = ", ".join(f"{value:.4f}" for value in each.get("seconds_per_launch", []))
        other = each.get("skipped") or each.get("failed", "")
        print(f"{each['what']:<40} {rate or other} s a launch, {each.get('passes')} passes")
    found = results["sweep"]
    for name in ("sweep", "heavy, 8 passes", "heavy, 1 pass"):
        one = results.get(name)
        if one:
            print(f"{name}: {one['runs']} runs, {one['wall_s']} s, ratio {one['ratio']}", end="; ")
            print(f"GPU s {one['gpu_s']}, s a launch {one['seconds_per_launch']}", one["metrics"])
    print("worker killed:", results["worker killed"])
    print("driver killed:", results["driver killed"])
    right = {
        "speed": found["ratio"] >= GOAL,
        "all runs": found["done"] == [12, 12],
        "metrics": found["metrics"]["within"] >= WITHIN,
        "worker": results["worker killed"]["passed"],
        "driver": results["driver killed"]["passed"],
    }
    print(" ".join(f"{name}={'ok' if good else 'MISSED'}" for name, good in right.items()))
    return 0 if all(right.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
