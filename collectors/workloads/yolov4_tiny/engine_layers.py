"""Which layers of the network a TensorRT engine fused into which of its own.

Two sources: the engine inspector's JSON, which needs the engine loaded on a GPU, and the listing
inside a serialized engine of TensorRT for RTX, which can be read anywhere. Both write down, for
every step of the engine, all ONNX nodes that went into it (``[ONNX Layer: NAME]``) if the engine
was built with detailed profiling verbosity.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable
from typing import Any

from perfml.errors import InputError

from .onnx_export import layer_of_node

SEPARATOR = "+"
_NODE = re.compile(r"\[ONNX Layer: ([^\]]+)\]")
_STEP = re.compile(r"^  (\w+)=\{ name=\"?([^\s\"]+)\"?", re.MULTILINE)
_LAYERS = re.compile(r"layers=\"([^\"]*)\"")
_KERNEL = re.compile(r"\bfqn=(\S+)")


@dataclasses.dataclass(frozen=True)
class EngineLayer:
    """One step of an engine: TensorRT's name and layer type, and all network layers in it.

    `kernel` is the kernel or tactic, empty where TensorRT chooses it at run time; `layers` are
    names in network order.
    """

    name: str
    kind: str
    kernel: str
    layers: tuple[str, ...]

    @property
    def layer(self) -> str:
        """The layers' names as one: ``conv_19+route_11+upsample_01``; empty if there are none."""
        return SEPARATOR.join(self.layers)


def _layers_of(nodes: Iterable[str], order: dict[str, int]) -> tuple[str, ...]:
    names = {layer_of_node(node) for node in nodes} & set(order)
    return tuple(sorted(names, key=order.__getitem__))


def inspector_layers(text: str, names: Iterable[str]) -> list[EngineLayer]:
    """Parse the JSON of ``EngineInspector.get_engine_information``, given all layers' names.

    Raises an `InputError` also if the engine was built without detailed profiling verbosity, so
    that the names of fused layers are lost.
    """
    where = "engine inspector"
    try:
        entries: list[Any] = json.loads(text)["Layers"]
    except (ValueError, KeyError, TypeError) as error:
        what = "this is not the JSON of TensorRT's engine inspector"
        raise InputError(what, where=where, found=text[:80]) from error
    if not all(isinstance(entry, dict) and "Name" in entry for entry in entries):
        what = "the engine holds layer names only"
        cure = "Build it with profiling_verbosity = ProfilingVerbosity.DETAILED."
        raise InputError(what, where=where, cure=cure)
    order = {name: i for i, name in enumerate(names)}
    return [_inspected(entry, order) for entry in entries]


def _inspected(entry: dict[str, Any], order: dict[str, int]) -> EngineLayer:
    nodes = _NODE.findall(entry.get("Metadata", ""))
    if not nodes:
        # Before metadata existed, the name of a fused layer was its parts' names joined by " + ";
        # point-wise fusions wrap theirs in PWN(...).
        nodes = [part for part in re.split(r"[\s+(),]+", entry["Name"]) if part]
    return EngineLayer(
        name=entry["Name"],
        kind=entry.get("LayerType", ""),
        kernel=entry.get("TacticName", ""),
        layers=_layers_of(nodes, order),
    )


def plan_layers(plan: bytes, names: Iterable[str]) -> list[EngineLayer]:
    """Read the listing inside a serialized engine of TensorRT for RTX.

    Seen in version 1.7: the plan holds its program as text, one step a line in a block ``main``,
    each with the ONNX nodes it computes. The format is not documented, so a plan without it is an
    `InputError` and never an empty list. Steps that compute nothing (waits, signals) are left out.
    """
    start = plan.find(b"\nmain {")
    end = plan.find(b"\n}", start + 1)
    text = plan[start:end].decode("utf-8", errors="replace") if 0 <= start < end else ""
    heads = list(_STEP.finditer(text))
    order = {name: i for i, name in enumerate(names)}
    found = []
    for k, head in enumerate(heads):
        stop = heads[k + 1].start() if k + 1 < len(heads) else len(text)
        body = text[head.start() : stop]
        if head[1] in ("wait", "signal"):
            continue
        listed, kernel = _LAYERS.search(body), _KERNEL.search(body)
        nodes = _NODE.findall(listed[1]) if listed else []
        step = EngineLayer(head[2], head[1], kernel[1] if kernel else "", _layers_of(nodes, order))
        found.append(step)
    if not any(step.layers for step in found):
        what = "the serialized engine holds no listing of its steps"
        cure = "Load it on a GPU and ask TensorRT's engine inspector instead."
        raise InputError(what, where="engine", found=f"{len(plan)} bytes", cure=cure)
    return found
