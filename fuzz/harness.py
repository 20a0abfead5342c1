"""The process that fuzzes: ``python -m fuzz.harness SECONDS JOBS``, JOBS as JSON.

Instrumenting the readers and their libraries takes longer than a target's share of CI, so it is
done once: each job is a fork of this process. Jobs are lists of a target's name, the folder of its
findings, the file for what libFuzzer says, and libFuzzer's options; the exit statuses are printed
as JSON, null for a job that did not end within SECONDS. Findings are kept one for each place in
the code, and the fuzzing goes on.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import traceback
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["perfml", "collectors.workloads.yolov4_tiny"]):
    from fuzz.targets import TARGETS, one
from fuzz.mutate import mutated


def main() -> None:
    """Fuzz one target after the other, and print how each ended."""
    seconds, jobs = float(sys.argv[1]), json.loads(sys.argv[2])
    fork = multiprocessing.get_context("fork")
    ended = []
    for job in jobs:
        process = fork.Process(target=fuzz, args=job)
        process.start()
        process.join(seconds)
        ended.append(process.exitcode)
        process.kill()
        process.join()
    json.dump(ended, sys.stdout)


def fuzz(name: str, folder: str, said: str, options: list[str]) -> None:
    """Fuzz a target in this process, which ends with it."""
    log = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    words = [word.encode() for word in TARGETS[name].words]

    def test_one_input(data: bytes) -> None:
        try:
            one(name, data)
        except Exception as error:
            keep(error, data, Path(folder))

    def mutator(data: bytes, size: int, seed: int) -> bytes:
        return mutated(data, size, seed, words, atheris.Mutate)

    atheris.Setup([sys.argv[0], *options], test_one_input, custom_mutator=mutator)
    atheris.Fuzz()


def keep(error: Exception, data: bytes, folder: Path) -> None:
    """Keep the shortest input that leads to an error at one place, with its traceback."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    key = f"{type(error).__name__}-{Path(place.filename).stem}-{place.lineno}"
    path = folder / key
    if path.is_file() and path.stat().st_size <= len(data):
        return
    path.write_bytes(data)
    path.with_name(f"{key}.txt").write_text("".join(traceback.format_exception(error)))


if __name__ == "__main__":
    main()
