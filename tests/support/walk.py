"""The way of one parameter through the code: which files it enters, read from the sources alone."""

from __future__ import annotations

import ast
import re
from itertools import groupby

from tests.support.architecture import modules

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def stays(function, parameter, sources=None):
    """Return the modules that a parameter enters, in the order in which the code is written.

    Calls of our functions that pass it on are followed, and so are the names that hold it, a part
    of it or what was made of it, until an object of one of our classes holds it: whoever reads on
    reads that. A function is walked once. What only the running program knows (methods, functions
    in variables) is not followed.

    Parameters
    ----------
    function
        ``module:name`` of where it begins.
    parameter
        Its name there.
    sources
        Text of every module, by dotted name; this checkout's by default.
    """
    if sources is None:
        sources = {name: path.read_text(encoding="utf-8") for name, path in modules().items()}
    walk = _Walk(sources)
    walk.enter(*function.split(":"), parameter)
    return [module for module, _ in groupby(walk.entered)]


class _Walk:
    def __init__(self, sources):
        self._sources = sources
        texts = sources.values()
        self._classes = {name for text in texts for name in re.findall(r"^class (\w+)", text, re.M)}
        self._trees = {}
        self._seen = set()
        self.entered = []

    def enter(self, module, function, parameter):
        """Go into a function, and from there wherever the parameter is passed on to."""
        self.entered.append(module)
        if (module, function, parameter) in self._seen:
            return
        self._seen.add((module, function, parameter))
        node = self._functions(module)[function]
        homes = self._homes(module, node)
        held = {parameter}
        for step in _in_order(node):
            if isinstance(step, ast.Call):
                self._follow(step, held, homes)
            elif names := self._parts(step, held, homes):
                held |= names

    def _follow(self, call, held, homes):
        home = homes.get(call.func.id) if isinstance(call.func, ast.Name) else None
        if home is None:
            return
        module, function = home
        arguments = self._functions(module)[function].args
        places = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
        passed = list(zip(places, call.args, strict=False))
        passed += [(each.arg, each.value) for each in call.keywords if each.arg]
        for parameter, value in passed:
            if self._holds(value, held, homes):
                self.enter(module, function, parameter)

    def _parts(self, step, held, homes):
        """Return the names that hold a part of it from this step on."""
        if isinstance(step, ast.Assign) and self._holds(step.value, held, homes):
            targets = step.targets
        elif isinstance(step, ast.For | ast.comprehension) and self._holds(step.iter, held, homes):
            targets = [step.target]
        else:
            return set()
        names = (node for target in targets for node in ast.walk(target))
        return {node.id for node in names if isinstance(node, ast.Name)}

    def _holds(self, value, held, homes):
        if isinstance(value, ast.Name):
            return value.id in held
        if isinstance(value, ast.Call) and self._makes_an_object(value.func, homes):
            return False
        return any(self._holds(node, held, homes) for node in ast.iter_child_nodes(value))

    def _makes_an_object(self, called, homes):
        """Tell whether a call gives objects of a class of ours: there the way ends."""
        if not isinstance(called, ast.Name):
            return False
        if called.id not in homes:
            return called.id in self._classes
        module, function = homes[called.id]
        returned = self._functions(module)[function].returns
        words = [] if returned is None else re.findall(r"\w+", ast.unparse(returned))
        return not self._classes.isdisjoint(words)

    def _tree(self, module):
        if module not in self._trees:
            self._trees[module] = ast.parse(self._sources[module])
        return self._trees[module]

    def _functions(self, module):
        return {each.name: each for each in self._tree(module).body if isinstance(each, _FUNCTIONS)}

    def _homes(self, module, node):
        """Return where the functions that a function can call by name are defined."""
        homes = {name: (module, name) for name in self._functions(module)}
        imported = [*self._tree(module).body, *ast.walk(node)]
        for each in imported:
            if isinstance(each, ast.ImportFrom):
                for alias in each.names:
                    if home := self._home(each.module or "", alias.name):
                        homes[alias.asname or alias.name] = (home, alias.name)
        return homes

    def _home(self, module, name):
        """Return the module below a package that defines a function, if just one does."""
        below = (each for each in self._sources if f"{each}.".startswith(f"{module}."))
        found = [each for each in below if f"def {name}(" in self._sources[each]]
        found = [each for each in found if name in self._functions(each)]
        return found[0] if len(found) == 1 else None


def _in_order(node):
    steps = [each for each in ast.walk(node) if isinstance(each, ast.expr | ast.stmt)]
    loops = [each for each in ast.walk(node) if isinstance(each, ast.comprehension)]
    placed = [(each.lineno, each.col_offset, each) for each in steps]
    # a part is held before the expression beside the loop uses it
    placed += [(each.target.lineno, -1, each) for each in loops]
    return [each for *_, each in sorted(placed, key=lambda place: place[:2])]
