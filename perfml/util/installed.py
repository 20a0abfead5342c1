"""What is installed and how, so that advice to install more of it works; optional packages."""

from __future__ import annotations

import importlib
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from perfml.errors import MissingExtraError

_CHECKOUT = Path(__file__).resolve().parents[2]

NEEDS_CHECKOUT = "Recordings and workloads of the studies need a checkout of perfml's repository."
"""What helps where an installed perfml is asked for something of the studies."""


def studies() -> Path | None:
    """Return the ``studies`` folder of the checkout that runs; None in an installed perfml."""
    folder = _CHECKOUT / "studies"
    # a site-packages folder may hold another package of this name, but no project file
    return folder if (_CHECKOUT / "pyproject.toml").is_file() and folder.is_dir() else None


def version_of(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def install_command(extra: str) -> str:
    """Return the command that installs an extra from where perfml itself came from.

    That is the checkout, the file or the repository that pip notes beside the package (PEP 610);
    without a note, the checkout that this module lies in.

    Examples
    --------
    >>> install_command("ncu").endswith("[ncu]'")
    True
    """
    return f"{_installer()} {_requirement(extra)}"


def _installer() -> str:
    """Return the command that put perfml where it is: uv and pipx leave a note, else pip did."""
    home = Path(sys.prefix)
    if (home / "uv-receipt.toml").is_file():
        return "uv tool install"
    if (home / "pipx_metadata.json").is_file():
        return "pipx install --force"
    try:
        by = metadata.distribution("perfml").read_text("INSTALLER") or ""
    except metadata.PackageNotFoundError:
        by = ""
    return "uv pip install" if by.strip() == "uv" else "pip install"


def _requirement(extra: str) -> str:
    url, is_repository = _origin()
    if url.startswith("file://"):
        return f"'{url.removeprefix('file://')}[{extra}]'"
    if url:
        prefix = "git+" if is_repository else ""
        return f"'perfml[{extra}] @ {prefix}{url}'"
    if (_CHECKOUT / "pyproject.toml").is_file():
        return f"'{_CHECKOUT}[{extra}]'"
    return f"'perfml[{extra}]'"


def _origin() -> tuple[str, bool]:
    """Return the URL that perfml was installed from (empty if not noted), and if it is git's."""
    try:
        note = json.loads(metadata.distribution("perfml").read_text("direct_url.json") or "{}")
        return str(note.get("url", "")), "vcs_info" in note
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return "", False


def import_extra(module: str, extra: str, purpose: str, package: str | None = None) -> Any:
    """Import a module of an optional package.

    `extra` is perfml's extra that brings it, `purpose` what needs it, the subject of the message.
    `package` is what it is installed from, called as the module without. Raises
    `MissingExtraError`.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing_extra(package or module, extra, purpose) from error


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtraError:
    """Return the error that names a package, what needs it, and the command that brings it."""
    return MissingExtraError(package, purpose, install_command(extra))
