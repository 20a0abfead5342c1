"""Read what ``trtexec`` says of an engine's layers: ``--exportProfile`` and ``--exportLayerInfo``.

The profile has one time a layer, the mean over many inferences; layers are what TensorRT made of
the network, so a name joins those of all that were fused. The layer information has no times; it
names the kernel (tactic) of each layer. There are no counters in either.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import InputError
from perfml.readers.frame import kernels_frame
from perfml.readers.json_text import number, parsed, whole
from perfml.readers.source import ReadOptions, Source
from perfml.tables import Kernels
from perfml.util.words import count

NAME = "trtexec-profile"
LAYER_INFO = "trtexec-layers"
"""Format of a table that layer information was read into: it has no times."""

_AGAIN = "Export it again with: trtexec --dumpProfile --separateProfileRun --exportProfile=FILE ..."
_DETAILED = (
    "Build the engine with --profilingVerbosity=detailed, and export with --exportLayerInfo."
)

TIMELESS = (
    "Layer information has no times. "
    "Put trtexec's --exportProfile of the same engine beside it, and give the folder."
)
_NUMBER = re.compile(r"0x[0-9a-fA-F]+")
"""What stands for the name of a tactic that has none, such as that of a reformat."""


_Layer = tuple[str, float, str | None, str | None]
"""Name (those of fused layers, joined by TensorRT with `` + ``), mean microseconds over the
inferences (NaN without a profile), type of layer and kernel (None without layer information)."""


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


def of_one_engine(profile: Kernels, info: Kernels) -> bool:
    """Return whether layer information has all layers of a profile, by their names."""
    return set(profile.frame["layer"]) <= set(info.frame["layer"])


def _profile(source: Source, entries: list[Any]) -> Kernels:
    where = str(source.path)
    head = [e for e in entries if isinstance(e, dict) and "name" not in e and "count" in e]
    inferences = whole(head[0]["count"]) if head else None
    timed = [
        _timed(entry, inferences, f"{where}, entry {place}")
        for place, entry in enumerate(entries)
        if entry not in head
    ]
    layers = [layer for layer in timed if layer[1] > 0]
    if not layers:
        msg = "no layer with a time in this profile of trtexec"
        raise InputError(msg, where=where, found=f"{len(entries)} entries", cure=_AGAIN)
    idle = len(timed) - len(layers)
    said = f"{count(idle, 'layer takes', 'layers take')} no time at all."
    kernels = _kernels(source, layers, NAME, [said] if idle else [])
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
    return name, mean * 1e3, None, None


def _layer_info(source: Source, document: Any) -> Kernels:
    where = str(source.path)
    entries = document.get("Layers") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        msg = "no layers in this layer information"
        raise InputError(msg, where=where, found=repr(entries)[:60], cure=_DETAILED)
    layers = [_described(entry, f"{where}, layer {place}") for place, entry in enumerate(entries)]
    warnings = [TIMELESS]
    if all(kind is None for _, _, kind, _ in layers):
        warnings.append(f"The layers have names and nothing else. {_DETAILED}")
    return _kernels(source, layers, LAYER_INFO, warnings)


def _described(entry: Any, where: str) -> _Layer:
    if isinstance(entry, str) and entry.strip():
        return entry, math.nan, None, None
    name = _name(entry, "Name", where)
    texts = (entry.get(key) for key in ("LayerType", "TacticName"))
    kind, tactic = (text if isinstance(text, str) and text else None for text in texts)
    return name, math.nan, kind, None if _NUMBER.fullmatch(tactic or "") else tactic


def _name(entry: Any, key: str, where: str) -> str:
    name = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name.strip():
        msg = "a layer has no name"
        raise InputError(msg, where=where, found=repr(entry)[:60], cure=_AGAIN)
    return name


def _kernels(source: Source, layers: list[_Layer], form: str, warnings: list[str]) -> Kernels:
    names, times, kinds, tactics = zip(*layers, strict=True)
    columns: dict[str, Any] = {
        "kernel": [tactic or name for name, tactic in zip(names, tactics, strict=True)],
        "time_us": np.array(times),
        "time_source": ["trtexec" if math.isfinite(time) else None for time in times],
        "launches": np.ones(len(layers), dtype=np.int64),
        "layer_type": pd.array(list(kinds), dtype="string"),
    }
    # Each entry is a layer of its own, even where two of one name follow each other.
    paths = [(name,) for name in names]
    frame = kernels_frame(pd.DataFrame(columns), paths, instances=range(len(layers)))
    facts = {"tool_version": None, "backend": "tensorrt"}
    return Kernels(frame, {**source.provenance(form, "trtexec"), **facts}, tuple(warnings))
