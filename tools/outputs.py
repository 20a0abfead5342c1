"""Record the outputs of perfml that a refactoring must not change, and compare two recordings.

``python tools/outputs.py record DIR [--truth] [--reproduce CSV] [--profiles FOLDER]``
asks this checkout's command line about the recorded data: one JSON file an output (a minute).
``python tools/outputs.py compare BEFORE AFTER [--names names.json]`` prints what differs, path by
path; exit 1 when anything does. Both take ``--only 'explain*'``.

BEFORE is read through the names file, ``{"old": "new"}``, or ``{"keys": {...}, "labels": {...}}``
where a word is renamed only as a key or only inside values. Only the command line is called, so
that modules may move. Tables are kept value by value, not as a digest: a sum taken in another
order moves a last digit, which is no difference.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RELATIVE, NEAR_ZERO = 1e-9, 1e-12
"""Numbers are the same within these: the remainder of a sum of logarithms is never exactly 0."""
VOLATILE = {"perfml", "perfml_version", "created", "seconds"}
TIME_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")
YOLO = "h200-yolov4-tiny"
FP32 = f"{YOLO} --where precision=fp32 --where batch=8"
FP16 = f"{YOLO} --where precision=fp16 --where batch=1"
LIBRARIES = "--baseline cublas --target cudnn"
COMMANDS = {
    "ingest": f"ingest datasets/{YOLO}/runs --out WORK/kernels.parquet",
    "merge": "merge WORK/kernels.parquet --out WORK/layers.parquet",
    "metrics": "metrics",
    "inspect-kernels": "inspect WORK/kernels.parquet",
    "inspect-layers": "inspect WORK/layers.parquet",
    "roofline-layers": f"roofline {FP32}",
    "roofline-kernels": "roofline h200-conv --per kernel",
    "advise": f"advise {FP32} --top 1000",
    "advise-planted": "advise h200-planted --top 1000",
    "explain-layer": f"explain {FP32} {LIBRARIES} --layer conv_20 --model none",
    "explain-model": f"explain {FP32} {LIBRARIES} --layer conv_20 --model gbr --seed 0",
    "explain-all": f"explain {FP32} {LIBRARIES} --top 99 --model none",
    "explain-fp16": f"explain {FP16} --baseline cudnn --target inductor --top 99 --model none",
    "explain-conv": "explain h200-conv --baseline tile8 --target unrolled --top 99 --model none",
    "explain-attention": "explain h200-attention --baseline separate --target fused --model none",
    "rank": f"rank {FP32} --model dt,gbr --resamples 3 --seed 0",
    "rank-backends": f"rank {FP32} --predict backend --resamples 3 --seed 0",
    "train": f"train {FP32} --model dt,lmt --splits 3 --seed 0",
    "train-backends": f"train {FP32} --predict backend --model dt,lr --splits 3 --seed 0",
    "select": f"select {FP32} --most 2 --seed 0",
}
"""Output -> its verb and options; the first two write the tables that others read."""


@dataclass(frozen=True)
class Recorder:
    """Runs perfml and writes what it says, without what differs between two runs."""

    out: Path
    work: Path

    def run(self, name: str, arguments: Sequence[str]) -> bool:
        """Record the JSON that a Python program prints, or its error; return whether it worked."""
        command = [sys.executable, *(part.replace("WORK", str(self.work)) for part in arguments)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        process = subprocess.run(  # noqa: S603 - this interpreter, arguments from this file
            [*command, "--json"], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        try:
            output = json.loads(process.stdout)
        except ValueError:
            output = {"error": process.stderr.splitlines()}
        self.write(name, {"exit": process.returncode, "output": output})
        sys.stderr.write(f"{name}: exit {process.returncode}\n")
        return "error" not in output

    def table(self, table: str, name: str) -> None:
        """Record every value of a Parquet table in the working folder, by column."""
        from pyarrow.parquet import read_table

        self.write(name, read_table(self.work / f"{table}.parquet").to_pydict())

    def write(self, name: str, document: Any) -> None:
        """Write one output, first to a temporary name."""
        partial = self.out / f"{name}.json.partial"
        partial.write_text(json.dumps(self.stable(document), default=str), encoding="utf-8")
        partial.replace(self.out / f"{name}.json")

    def stable(self, value: Any) -> Any:
        """Return a document without paths of this machine, time stamps and perfml's version."""
        if isinstance(value, dict):
            return {k: self.stable(v) for k, v in value.items() if k not in VOLATILE}
        if isinstance(value, list):
            return [self.stable(part) for part in value]
        if not isinstance(value, str):
            return value
        value = value.replace(str(self.work), "WORK").replace(str(ROOT), "REPO")
        return TIME_STAMP.sub("TIME", value)


def record(given: argparse.Namespace) -> int:
    """Record all outputs asked for; return 1 when a verb failed (not: to read a profile)."""
    programs = {name: ["-m", "perfml", *shlex.split(line)] for name, line in COMMANDS.items()}
    if given.truth:
        programs["truth"] = [given.truth]
    if given.reproduce:
        study = ["--data", str(given.reproduce.resolve()), "--splits", "5", "--out", "WORK/study"]
        programs["reproduce"] = ["-m", "perfml", "reproduce", *study]
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(given.folder, Path(folder))
        complete = [
            recorder.run(name, program)
            for name, program in programs.items()
            if fnmatch(name, given.only) or name in ("ingest", "merge")
        ]
        recorder.table("kernels", "table-kernels")
        recorder.table("layers", "table-layers")
        for path in sorted(given.profiles.rglob("*.*")) if given.profiles else ():
            name = "profile-" + "-".join(path.relative_to(given.profiles).parts)
            shutil.copyfile(path, Path(folder, path.name))
            files = [f"WORK/{path.name}", "--out", f"WORK/{name}.parquet"]
            if recorder.run(name, ["-m", "perfml", "ingest", *files]):
                recorder.table(name, f"table-{name}")
    return 0 if all(complete) else 1


