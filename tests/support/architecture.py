"""The import graph of perfml, collectors and studies, and the floors that the docs state."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter

from tests.support.paths import ROOT

PACKAGES = ("perfml", "collectors", "studies")
PAGE = ROOT / "docs" / "architecture.md"
_FLOORS = re.compile(r'^```text title="floors.*?"\n(.*?)^```', re.MULTILINE | re.DOTALL)


@cache
def modules():
    """Return the paths of all modules, by dotted name."""
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


def room_of(module):
    """Return the room of a module: a folder of a package, or a module directly in ``perfml``.

    The modules directly in ``collectors`` are one room but for those that have a floor of their
    own; all studies are another; what is private to ``perfml`` itself belongs to ``perfml``,
    and its ``__main__`` to the command line that it starts.
    """
    package, *below = module.split(".")
    if package == "studies" or not below or below[0].startswith("_version"):
        return package
    room = f"{package}.{'cli' if below[0] == '__main__' else below[0]}"
    alone = modules()[room].name == "__init__.py" or room in floors()
    return package if package == "collectors" and not alone else room


@cache
def tree_of(path):
    """Return the syntax tree of a source: several tests look through all of them."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports():
    """Return which modules a module names, wherever it imports them; lazy imports count too."""
    return {name: frozenset(_imported(name)) - {name} for name in modules()}


def _imported(name):
    for node in ast.walk(tree_of(modules()[name])):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                package = name if modules()[name].name == "__init__.py" else name.rpartition(".")[0]
                parts = package.split(".")
                source = ".".join([*parts[: len(parts) - node.level + 1], source]).rstrip(".")
            for alias in node.names:
                inside = f"{source}.{alias.name}"
                if inside in modules():
                    yield inside
                elif source in modules():
                    yield source


def arrows():
    """Return who imports whom, as pairs of modules."""
    return [(name, used) for name, several in imports().items() for used in sorted(several)]


def circle(graph):
    """Return one circle of a graph, its first module repeated at the end; empty if there is none.

    Parameters
    ----------
    graph
        Module to the modules that it imports.
    """
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


@cache
def floors():
    """Return the floor of every room that ``docs/architecture.md`` states, the lowest 0."""
    block = _FLOORS.search(PAGE.read_text(encoding="utf-8"))
    assert block, f"{PAGE.name} has no block of floors"
    lines = [line.split() for line in block.group(1).splitlines() if line.strip()]
    return {room: int(number) for number, *rooms in lines for room in rooms}
