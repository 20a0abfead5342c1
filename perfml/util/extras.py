"""Import a package of an optional extra, or say how to install it."""

from __future__ import annotations

import importlib
from typing import Any

from perfml.errors import MissingExtraError
from perfml.util.installed import install_command


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
