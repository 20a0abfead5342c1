"""Ranges inside compiled models: inductor's code opens the range of each kernel's module.

Inductor says in a comment before each kernel's call which nodes of the traced graph it computes
(``# Topologically Sorted Source Nodes: [linear, relu], Original ATen: ...``), and the graph says in
which module each node was traced. While a `ModuleRanges` is entered, a line that opens the range of
that module goes in front of the comment. What was compiled before has no such lines.

A kernel that computes for several modules is the one's with the last product or convolution in it,
else the last one's: so it has one layer, as each kernel does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_CALL = re.compile(r"^( +)# Topologically Sorted Source Nodes: \[(.*?)\]", re.MULTILINE)
_END = re.compile(r"^( +)return \(", re.MULTILINE)
_PRODUCTS = ("mm", "conv", "attention", "scaled_dot_product")
_ROOT = re.compile(r"^L\[['\"]\w+['\"]\]|^L__\w+?__(?=\.|$)")
_KEYED = re.compile(r"\._modules\[['\"](\w+)['\"]\]|\[['\"]?(\w+)['\"]?\]")
_SLICE = re.compile(r"\.slice\([^()]*\)")
_IMPORT = f"from {__name__} import inside as _perfml_inside\n"

_listeners: list[Callable[[str, str], None]] = []


@dataclass(frozen=True)
class Origin:
    """Where a node of a compiled graph comes from: its module's path, and its operator."""

    path: str
    operator: str

    @property
    def multiplies(self) -> bool:
        """Whether it is a product or a convolution."""
        return any(word in self.operator for word in _PRODUCTS)


def inside(path: str, operator: str = "") -> None:
    """Tell who listens that a kernel of a module follows, and its most telling operator.

    The path is within the compiled module.
    """
    if _listeners:
        _listeners[-1](path, operator)


@contextmanager
def listening(listener: Callable[[str, str], None]) -> Iterator[None]:
    """Let `listener` be told of modules, and put the lines into what is compiled in this block."""
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    written = GraphLowering.codegen

    def codegen(lowering: Any) -> Any:
        made = written(lowering)
        code = made[0]
        code.value = with_ranges(code.value, modules_of(lowering.graph.nodes))
        return made

    _listeners.append(listener)
    # code from the cache of another process has no such lines, and ours is not for others
    with config.patch(force_disable_caches=True):
        GraphLowering.codegen = codegen  # type: ignore[method-assign, unused-ignore]
        try:
            yield
        finally:
            GraphLowering.codegen = written  # type: ignore[method-assign, unused-ignore]
            _listeners.remove(listener)


def modules_of(nodes: Any) -> dict[str, Origin]:
    """Return where each traced node comes from, by its name in comments.

    Backward nodes are named after their module with ``.backward``.
    """
    found: dict[str, Origin] = {}
    for node in nodes:
        if node.op != "call_function":
            continue
        forward = node.meta.get("nn_module_stack")
        stack = forward or node.meta.get("fwd_nn_module_stack")
        if not stack:
            continue
        path = module_path(next(reversed(stack.values()))[0])
        if not forward:
            path = f"{path}.backward".lstrip(".")
        sources = node.meta.get("from_node") or [node]
        name = sources[0].name
        made = Origin(path, _operator(node.meta.get("original_aten")))
        if name not in found or not found[name].multiplies:
            found[name] = made
    return found


def _operator(overload: Any) -> str:
    """Return the name of an operator: ``native_layer_norm`` of aten.native_layer_norm.default."""
    parts = str(overload or "").split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def module_path(traced: str) -> str:
    """Return a module's path from what dynamo calls it.

    Examples
    --------
    >>> module_path("L['self'].layers.slice(None, 2, None)._modules['0'].norm")
    'layers.0.norm'
    """
    path = _KEYED.sub(lambda key: f".{key[1] or key[2]}", _SLICE.sub("", _ROOT.sub("", traced)))
    return path.strip(".")


def with_ranges(code: str, modules: Mapping[str, Origin]) -> str:
    """Return the code of a graph with a line before each kernel that says whose it is."""

    def opened(comment: re.Match[str]) -> str:
        named = [modules[name] for name in comment[2].split(", ") if name in modules]
        if not named:
            return comment[0]
        last = ([each for each in named if each.multiplies] or named)[-1]
        return f"{comment[1]}_perfml_inside({last.path!r}, {last.operator!r})\n{comment[0]}"

    def closed(end: re.Match[str]) -> str:
        return f"{end[1]}_perfml_inside('')\n{end[0]}"

    changed = _CALL.sub(opened, code)
    return code if changed == code else _IMPORT + _END.sub(closed, changed)
