"""Import a package's public names when they are first used."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any


def lazily(
    package: str, names: dict[str, Any], homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose names are imported on first use.

    `names` are the package's ``globals()``, which keep what was found; `homes` says which of its
    modules defines a name.
    """

    def found(name: str) -> Any:
        if name not in homes:
            msg = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(msg)
        names[name] = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        return names[name]

    return found, lambda: list(names["__all__"])


def callable_package(package: str, home: str, name: str) -> None:
    """Make a package callable: ``perfml.gate(a, b)`` is ``perfml.gate.python.gate(a, b)``.

    `home` is the module, within the package, that defines the function `name`.
    """

    def function() -> Any:
        return getattr(importlib.import_module(f"{package}.{home}"), name)

    class CallablePackage(types.ModuleType):
        """A package whose name is that of its main function."""

        def __call__(self, *args: Any, **options: Any) -> Any:
            return function()(*args, **options)

        @property
        def __signature__(self) -> Any:
            import inspect

            return inspect.signature(function())

        @property
        def __doc__(self) -> str | None:  # type: ignore[override]
            said: str | None = function().__doc__  # what help() and a notebook's ? show
            return said

    sys.modules[package].__class__ = CallablePackage


def drawn_by(module: str, name: str) -> Callable[..., Any]:
    """Return a method ``plot`` of a result, which a function of a module draws.

    The function takes the result first; its module is imported when something is drawn, so that
    results need no matplotlib.
    """

    def plot(self: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(module), name)(self, **options)

    plot.__doc__ = f"""Draw it; options (``ax``, ``width``, ...) are those of `{module}.{name}`.

        Returns
        -------
        matplotlib.axes.Axes
        """
    return plot
