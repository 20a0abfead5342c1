"""Fuzz the text readers: ``python -m fuzz.run --seconds 30 [--target ncu_csv]``.

Needs the package atheris (extra ``fuzz``), which has wheels for some versions of Python only. Each
target runs in a process of its own, from the seeds and the corpus beside this file. Exits with 1
if there is a finding: it lies under ``--out``, with its traceback in a file beside it.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fuzz.targets import CORPUS, SLOWEST_S, TARGETS

ROOT = Path(__file__).resolve().parent.parent
_MEMORY_MIB = 1024
"""The instrumented readers and their libraries take 150 MiB without input."""


def main(arguments: list[str] | None = None) -> int:
    """Fuzz; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=30, help="for all targets together")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS))
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
    targets = given.target or sorted(TARGETS)
    found = 0
    for name in targets:
        found += fuzzed(name, max(1, given.seconds // len(targets)), given.out, given.corpus)
    sys.stdout.write(f"{len(targets)} targets, {found} findings\n")
    return 1 if found else 0


def fuzzed(name: str, seconds: int, out: Path, kept: Path | None) -> int:
    """Fuzz one target; return how many findings there are."""
    findings = (out / name).resolve()
    findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="perfml-fuzz-") as folder:
        corpus = Path(folder) if kept is None else kept.resolve() / name
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(TARGETS[name].seeds()):
            (corpus / f"seed-{number}").write_bytes(seed)
        for path in sorted((CORPUS / name).glob("*")):
            shutil.copy(path, corpus)
        command = [
            *(sys.executable, "-m", "fuzz.harness", name, str(findings)),
            *(f"-max_total_time={seconds}", f"-timeout={SLOWEST_S * 15:.0f}"),
            *(f"-rss_limit_mb={_MEMORY_MIB}", f"-artifact_prefix={findings}/", "-max_len=16384"),
            str(corpus),
        ]
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        try:
            ended = subprocess.run(  # noqa: S603 - this interpreter, our own module
                command,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=seconds + 300,
                check=False,
            )
            said, code = ended.stdout.decode("utf-8", "replace"), ended.returncode
        except subprocess.TimeoutExpired as error:
            said, code = (error.stdout or b"").decode("utf-8", "replace"), 1
    runs = [line for line in said.splitlines() if line.startswith("Done ")]
    names = sorted(path.name for path in findings.iterdir() if path.suffix != ".txt")
    if code != 0 and not names:
        (findings / "died").write_text(said[-20_000:], encoding="utf-8")
        names = ["died"]
    sys.stdout.write(f"{name}: {runs[-1] if runs else 'no end'}\n")
    for each in names:
        sys.stdout.write(f"  finding: {findings / each}\n")
    return len(names)


if __name__ == "__main__":
    sys.exit(main())
