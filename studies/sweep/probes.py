"""What takes turns when profilers work on several GPUs of one host: launches and replays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from studies.sweep.cases import FEW, PROGRAM, THREE, WORK


@dataclass(frozen=True)
class Probe:
    """One way to profile the same program on one GPU, or on several at once.

    Attributes
    ----------
    group
        What it is asked for by.
    name
        What it does.
    together
        Whether all GPUs do it at once.
    metrics, options, steps
        What is profiled, how, and over how many steps of three launches.
    """

    group: str
    name: str
    together: bool = True
    metrics: str = "published"
    options: tuple[str, ...] = ()
    steps: int = 6


PROBES = (
    Probe("passes", "8 passes", together=False),
    Probe("passes", "8 passes"),
    Probe("passes", "1 pass", together=False, metrics=FEW, steps=40),
    Probe("passes", "1 pass", metrics=FEW, steps=40),
    Probe("passes", "3 passes", together=False, metrics=THREE),
    Probe("passes", "3 passes", metrics=THREE),
)
GROUPS = ("driver", *dict.fromkeys(each.group for each in PROBES))
REGISTERS = "b0cc010a"
"""NVB0CC_CTRL_CMD_EXEC_REG_OPS: the driver reads and writes registers of the counters."""
LARGEST = 5


def on(gpu: int) -> dict[str, str]:
    """Return the environment of a worker of `gpu`, as a sweep gives it."""
    own = {"CUDA_VISIBLE_DEVICES": str(gpu), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return {**os.environ, **own, "TMPDIR": str(folder_of(gpu))}


def folder_of(gpu: int) -> Path:
    folder = WORK / f"gpu-{gpu}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def at_once(commands: Iterable[list[str]]) -> list[tuple[str, str, float]]:
    """Run one command a GPU at the same time; return what each said, and took."""
    began = time.monotonic()
    running = [
        subprocess.Popen(
            command, env=on(gpu), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for gpu, command in enumerate(commands)
    ]
    ended: dict[int, float] = {}
    while len(ended) < len(running):
        for gpu, each in enumerate(running):
            if gpu not in ended and each.poll() is not None:
                ended[gpu] = time.monotonic() - began
        time.sleep(0.002)
    return [(*each.communicate(), ended[gpu]) for gpu, each in enumerate(running)]


def probe(how: Probe, gpus: int) -> dict[str, Any]:
    """Profile the same program on one GPU or on all; return seconds a launch on each."""
    count = gpus if how.together else 1
    commands = []
    for gpu in range(count):
        out = WORK / f"probe-{PROBES.index(how)}-{gpu}"
        command = [sys.executable, "-m", "perfml", "collect", "--timing", "ncu", "--json"]
        for word in how.metrics.split(","):
            command += ["--metrics", word]
        command += [*how.options, "--out", str(out), "--", str(PROGRAM), str(how.steps), "2"]
        commands.append(command)
    said = at_once(commands)
    found: dict[str, Any] = {"what": how.name, "gpus": count, "wall_s": round(said[0][2], 1)}
    try:
        records = [json.loads(answer)["runs"][0]["record"] for answer, _, _ in said]
        found["launches"] = records[0]["launches_profiled"]
        found["passes"] = records[0]["passes"]
        found["seconds_per_launch"] = [each["seconds_per_launch"] for each in records]
        found["profiling_s"] = [each["profiling_seconds"] for each in records]
    except (ValueError, LookupError, TypeError):
        found["failed"] = " | ".join(
            " ".join((error or answer).split())[-200:] for answer, error, _ in said
        )
    return found


def driver(gpus: int) -> list[dict[str, Any]]:
    """Time a profiled program's calls into the kernel driver, on one GPU and on all at once."""
    library = WORK / "driver_calls.so"
    source = Path(__file__).with_name("driver_calls.c")
    build = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(build, check=True)
    found = []
    for count in (1, gpus):
        stem = WORK / f"calls-{count}"
        at = [f"LD_PRELOAD={library}", f"DRIVER_CALLS={stem}"]
        said = at_once(["env", *at, *_profiled(gpu, steps=8)] for gpu in range(count))
        totals = [calls for path in WORK.glob(f"{stem.name}.*") if (calls := _calls(path))]
        largest = sorted(totals[0], key=lambda name: -totals[0][name][1])[:LARGEST]
        found.append(
            {
                "what": "driver calls of the program under ncu, 24 launches",
                "gpus": count,
                "wall_s": [round(each[2], 2) for each in said],
                "driver_s": [round(sum(s for _, s in each.values()), 3) for each in totals],
                "register_calls": [each[REGISTERS][0] for each in totals],
                "register_s": [round(each[REGISTERS][1], 3) for each in totals],
                "largest": {name: [round(each[name][1], 3) for each in totals] for name in largest},
            }
        )
    return found


def _profiled(gpu: int, steps: int) -> list[str]:
    from perfml.metrics import load_catalogue

    metrics = ",".join(load_catalogue().ncu_request())
    base = ["ncu", "--metrics", metrics, "--clock-control", "none", "--disable-extra-suffixes"]
    return [*base, "-f", "-o", f"{WORK}/calls-{gpu}.ncu-rep", str(PROGRAM), str(steps), "2"]


def _calls(path: Path) -> dict[str, tuple[int, float]]:
    """Return name to calls and seconds of a process that read counters; empty for others."""
    rows = [line.split() for line in path.read_text().splitlines()]
    found = {name: (int(calls), float(seconds)) for name, calls, seconds in rows}
    return found if REGISTERS in found else {}


def probes(groups: Iterable[str], gpus: int, until: float) -> Iterable[dict[str, Any]]:
    """Give what was found, one after another, as long as there is time."""
    for how in PROBES:
        if how.group in groups:
            if time.monotonic() > until:
                yield {"what": how.name, "skipped": "no time left"}
            else:
                yield probe(how, gpus)
    if "driver" in groups:
        if time.monotonic() > until:
            yield {"what": "driver", "skipped": "no time left"}
        else:
            yield from driver(gpus)
