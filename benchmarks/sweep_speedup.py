"""A sweep on one GPU and on two: speed, equal metrics, and what a kill costs.

Run it from the repository's root on a machine with two GPUs, nvcc and ncu::

    PYTHONPATH=. python3 benchmarks/sweep_speedup.py --out OUT --seconds 320

It first measures what a launch costs alone and with a second profiler beside it, in several
surroundings, then runs the same twelve runs with ``--gpus 1`` and ``--gpus 2``, then kills a worker
in the middle of a sweep and a driver in the middle of another. Exit 1 if two GPUs are not 1.8 times
as fast, metrics differ, or a kill lost something. The table at the end is also OUT/results.json.
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


def probe(name: str, gpus: tuple[int, ...], *, own: bool, pin: bool, metrics: str) -> dict:
    """Profile the same program on some GPUs at once; return seconds a launch on each."""
    started, processes = time.monotonic(), []
    cores = sorted(os.sched_getaffinity(0))
    for place, gpu in enumerate(gpus):
        folder = WORK / f"probe-{name}-{gpu}".replace(" ", "-")
        folder.mkdir(parents=True)
        extra = {"CUDA_VISIBLE_DEVICES": str(gpu)}
        if own:
            extra["TMPDIR"] = str(folder)
        half = len(cores) // len(gpus)
        share = cores[place * half : (place + 1) * half] if pin else cores
        command = [sys.executable, "-m", "perfml", "collect", "--timing", "ncu", "--json"]
        for word in metrics.split(","):
            command += ["--metrics", word]
        command += ["--out", str(folder / "runs"), "--", str(PROGRAM), "10", "2"]
        processes.append(
            subprocess.Popen(
                ["taskset", "-c", ",".join(map(str, share)), *command],
                env=environment(**extra),
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    answers = [json.loads(each.communicate(timeout=120)[0])["runs"][0] for each in processes]
    for each in answers:
        if each["status"] != "done":
            msg = f"{name}: {each['message']}"
            raise SystemExit(msg)
    records = [each["record"] for each in answers]
    return {
        "what": name,
        "seconds_per_launch": [each["seconds_per_launch"] for each in records],
        "launches": records[0]["launches_profiled"],
        "passes": records[0]["passes"],
        "wall_s": round(time.monotonic() - started, 1),
    }


def probes(until: float) -> list[dict]:
    every = "published,stalls,roofline"
    plan = [
        ("alone", (0,), True, False, "published"),
        ("alone, GPU 1", (1,), True, False, "published"),
        ("two, own TMPDIR", (0, 1), True, False, "published"),
        ("two, own TMPDIR, half the cores each", (0, 1), True, True, "published"),
        ("two, one TMPDIR", (0, 1), False, False, "published"),
        ("alone, more metrics", (0,), True, False, every),
        ("two, own TMPDIR, more metrics", (0, 1), True, False, every),
    ]
    found = []
    for name, gpus, own, pin, metrics in plan:
        if time.monotonic() > until:
            found.append({"what": name, "skipped": "no time left"})
            continue
        found.append(probe(name, gpus, own=own, pin=pin, metrics=metrics))
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


def programs(path: Path, steps: int, count: int) -> Path:
    commands = [[str(PROGRAM), str(steps), str(size)] for size in range(1, count + 1)]
    document = {"matrix": {"command": commands}, "defaults": {"metric_iterations": 100}}
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


def compared(pin: bool) -> dict[str, Any]:
    file = twelve(WORK / "twelve.json")
    extra = ("--pin",) if pin else ()
    one = timed(file, WORK / "one", "--gpus", "1")
    say({"one": one["summary"], "rates": rates(WORK / "one")})
    two = timed(file, WORK / "two", "--gpus", "2", *extra)
    for each in (*one["runs"], *two["runs"]):
        if each["message"]:
            say({each["run_id"]: each["message"][:300]})
    say({"two": two["summary"], "rates": rates(WORK / "two")})
    return {
        "pinned": pin,
        "codes": [one["code"], two["code"]],
        "wall_s": [round(each["wall_s"], 2) for each in (one, two)],
        "gpu_s": [each["summary"]["gpu_seconds"] for each in (one, two)],
        "done": [each["summary"]["done"] for each in (one, two)],
        "launches": [each["summary"]["launches"] for each in (one, two)],
        "seconds_per_launch": [
            round(statistics.median(rates(WORK / name) or [0.0]), 4) for name in ("one", "two")
        ],
        "ratio": round(one["wall_s"] / two["wall_s"], 3),
        "run_s": {
            each["run_id"]: [each["seconds"], other["seconds"], other["gpu"]]
            for each, other in zip(one["runs"], two["runs"], strict=True)
        },
        "metrics": differences(WORK / "one", WORK / "two"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=320)
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    given.out.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    build()
    warm()
    results: dict[str, Any] = {"probes": probes(time.monotonic() + 60)}
    rate = {each["what"]: max(each.get("seconds_per_launch", [9])) for each in results["probes"]}
    pinned = rate["two, own TMPDIR, half the cores each"] < 0.97 * rate["two, own TMPDIR"]
    results["sweep"] = compared(pinned)
    save(given.out, results)
    for name, kill in (("worker killed", kill_worker), ("driver killed", kill_driver)):
        if time.monotonic() + 45 > end:
            results[name] = {"passed": False, "skipped": "no time left"}
        else:
            results[name] = kill(WORK / name.replace(" ", "-"))
            say({name: results[name]})
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
        print(f"{each['what']:<40} {rate or each.get('skipped')} s a launch", each.get("passes"))
    found = results["sweep"]
    print(f"twelve runs: {found['wall_s']} s, ratio {found['ratio']} (goal {GOAL})")
    print(f"GPU s {found['gpu_s']}, s a launch {found['seconds_per_launch']}, {found['metrics']}")
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
