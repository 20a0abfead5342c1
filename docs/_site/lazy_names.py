"""What griffe cannot see: names that are loaded when used, and which classes are results."""

from __future__ import annotations

import ast
from typing import Any

import griffe


class LazyNames(griffe.Extension):
    """Add an alias for every entry of a package's ``_HOMES``, which griffe cannot follow."""

    def on_module(self, *, mod: griffe.Module, **_: Any) -> None:
        """Read ``_HOMES`` (public name to defining module) of a package that has it.

        A docstring's paragraph for those who change the package is left out.
        """
        if mod.docstring:
            mod.docstring.value = mod.docstring.value.partition("\n\nHere to change:")[0]
        homes = mod.members.get("_HOMES")
        if not isinstance(homes, griffe.Attribute) or not isinstance(homes.value, griffe.ExprDict):
            return
        found = ast.literal_eval(str(homes.value))
        for name, home in found.items():
            known = mod.members.get(name)
            if isinstance(known, griffe.Module):
                msg = f"{mod.path}.{name} is a public name and a module: which one is imported?"
                raise ValueError(msg)
            if known is None:  # else imported for type checkers, and so known to griffe
                mod.set_member(name, griffe.Alias(name, f"{mod.path}.{home}.{name}"))
        listed = [each for each in mod.exports or () if isinstance(each, str)]
        mod.exports = sorted({*found, *listed})

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Let results, which nobody constructs, have attributes but no signature."""
        if "JSON" in cls.members:
            cls.del_member("JSON")
            cls.decorators = []
