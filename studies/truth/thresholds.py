"""How much do the numbers of `perfml.explain.tree.thresholds` matter? First answers with others.

Run: ``python -m studies.truth.thresholds``; a minute, no GPU. Each number is halved and doubled by
itself, and every recorded pair is asked again; the half *aside* of the exams is counted apart.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from perfml.explain.tree import thresholds
from studies.page_tables import markdown
from studies.truth.confidence import FACTORIAL, PLANTED, questions
from studies.truth.questions import Question
from studies.truth.scores import ASIDE, DEVELOP
from studies.truth.sets import ask_perfml

NAMES = ("GREW", "NEGLIGIBLE", "MAJORITY", "QUEUED", "OVERLAP")
PARTS = (PLANTED, DEVELOP, ASIDE, FACTORIAL)
FACTORS = (0.5, 2.0)


@contextmanager
def changed(name: str, factor: float) -> Iterator[None]:
    """Multiply a number in every module of the tree that reads it."""
    value = getattr(thresholds, name)
    modules = [
        module
        for key, module in sys.modules.items()
        if key.startswith("perfml.explain.tree") and hasattr(module, name)
    ]
    for module in modules:
        setattr(module, name, factor * value)
    try:
        yield
    finally:
        for module in modules:
            setattr(module, name, value)


def firsts(asked: list[tuple[str, Question]]) -> Counter[str]:
    """Return how many causes stand first, by part."""
    found: Counter[str] = Counter()
    for part, question in asked:
        found[part] += ask_perfml(question).place == 1
    return found


def main() -> int:
    """Ask, and print a table."""
    asked = list(questions())
    rows = [["as they are", "", *_counts(firsts(asked))]]
    for name in NAMES:
        for factor in FACTORS:
            with changed(name, factor):
                rows.append([name, f"x {factor:g}", *_counts(firsts(asked))])
    sys.stdout.write(markdown(["number", "times", *PARTS], rows) + "\n")
    return 0


def _counts(found: Counter[str]) -> list[int]:
    return [found[part] for part in PARTS]


if __name__ == "__main__":
    sys.exit(main())
