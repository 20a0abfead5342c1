"""Judge every claim of chapter 2: ``python -m studies.reproduction --out FOLDER``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from perfml.reproduce import Plan, write
from perfml.reproduce.files import headline, make_folder
from studies.reproduction.parts import all_parts
from studies.reproduction.study import reproduce


def main() -> None:
    """Analyse, write the folder, print a line a claim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="the published dataset.csv")
    parser.add_argument("--splits", type=int, default=500)
    given = parser.parse_args()
    make_folder(given.out)
    found = reproduce(given.data, plan=Plan(splits=given.splits))
    write(found.analysis, given.out, all_parts(found))
    lines = [*found.analysis.notes, *headline(found.analysis)]
    lines += [f"{one.verdict}: {one.claim}. {one.evidence} ({one.data})" for one in found.claims]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
