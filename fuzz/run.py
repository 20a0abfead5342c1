"""Fuzz the text readers: ``python -m fuzz.run --seconds 30 [--target ncu_csv]``.

Needs the package atheris (extra ``fuzz``), which has wheels for some versions of Python only. Each
target runs in a process of its own (`fuzz.harness`), from the seeds and the corpus beside this
file. Exits with 1 if there is a finding: it lies under ``--out``, with its traceback beside it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fuzz.targets import CORPUS, SLOWEST_S, TARGETS

ROOT = Path(__file__).resolve().parent.parent
_MEMORY_MIB = 1024
"""The instrumented readers and their libraries take 150 MiB without input."""

_LATE_S = 300
"""Seconds that a target may take beyond its own until it is ended."""


def main(arguments: list[str] | None = None) -> int:
    """Fuzz; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=30, help="for all targets together")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS))
    parser.add_argument("--seed", type=int, default=0, help="the same inputs again; 0: others")
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"))
    parser.add_argument("--corpus", type=Path, help="keep and extend what is found here")
    given = parser.parse_args(arguments)
    if importlib.util.find_spec("atheris") is None:
        version = ".".join(map(str, sys.version_info[:2]))
        sys.stderr.write(
            f"error: atheris is not installed in this Python {version}: nothing was fuzzed\n"
            "Install it with: pip install atheris (it has wheels for Python 3.11 to 3.13).\n"
        )
        return 2
    names = given.target or sorted(TARGETS)
    with tempfile.TemporaryDirectory(prefix="perfml-fuzz-") as folder:
        targets = [laid_out(name, Path(folder), given.out, given.corpus) for name in names]
        fuzz(targets, max(1, given.seconds // len(names)), given.seed)
        found = sum(told(each) for each in targets)
    sys.stdout.write(f"{len(targets)} targets, {found} findings\n")
    return 1 if found else 0


@dataclass
class Fuzzed:
    """A target that is fuzzed.

    Attributes
    ----------
    name
        The target.
    findings, corpus
        Folders: what was found, and the inputs to start from.
    said
        File with what libFuzzer printed.
    code
        How its process ended; `None` if it had to be ended.
    """

    name: str
    findings: Path
    corpus: Path
    said: Path
    code: int | None = None


def laid_out(name: str, folder: Path, out: Path, kept: Path | None) -> Fuzzed:
    """Lay a target's seeds and corpus out, to be fuzzed from."""
    corpus = (folder if kept is None else kept.resolve()) / name
    fuzzed = Fuzzed(name, (out / name).resolve(), corpus, folder / f"{name}.txt")
    for made in (fuzzed.findings, corpus):
        made.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(TARGETS[name].seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    for path in sorted((CORPUS / name).glob("*")):
        shutil.copy(path, corpus)
    return fuzzed


def fuzz(targets: list[Fuzzed], seconds: int, seed: int) -> None:
    """Fuzz each target for `seconds`, and note how it ended."""
    jobs = []
    for each in targets:
        options = [
            *(f"-seed={seed}", f"-max_total_time={seconds}", f"-timeout={SLOWEST_S * 15:.0f}"),
            *(f"-rss_limit_mb={_MEMORY_MIB}", f"-artifact_prefix={each.findings}/"),
            *("-max_len=16384", str(each.corpus)),
        ]
        jobs.append((each.name, str(each.findings), str(each.said), options))
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    ended = subprocess.run(  # noqa: S603 - this interpreter, our own module
        [sys.executable, "-m", "fuzz.harness", str(seconds + _LATE_S), json.dumps(jobs)],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if ended.returncode != 0:
        sys.exit(f"error: the fuzzer did not start:\n{ended.stderr.decode('utf-8', 'replace')}")
    for each, code in zip(targets, json.loads(ended.stdout), strict=True):
        each.code = code


def told(fuzzed: Fuzzed) -> int:
    """Say how a target ended; return how many findings there are."""
    said = fuzzed.said.read_text("utf-8", "replace") if fuzzed.said.exists() else ""
    runs = [line for line in said.splitlines() if line.startswith("Done ")]
    names = sorted(path.name for path in fuzzed.findings.iterdir() if path.suffix != ".txt")
    if (fuzzed.code != 0 or not runs) and not names:
        (fuzzed.findings / "died").write_text(said[-20_000:], encoding="utf-8")
        names = ["died"]
    sys.stdout.write(f"{fuzzed.name}: {runs[-1] if runs else 'no end'}\n")
    for each in names:
        sys.stdout.write(f"  finding: {fuzzed.findings / each}\n")
    return len(names)


if __name__ == "__main__":
    sys.exit(main())
