"""One fuzzing process: ``python -m fuzz.harness TARGET FOLDER [libFuzzer options]``.

Findings are kept in FOLDER, one for each place in the code, and the fuzzing goes on.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["perfml", "collectors.workloads.yolov4_tiny"]):
    from fuzz.targets import TARGETS, one
from fuzz.mutate import mutated


def main() -> None:
    """Fuzz the target that the first argument names."""
    name, folder = sys.argv.pop(1), Path(sys.argv.pop(1))
    words = [word.encode() for word in TARGETS[name].words]

    def test_one_input(data: bytes) -> None:
        try:
            one(name, data)
        except Exception as error:
            keep(error, data, folder)

    def mutator(data: bytes, size: int, seed: int) -> bytes:
        return mutated(data, size, seed, words, atheris.Mutate)

    atheris.Setup(sys.argv, test_one_input, custom_mutator=mutator)
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
