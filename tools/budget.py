"""How large the project is, beside what it may be: ``python tools/budget.py [--round]``.

Prints a line a budget; exit 1 when one is exceeded. Statements, record types and modules of
``perfml`` may not exceed what they were at commit bcf8007a. Lines, and the goals of the round, are
judged with ``--round``. Counted are tracked files of Python, CUDA, C++, TOML, templates, scripts
and styles, those under ``studies/data`` too; no CSV and no recording. A statement is one of
Python's, imports and lone constants (docstrings) aside. A record type is a dataclass or a class of
`RECORDS`. Words and entries of the navigation are those of ``docs/_site/words.py``, of the built
``site`` where there is one. The wheel is built where none is named. What cannot be measured here
is said, and is no failure.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CODE = (".py", ".pyi", ".toml", ".cu", ".cuh", ".h", ".cpp", ".j2", ".js", ".css")
RECORDS = {"TypedDict", "NamedTuple", "Protocol", "enum.Enum", "Enum", "StrEnum", "msgspec.Struct"}
"""Bases of a class that is a record type."""


class Budget(NamedTuple):
    """What is counted, the most of it at any time, and the most at the end of the round."""

    name: str
    limit: float | None
    goal: float


BUDGETS = (
    # the limits are the counts at bcf8007a
    Budget("perfml, statements", 27_783, 23_500),
    Budget("perfml, record types", 367, 260),
    Budget("perfml, modules", 369, 280),
    Budget("perfml, lines", None, 58_000),
    Budget("perfml/explain, lines", None, 10_000),
    Budget("collectors, lines", None, 16_000),
    Budget("studies, lines", None, 20_000),
    Budget("tests, lines", None, 36_000),
    Budget("packed objects, MiB", 50, 50),
    Budget("site, words", 43_000, 43_000),
    Budget("navigation, entries", 25, 25),
    Budget("wheel, MB", 12, 12),
)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program in the repository."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def tracked(folder: str) -> list[Path]:
    """Return the files of code of a folder that are in the repository, or would be."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", folder)
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return [path for path in paths if path.suffix in CODE and path.is_file()]


def lines(folder: str) -> int:
    """Return the lines of a folder's files of code."""
    return sum(path.read_bytes().count(b"\n") for path in tracked(folder))


def statements(tree: ast.AST) -> int:
    """Return the statements of a module."""
    return sum(
        isinstance(node, ast.stmt)
        and not isinstance(node, ast.Import | ast.ImportFrom)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in ast.walk(tree)
    )


def records(tree: ast.AST) -> int:
    """Return the record types of a module."""
    return sum(
        any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
        or any(ast.unparse(base) in RECORDS for base in node.bases)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )


def pages() -> Iterator[tuple[str, float]]:
    """Yield what ``docs/_site/words.py`` counts."""
    site = ROOT / "site"
    counted = run(
        sys.executable, str(ROOT / "docs/_site/words.py"), *([str(site)] if site.is_dir() else [])
    )
    numbers = re.search(r"(\d+) words, \d+ outside the reference, (\d+) nav", counted.stdout)
    if numbers:
        names = ("site, words", "navigation, entries")
        yield from zip(names, map(float, numbers.groups()), strict=True)


def packed_mib() -> float:
    """Return the size of what this commit and all before it hold: what a clone fetches."""
    size = run("git", "rev-list", "--disk-usage", "--objects", "HEAD").stdout.strip()
    return int(size or 0) / 2**20


def wheel_mb(path: Path | None) -> float | None:
    """Return the size of a wheel, which is built where none is named; None without hatchling."""
    if path is not None:
        return path.stat().st_size / 1e6
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
        return next((wheel.stat().st_size / 1e6 for wheel in Path(folder).glob("*.whl")), None)


def measured(wheel: Path | None) -> dict[str, float]:
    """Return the counts, by the names of the budgets."""
    modules = [path for path in tracked("perfml") if path.suffix == ".py"]
    trees = [ast.parse(path.read_bytes()) for path in modules]
    counts: dict[str, float] = {
        "perfml, statements": sum(map(statements, trees)),
        "perfml, record types": sum(map(records, trees)),
        "perfml, modules": len(modules),
        "packed objects, MiB": packed_mib(),
        **dict(pages()),
    }
    for folder in ("perfml", "perfml/explain", "collectors", "studies", "tests"):
        counts[f"{folder}, lines"] = lines(folder)
    size = wheel_mb(wheel)
    return counts if size is None else {**counts, "wheel, MB": size}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 when a budget is exceeded."""
    parser = argparse.ArgumentParser(description="Compare sizes with their budgets.")
    parser.add_argument("--wheel", type=Path, help="one that was built; else it is built")
    parser.add_argument("--round", action="store_true", help="the goals of the round are limits")
    given = parser.parse_args(arguments)
    counts = measured(given.wheel)
    exceeded = 0
    print(f"{'':24}{'now':>10}{'limit':>10}{'goal':>10}")
    for budget in BUDGETS:
        now, limit = counts.get(budget.name), budget.goal if given.round else budget.limit
        over = now is not None and limit is not None and now > limit
        exceeded += over
        shown = ["-" if value is None else f"{value:,.0f}" for value in (now, limit, budget.goal)]
        row = f"{budget.name:24}" + "".join(f"{value:>10}" for value in shown)
        print(f"{row}{'  exceeded' if over else ''}")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
