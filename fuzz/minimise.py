"""Keep of a corpus the few small inputs that reach all that the whole corpus reaches.

``python -m fuzz.minimise TARGET FOLDER...`` writes them to ``fuzz/corpus/TARGET``.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from fuzz.targets import CORPUS, ROOT, TARGETS, one

MOST = 45_000
"""Bytes that one target's corpus may take in the repository."""

_OURS = (str(ROOT / "perfml"), str(ROOT / "collectors"))


def reached(name: str, data: bytes) -> frozenset[tuple[str, int, int]]:
    """Return the steps from line to line that an input takes through perfml."""
    steps: set[tuple[str, int, int]] = set()

    def calls(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        del event, argument
        file = frame.f_code.co_filename
        if not file.startswith(_OURS):
            return None
        last = 0

        def lines(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
            nonlocal last
            del argument
            if event == "line":
                steps.add((file, last, frame.f_lineno))
                last = frame.f_lineno
            return lines

        return lines

    sys.settrace(calls)
    try:
        one(name, data)
    except Exception:
        steps.add(("finding", 0, 0))
    finally:
        sys.settrace(None)
    return frozenset(steps)


def minimised(name: str, inputs: list[bytes], most: int = MOST) -> list[bytes]:
    """Return inputs, small ones first, each of which reaches something that those before do not.

    Parameters
    ----------
    name
        The target.
    inputs
        The corpus.
    most
        Bytes of all that are kept.
    """
    known: set[tuple[str, int, int]] = set()
    kept: list[bytes] = []
    for data in sorted(dict.fromkeys(inputs), key=lambda data: (len(data), data)):
        if sum(map(len, kept)) + len(data) > most:
            continue
        new = reached(name, data) - known
        if new:
            known |= new
            kept.append(data)
    return kept


def main() -> None:
    """Minimise the folders given into the corpus of a target."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("folders", nargs="+", type=Path)
    asked = parser.parse_args()
    name = asked.target
    inputs = [
        path.read_bytes() for folder in asked.folders for path in folder.iterdir() if path.is_file()
    ]
    kept = minimised(name, inputs)
    target = CORPUS / name
    if target.is_dir():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    for data in kept:
        (target / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    sys.stdout.write(f"{name}: {len(kept)} of {len(inputs)} inputs, {sum(map(len, kept))} bytes\n")


if __name__ == "__main__":
    main()
