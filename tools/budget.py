"""How large the house is, beside what it may be: ``python tools/budget.py [--wheel FILE]``.

Prints a line a budget; exit 1 when one is exceeded. Lines are those of tracked files: Python,
CUDA, C and C++ everywhere, and what ships as data of ``perfml`` too (templates, style, TOML, CSV).
Recordings are no lines: ``datasets`` and ``studies/data`` are not counted. Words and entries of the
navigation are those of ``docs/_site/words.py``, of the built ``site`` where there is one. The wheel
is built where none is named. What cannot be measured here is said, and is no failure.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Budget:
    """What may not be exceeded.

    Attributes
    ----------
    name
        What is counted.
    limit
        The most of it now: what it is, rounded up. It only falls.
    plan
        What the plan aims at.
    """

    name: str
    limit: float
    plan: float


BUDGETS = (
    Budget("perfml, lines", 66_300, 50_000),
    Budget("perfml/explain, lines", 12_600, 8_500),
    Budget("collectors, lines", 16_250, 17_000),
    Budget("studies, lines", 21_100, 20_000),
    Budget("tests, lines", 41_550, 36_000),
    Budget("site, words", 43_000, 50_000),
    Budget("site, words outside the reference", 17_500, 20_000),
    Budget("navigation, entries", 25, 25),
    Budget("wheel, MB", 12, 12),
    Budget("rooms", 24, 24),
    Budget("floors", 11, 11),
)

CODE = (".py", ".cu", ".cuh", ".cpp", ".c", ".h")
SHIPPED = (*CODE, ".j2", ".css", ".js", ".toml", ".csv")


def tracked(*folders: str) -> list[Path]:
    """Return the files of a folder that are in the repository, or would be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = (ROOT / name for name in done.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def lines(folder: str, endings: Sequence[str] = CODE) -> int:
    """Return the lines of a folder's files with these endings, recordings aside."""
    files = (path for path in tracked(folder) if path.suffix in endings)
    recordings = ROOT / "studies/data"
    mine = (path for path in files if path.parent == recordings or recordings not in path.parents)
    return sum(path.read_bytes().count(b"\n") for path in mine)


def words() -> Iterator[tuple[str, float]]:
    """Yield what ``docs/_site/words.py`` counts."""
    program, site = ROOT / "docs/_site/words.py", ROOT / "site"
    if not program.is_file():
        return
    command = [sys.executable, str(program), *([str(site)] if site.is_dir() else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = re.search(r"(\d+) words, (\d+) outside the reference, (\d+) nav", done.stdout)
    names = ("site, words", "site, words outside the reference", "navigation, entries")
    if found:
        yield from zip(names, map(float, found.groups()), strict=True)


def wheel_bytes(path: Path | None) -> int | None:
    """Return the size of a wheel, which is built where none is named; None without hatchling."""
    if path is not None:
        return path.stat().st_size
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        built = list(Path(folder).glob("*.whl"))
        return built[0].stat().st_size if done.returncode == 0 and built else None


def rooms_by_floor() -> list[list[str]]:
    """Return the rooms of each floor that ``docs/architecture.md`` states."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    block = re.search(r'^```text title="floors.*?"\n(.*?)^```', page, re.MULTILINE | re.DOTALL)
    rows = [line.split() for line in block.group(1).splitlines()] if block else []
    return [row[1:] for row in rows if row]


def measured(wheel: Path | None) -> dict[str, float]:
    """Return what is, by the names of the budgets."""
    floors = rooms_by_floor()
    found: dict[str, float] = {
        "perfml, lines": lines("perfml", SHIPPED),
        "perfml/explain, lines": lines("perfml/explain", SHIPPED),
        "collectors, lines": lines("collectors"),
        "studies, lines": lines("studies"),
        "tests, lines": lines("tests"),
        "rooms": sum(len(rooms) for rooms in floors) - 1,  # the studies are no part of the product
        "floors": len(floors),
        **dict(words()),
    }
    size = wheel_bytes(wheel)
    return found if size is None else {**found, "wheel, MB": size / 1e6}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 when a budget is exceeded."""
    parser = argparse.ArgumentParser(description="Compare what there is with its budgets.")
    parser.add_argument("--wheel", type=Path, help="one that was built; else it is built")
    found = measured(parser.parse_args(arguments).wheel)
    exceeded = 0
    print(f"{'':36}{'now':>9}{'limit':>9}{'plan':>9}")
    for budget in BUDGETS:
        now = found.get(budget.name)
        over = now is not None and now > budget.limit
        exceeded += over
        shown = "-" if now is None else f"{now:,.1f}" if "MB" in budget.name else f"{now:,.0f}"
        plain = f"{budget.limit:>9,.0f}{budget.plan:>9,.0f}"
        print(f"{budget.name:36}{shown:>9}{plain}{'  exceeded' if over else ''}".rstrip())
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
