"""The clock of two sides beside the first two rows of `key_averages`, of planted slowdowns.

    python -m studies clock.steps FOLDER ...

A folder has ``results.json`` (label and step times without a profiler by case) and the traces
``CASE_fast.json.gz`` and ``CASE_slow.json.gz``. Prints a row a case. The rows are those of the
slower side: largest self time on the CPU, and on the device, of which steps and ranges are left
out.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from perfml.account.account import ACCOUNT, Account
from perfml.account.origins import Origins
from perfml.account.recording import HostKind
from perfml.account.steps import find_steps
from perfml.errors import PerfmlError
from perfml.explain.steps import StepComparison
from perfml.readers import read
from perfml.readers.chrome_trace import ChromeTrace
from perfml.readers.source import Source
from perfml.readers.torch_events import Events


def first_rows(path: Path) -> tuple[list[str], list[str]]:
    """Return the two operators or calls with most self time on the CPU, and on the device."""
    recording = Events(ChromeTrace(Source(path), "")).recording()
    on_cpu, on_device = Counter[str](), Counter[str]()
    inside: dict[int, list[tuple[str, int]]] = {}
    for span in recording.spans(HostKind.OPERATOR, HostKind.CALL, HostKind.RANGE):
        around = inside.setdefault(span.thread, [])
        while around and around[-1][1] <= span.start:
            around.pop()
        on_cpu[span.name] += span.end - span.start
        if around:
            on_cpu[around[-1][0]] -= span.end - span.start
        around.append((span.name, span.end))
    for span in recording.spans(HostKind.RANGE):
        on_cpu.pop(span.name, None)
    steps = find_steps(recording)
    origins = Origins(recording, steps).all(recording.activities)
    for activity, origin in zip(recording.activities, origins, strict=True):
        on_device[origin.operator or activity.name] += activity.end - activity.start
    cpu, device = ([name for name, _ in each.most_common(2)] for each in (on_cpu, on_device))
    return cpu, device


def row(folder: Path, case: str, label: str, bare: list[float]) -> list[str]:
    """Return what is printed of a case."""
    paths = [folder / f"{case}_{side}.json.gz" for side in ("fast", "slow")]
    try:
        one, other = (Account.from_dict(read(path).provenance[ACCOUNT]) for path in paths)
    except PerfmlError as error:
        return [case, label, str(error).split(": ", 1)[-1][:40]]
    step = StepComparison(("fast", "slow"), one, other)
    rows = first_rows(paths[int(step.difference_us > 0)])
    without = f"{bare[1] / bare[0]:.2f}" if len(bare) > 1 else ""
    said = f"{step.first_cause or 'none'} ({step.confidence})"
    names = [", ".join(name[:36] for name in each) for each in rows]
    return [case, label or "none", without, f"{step.ratio:.2f}", step.verdict, said, *names]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    for folder in parser.parse_args().folders:
        results = json.loads((folder / "results.json").read_text("utf-8"))
        for case, known in results.items():
            bare = [known[side]["step_ms"] for side in ("fast", "slow") if side in known]
            if (folder / f"{case}_slow.json.gz").is_file():
                print("|", " | ".join(row(folder, case, known["label"], bare)), "|", flush=True)


if __name__ == "__main__":
    main()
