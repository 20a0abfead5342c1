"""Run a study: ``python -m studies`` lists them, ``python -m studies NAME ...`` runs one."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent


def programs() -> dict[str, str]:
    """Return every study that can be run, with the first line of its documentation."""
    found = {}
    for path in sorted(HERE.glob("*/*.py")):
        text = path.read_text(encoding="utf-8")
        if '__name__ == "__main__"' in text:
            parts = path.relative_to(HERE).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__main__")
            found[name] = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    return found


def main() -> int:
    """List, or hand over to the study."""
    known = programs()
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.stdout.write("".join(f"{name:24} {what}\n" for name, what in known.items()))
        return 0
    name = sys.argv[1]
    if name not in known:
        sys.stderr.write(f"error: no study is called {name}; python -m studies lists them\n")
        return 1
    sys.argv = [f"python -m studies {name}", *sys.argv[2:]]
    runpy.run_module(f"studies.{name}", run_name="__main__", alter_sys=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
