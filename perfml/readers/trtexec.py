"""Read what ``trtexec`` says of an engine's layers: ``--exportProfile`` and ``--exportLayerInfo``.

The profile has one time a layer, the mean over many inferences; layers are what TensorRT made of
the network, so a name joins those of all that were fused. The layer information has no times; it
names the kernel (tactic) of each layer. There are no counters in either.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import InputError
from perfml.readers.frame import kernels_frame
from perfml.readers.json_text import number, parsed, whole
from perfml.readers.source import ReadOptions, Source
from perfml.tables import Kernels

NAME = "trtexec-profile"
LAYER_INFO = "trtexec-layers"
"""Format of a table that layer information was read into: it has no times."""

_AGAIN = "Export it again with: trtexec --dumpProfile --separateProfileRun --exportProfile=FILE ..."
_DETAILED = (
    "Build the engine with --profilingVerbosity=detailed, and export with --exportLayerInfo."
)

_TIMELESS = (
    "Give it together with the file of --exportProfile: layer information has no times. "
    "Both need one name, as in model.profile.json and model.layers.json."
)


@dataclass(frozen=True)
class _Layer:
    """One layer of an engine.

    Attributes
    ----------
    name
        Names of the fused layers, joined by TensorRT with `` + ``.
    time_us
        Mean over the inferences, in microseconds; NaN without a profile.
    kind
        TensorRT's type of layer; None without layer information.
    tactic
        The kernel that runs it, where TensorRT names it.
    """

    name: str
    time_us: float
    kind: str | None = None
    tactic: str | None = None


def recognises(source: Source) -> bool:
    """Tell whether the beginning looks like one of trtexec's documents about layers."""
    head = source.head_text().lstrip()
    if head[:1] == "[":
        return '"averageMs"' in head or '"timeMs"' in head
    return head[:1] == "{" and head[1:200].lstrip().startswith('"Layers"')


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read a profile or layer information; metrics are absent from the table.

    Raises `InputError` if it is no whole JSON, has no layers, or a layer has no name or no usable
    time.
    """
    del options
    document = parsed(source, "Export one engine a file.")
    if isinstance(document, list):
        return _profile(source, document)
    return _layer_info(source, document)


def named_by(profile: Kernels, info: Kernels) -> Kernels:
    """Return a profile whose layers have the kernels and types that layer information names.

    Both are of the same engine. A warning says how many layers the information does not have.
    """
    known = info.frame.drop_duplicates("layer").set_index("layer")
    layers = profile.frame["layer"]
    kernels = layers.map(known["kernel"]).fillna(profile.frame["kernel"])
    frame = profile.frame.assign(kernel=kernels.astype("string"))
    frame["layer_type"] = layers.map(known["layer_type"]).astype("string")
    # Not the other way round: the information also has layers that take no time.
    strangers = len(set(layers) - set(known.index))
    note = (
        f"{strangers} layers of the profile are not in the layer information; are both of the "
        "same engine?"
    )
    provenance = {**profile.provenance, "layer_info": info.provenance["path"]}
    warnings = (*profile.warnings, *info.warnings[1:], *((note,) if strangers else ()))
    return replace(profile, frame=frame, provenance=provenance, warnings=warnings)


def _profile(source: Source, entries: list[Any]) -> Kernels:
    where = str(source.path)
    inferences: int | None = None
    layers: list[_Layer] = []
    idle = 0
    for place, entry in enumerate(entries):
        if isinstance(entry, dict) and "name" not in entry and "count" in entry:
            inferences = whole(entry["count"])
            continue
        layer = _timed(entry, inferences, f"{where}, entry {place}")
        idle += layer.time_us == 0
        if layer.time_us > 0:
            layers.append(layer)
    if not layers:
        msg = "no layer with a time in this profile of trtexec"
        raise InputError(msg, where=where, found=f"{len(entries)} entries", cure=_AGAIN)
    warnings = []
    if idle:
        warnings.append(
            f"{idle} {'layer takes' if idle == 1 else 'layers take'} no time at all and "
            f"{'was' if idle == 1 else 'were'} left out."
        )
    kernels = _kernels(source, layers, NAME, warnings)
    return replace(kernels, provenance={**kernels.provenance, "inferences": inferences})


def _timed(entry: Any, inferences: int | None, where: str) -> _Layer:
    name = _name(entry, "name", where)
    mean, total = number(entry.get("averageMs")), number(entry.get("timeMs"))
    if mean is None and total is not None and inferences:
        mean = total / inferences
    if mean is None or not 0 <= mean < 1e9:
        msg = "a layer has no usable time"
        found = f"{name[:60]}: averageMs {entry.get('averageMs')!r:.40}"
        raise InputError(msg, where=where, found=found, cure=_AGAIN)
    return _Layer(name, mean * 1e3)


def _layer_info(source: Source, document: Any) -> Kernels:
    where = str(source.path)
    entries = document.get("Layers") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        msg = "no layers in this layer information"
        raise InputError(msg, where=where, found=repr(entries)[:60], cure=_DETAILED)
    layers = [_described(entry, f"{where}, layer {place}") for place, entry in enumerate(entries)]
    warnings = [_TIMELESS]
    if all(layer.kind is None for layer in layers):
        warnings.append(f"The layers have names and nothing else. {_DETAILED}")
    return _kernels(source, layers, LAYER_INFO, warnings)


def _described(entry: Any, where: str) -> _Layer:
    if isinstance(entry, str) and entry.strip():
        return _Layer(entry, float("nan"))
    name = _name(entry, "Name", where)
    kind, tactic = entry.get("LayerType"), entry.get("TacticName")
    return _Layer(
        name,
        float("nan"),
        kind if isinstance(kind, str) and kind else None,
        tactic if isinstance(tactic, str) and tactic else None,
    )


def _name(entry: Any, key: str, where: str) -> str:
    name = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name.strip():
        msg = "a layer has no name"
        raise InputError(msg, where=where, found=repr(entry)[:60], cure=_AGAIN)
    return name


def _kernels(source: Source, layers: list[_Layer], form: str, warnings: list[str]) -> Kernels:
    times = np.array([layer.time_us for layer in layers])
    columns: dict[str, Any] = {
        "kernel": [layer.tactic or layer.name for layer in layers],
        "time_us": times,
        "time_source": ["trtexec" if np.isfinite(time) else None for time in times],
        "launches": np.ones(len(layers), dtype=np.int64),
        "layer_type": pd.array([layer.kind for layer in layers], dtype="string"),
    }
    # Each entry is a layer of its own, even where two of one name follow each other.
    frame = kernels_frame(
        pd.DataFrame(columns),
        [(layer.name,) for layer in layers],
        instances=range(len(layers)),
    )
    provenance = {
        **source.provenance(form, "trtexec"),
        "tool_version": None,
        "backend": "tensorrt",
    }
    return Kernels(frame, provenance, tuple(warnings))
