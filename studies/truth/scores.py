"""What studies of the truth share: planted causes, halves, intervals of a share, output."""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfml.errors import InputError
from perfml.util.files import write_text
from studies.truth.labels import ids_of

EFFECT = 1.05
"""A knob that makes a launch less than 5 % slower has no effect to explain; it is no case."""

TRUTH_FILE = "truth.json"

CONFIDENT = 0.5
"""A cause that is said to be at least half of the ratio is said with confidence."""

DEVELOP, ASIDE = "develop", "aside"


def half_of(name: str) -> str:
    """Return the half of what was recorded that a pair of an exam, or a family, belongs to."""
    return DEVELOP if hashlib.sha256(name.encode()).digest()[0] % 2 == 0 else ASIDE


def run_study(
    measure: Callable[..., dict[str, Any]],
    doc: str | None,
    arguments: Sequence[str] | None = None,
) -> int:
    """Run a study of recorded data as a program: measure, then print the document or keep it.

    Parameters
    ----------
    measure
        Returns the document. It takes a folder with labels and reports of strangers, or nothing.
    doc
        Of its module.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--out", type=Path, help="keep what was measured here")
    for name in inspect.signature(measure).parameters:
        parser.add_argument(f"--{name}", type=Path, help="folder with labels.json and the reports")
    given = vars(parser.parse_args(arguments))
    out = given.pop("out")
    hand_over(measure(**given), out)
    return 0


def hand_over(document: dict[str, Any], out: Path | None) -> None:
    """Print a study's document, or write it to a file."""
    text = json.dumps(document, indent=1) + "\n"
    if out is None:
        sys.stdout.write(text)
    else:
        write_text(out, text)


@dataclass(frozen=True)
class Family:
    """What was planted: see ``studies/workloads/planted/families.py``."""

    name: str
    kind: str
    layers: tuple[str, ...]
    metrics: frozenset[str]
    terms: frozenset[str]
    rules: frozenset[str]


@dataclass(frozen=True)
class Truth:
    """The families of a dataset, and the names of the knob's levels."""

    baseline: str
    levels: tuple[str, ...]
    families: tuple[Family, ...]


def read_truth(folder: Path, *, held_out: bool = False) -> Truth:
    """Read the planted causes beside a dataset: ``truth.json`` there, or of one of its runs.

    Parameters
    ----------
    folder
        The dataset.
    held_out
        Return the families that are kept aside, and only those; by default all others.

    Raises
    ------
    InputError
        If there is none, or it is no such document.
    """
    found = [folder / TRUTH_FILE, *sorted(folder.glob(f"*/{TRUTH_FILE}"))]
    found += sorted(folder.glob(f"*/*/{TRUTH_FILE}"))
    path = next((each for each in found if each.is_file()), None)
    if path is None:
        what, cure = "no planted causes here", "Record one: perfml collect planted"
        raise InputError(what, where=str(folder), found=f"no {TRUTH_FILE}", cure=cure)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        families = tuple(
            _family(each)
            for each in document["families"]
            if bool(each.get("held_out", False)) is held_out
        )
        levels = tuple(map(str, document["levels"]))
        return Truth(str(document["baseline"]), levels, families)
    except (ValueError, KeyError, TypeError) as error:
        what = "not a document of planted causes"
        raise InputError(what, where=str(path), found=repr(error)[:200]) from error


def _family(each: dict[str, Any]) -> Family:
    cause = each["cause"]
    return Family(
        each["family"],
        each["kind"],
        tuple(each["layers"]),
        frozenset(cause["metrics"]),
        frozenset(name for recorded in cause["terms"] for name in ids_of(recorded)),
        frozenset(cause["rules"]),
    )


def wilson(hits: int, cases: int, z: float = 1.959964) -> tuple[float, float]:
    """Return Wilson's interval of a share.

    References
    ----------
    E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    Journal of the American Statistical Association 22 (1927).

    Examples
    --------
    >>> [round(each, 3) for each in wilson(8, 10)]
    [0.49, 0.943]
    """
    if cases == 0:
        return 0.0, 1.0
    share, spread = hits / cases, z * z / cases
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / cases + spread / (4 * cases))
    return max(0.0, middle - half), min(1.0, middle + half)


GENERAL = ("HighPipeUtilization", "IssueSlotUtilization", "SOLBottleneck")
"""Nsight Compute's remarks on a symptom (idle pipes, idle issue slots, low throughput)."""
