"""Import a package of an optional extra, or say how to install it."""

from __future__ import annotations

import importlib
from typing import Any

from perfml.errors import MissingExtraError
from perfml.util.installed import install_command


def import_extra(module: str, extra: str, purpose: str, package: str | None = None) -> Any:
    """Import a module of an optional package.

    Parameters
    ----------
    module
        Its full name.
    extra
        perfml's extra that brings it.
    purpose
        What needs it, the subject of the message.
    package
        What the package is called where it is installed from; as the module without.

    Raises
    ------
    MissingExtraError
        If it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing_extra(package or module, extra, purpose) from error


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtraError:
    """Return the error that names a package, what needs it, and the command that brings it.

    Parameters
    ----------
    package, purpose
        As for `MissingExtraError`.
    extra
        perfml's extra that has the package.
    """
    return MissingExtraError(package, purpose, install_command(extra))