def renamed(value: Any, keys: Mapping[str, str], labels: Mapping[str, str]) -> Any:
    """Return a document with new names: its keys, and its strings or the words inside them."""
    words = "|".join(map(re.escape, sorted(labels, key=len, reverse=True))) or "(?!)"
    pattern = re.compile(rf"(?<!\w)({words})(?!\w)")

    def rename(value: Any) -> Any:
        if isinstance(value, dict):
            new = {keys.get(key, key): rename(part) for key, part in value.items()}
            if len(new) == len(value):
                return new
            sys.exit(f"error: the names file makes one key of two among {', '.join(value)}")
        if isinstance(value, list):
            return [rename(part) for part in value]
        is_text = isinstance(value, str)
        return pattern.sub(lambda match: labels[match[1]], value) if is_text else value

    return rename(value)


def differences(before: Any, after: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield what differs: the kind ("before", "after": only there; or "value"), and where."""
    start, end = ".", ""
    if isinstance(before, list) and isinstance(after, list):
        before, after = by_label(before, after)
        start, end = "[", "]"
        if list(before) != list(after) and set(before) == set(after):
            yield "value", f"{path}: another order"
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before | after:
            inner = f"{path}{start}{key}{end}"
            if key in before and key in after:
                yield from differences(before[key], after[key], inner)
            else:
                yield ("before" if key in before else "after"), inner
    elif not same(before, after):
        yield "value", f"{path}: {json.dumps(before)[:160]} -> {json.dumps(after)[:160]}"


def by_label(before: list[Any], after: list[Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return both lists by the strings that tell their objects apart, or else by position."""
    both = [*before, *after]
    if before and all(isinstance(part, dict) for part in both):
        texts = [k for k in before[0] if all(isinstance(part.get(k), str) for part in both)]
        for count in range(1, min(len(texts), 6) + 1):
            left, right = (
                {", ".join(part[key] for key in texts[:count]): part for part in parts}
                for parts in (before, after)
            )
            if len(left) == len(before) and len(right) == len(after):
                return left, right
    return dict(enumerate(before)), dict(enumerate(after))


def same(before: Any, after: Any) -> bool:
    """Return whether two plain values are the same; numbers within the tolerance."""
    if not {type(before), type(after)} <= {int, float}:
        return bool(before == after) and type(before) is type(after)
    close = math.isclose(before, after, rel_tol=RELATIVE, abs_tol=NEAR_ZERO)
    return close or (math.isnan(before) and math.isnan(after))


def compare(given: argparse.Namespace) -> int:
    """Print the differences of two recordings; return 1 when there are any."""
    names = json.loads(given.names.read_text(encoding="utf-8")) if given.names else {}
    keys = names.get("keys", {} if "labels" in names else names)
    labels = names.get("labels", {} if "keys" in names else names)
    files = {path.name for side in (given.before, given.after) for path in side.glob("*.json")}
    files = {file for file in files if fnmatch(file, given.only + ".json")}
    total = 0
    for file in sorted(files):
        name = file.removesuffix(".json")
        paths = (given.before / file, given.after / file)
        before, after = (json.loads(p.read_text()) if p.exists() else "not there" for p in paths)
        values, alone = list[str](), Counter[str]()
        for kind, text in differences(renamed(before, keys, labels), after, name):
            if kind == "value":
                values.append(text)
            else:
                alone[f"only {kind}: " + re.sub(r"\[[^\]]*\](?=.)", "[*]", text)] += 1
        total += len(values) + len(alone)
        if len(values) > given.most:
            values[given.most :] = [f"{name}: and {len(values) - given.most} more"]
        counted = [f"{text} ({count} times)" for text, count in alone.items()]
        sys.stdout.writelines(f"{line}\n" for line in (*values, *counted))
    sys.stdout.write(f"{len(files)} outputs compared, {total} differences\n")
    return 1 if total or not files else 0


def main() -> int:
    """Record, or compare."""
    parser = argparse.ArgumentParser(description="Record or compare the outputs of perfml.")
    verbs = parser.add_subparsers(required=True)
    recording = verbs.add_parser("record", help="record the outputs of this checkout")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--truth", nargs="?", const="benchmarks/truth.py", metavar="SCRIPT")
    recording.add_argument("--reproduce", type=Path, metavar="CSV", help="the study, on this data")
    recording.add_argument("--profiles", type=Path, metavar="FOLDER", help="ingest of its files")
    comparing = verbs.add_parser("compare", help="compare two recordings")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--names", type=Path, help="JSON: old names -> new ones")
    comparing.add_argument("--most", type=int, default=40, help="values printed of an output")
    for verb, action in ((recording, record), (comparing, compare)):
        verb.set_defaults(action=action)
        verb.add_argument("--only", default="*", help="outputs whose name matches, like 'explain*'")
    given = parser.parse_args()
    return int(given.action(given))


if __name__ == "__main__":
    sys.exit(main())
