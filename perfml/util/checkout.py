"""The studies beside perfml: what proves it lies in a checkout and is not installed with it."""

from __future__ import annotations

from pathlib import Path

CURE = "Recordings and workloads of the studies need a checkout of perfml's repository."
"""What helps where an installed perfml is asked for something of the studies."""


def studies() -> Path | None:
    """Return the ``studies`` folder of the checkout that runs; None in an installed perfml."""
    root = Path(__file__).resolve().parents[2]
    folder = root / "studies"
    # a site-packages folder may hold another package of this name, but no project file
    return folder if (root / "pyproject.toml").is_file() and folder.is_dir() else None
