"""Loaders in the manner of scikit-learn: ``load_*()`` returns a `Bunch`.

Parameters, result and errors of all are those of `load_h200_yolov4_tiny`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from perfml.datasets.loading import load
from perfml.datasets.parts import part_files, read_parts
from perfml.datasets.registry import DATASETS, find
from perfml.metrics import PUBLISHED


class Bunch(dict[str, Any]):
    """A dict whose keys are attributes too, as scikit-learn's, which takes a second to import."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *map(str, self)})


def load_h200_yolov4_tiny(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load YOLOv4-Tiny as recorded on an H200: layers x backends x precisions x batches x repeats.

    Parameters
    ----------
    as_frame
        Give ``data`` and ``target`` as pandas objects, and ``frame`` with the whole Layers table.
    return_X_y
        Return ``(data, target)`` alone.

    Returns
    -------
    Bunch or tuple
        ``data`` of shape (n, 19): the published metrics (NaN where undefined); ``target`` of
        shape (n,): the layer's time in microseconds; ``feature_names``; ``DESCR``: the data card;
        ``provenance``; ``frame``: the Layers table, or None unless `as_frame`.

    Raises
    ------
    PerfmlError
        If the recordings are not beside perfml.
    """
    return _bunch("h200-yolov4-tiny", as_frame=as_frame, return_X_y=return_X_y)


def load_atlas(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load the atlas: layers of many networks, with kinds, shapes, amounts of work and counters.

    ``frame`` has a row a layer and timed process, and the facts of each layer
    (`perfml.modeling.layer_shapes.FACTS`) as columns. Every single repeat is in ``times.parquet``
    beside it.
    """
    return _bunch("atlas", as_frame=as_frame, return_X_y=return_X_y)


def load_h200_planted(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load kernels with planted causes: layers are families and sizes, backends the levels."""
    return _bunch("h200-planted", as_frame=as_frame, return_X_y=return_X_y)


def load_h200_planted_causes(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load 43 families with planted causes as an H200 ran them, with the counters of all causes."""
    return _bunch("h200-planted-causes", as_frame=as_frame, return_X_y=return_X_y)


def load_h100_planted_causes(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load the 24 newer families of `load_h200_planted_causes` as an H100 ran them."""
    return _bunch("h100-planted-causes", as_frame=as_frame, return_X_y=return_X_y)


def load_h200_strangers(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load 39 pairs of kernels that were written without knowing perfml's causes."""
    return _bunch("h200-strangers", as_frame=as_frame, return_X_y=return_X_y)


def load_h200_strangers2(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load 41 further pairs of kernels, by somebody else who had not seen perfml's causes."""
    return _bunch("h200-strangers2", as_frame=as_frame, return_X_y=return_X_y)


def load_h200_strangers3(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load 43 pairs of kernels by a third author who had not seen perfml's causes."""
    return _bunch("h200-strangers3", as_frame=as_frame, return_X_y=return_X_y)


def load_h200_strangers4(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load 53 pairs of kernels by one more author who had not seen perfml's causes."""
    return _bunch("h200-strangers4", as_frame=as_frame, return_X_y=return_X_y)


def load_h200_strangers5(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load 25 pairs of kernels by a fifth author, fast and slow, with frozen labels."""
    return _bunch("h200-strangers5", as_frame=as_frame, return_X_y=return_X_y)


def load_h100_strangers6(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load 40 pairs of kernels by a sixth author, fast and slow, with frozen labels."""
    return _bunch("h100-strangers6", as_frame=as_frame, return_X_y=return_X_y)


def load_h200_torch_pairs(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load 32 pairs of PyTorch blocks by somebody who had not seen perfml's causes."""
    return _bunch("h200-torch-pairs", as_frame=as_frame, return_X_y=return_X_y)


def load_h200_torch_pairs2(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load 43 further pairs of PyTorch blocks, by somebody else who had not seen the causes."""
    return _bunch("h200-torch-pairs2", as_frame=as_frame, return_X_y=return_X_y)


def load_h200_torch_pairs3(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load 18 pairs of PyTorch steps by a third author who had not seen the formulas of causes."""
    return _bunch("h200-torch-pairs3", as_frame=as_frame, return_X_y=return_X_y)


def load_h100_torch_pairs4(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load 28 pairs of PyTorch steps by a fourth author who had not seen the formulas of causes."""
    return _bunch("h100-torch-pairs4", as_frame=as_frame, return_X_y=return_X_y)


def load_h200_attention(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load the attention ladders: layers are problem sizes, backends the versions.

    Two slow versions were profiled at two of five sizes; their metrics are NaN at the others.
    """
    return _bunch("h200-attention", as_frame=as_frame, return_X_y=return_X_y)


def load_h200_conv(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load the convolution ladder: layers are problems and batches, backends the versions."""
    return _bunch("h200-conv", as_frame=as_frame, return_X_y=return_X_y)


def load_h200_qkv(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load the QKV products: layers are shapes and warps a block, backends the versions."""
    return _bunch("h200-qkv", as_frame=as_frame, return_X_y=return_X_y)


def load_nazir2024(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load the published dataset (GTX 1050 Ti), downloading it where it is not here.

    ``frame`` has the inferred layer.
    """
    return _bunch("nazir2024", as_frame=as_frame, return_X_y=return_X_y)


def _bunch(name: str, *, as_frame: bool, return_X_y: bool) -> Any:
    folder = find(name)
    in_parts = folder is not None and part_files(folder, "layers")
    # the launches behind a table in parts are many, and nobody asked for them
    table = read_parts(folder, "layers") if folder is not None and in_parts else load(name)
    frame = table.frame
    features: pd.DataFrame = frame.reindex(columns=list(PUBLISHED))
    time = frame["time_us"]
    data = features if as_frame else features.to_numpy(dtype=float)
    target = time if as_frame else time.to_numpy(dtype=float)
    if return_X_y:
        return data, target
    return Bunch(
        data=data,
        target=target,
        frame=frame if as_frame else None,
        feature_names=list(PUBLISHED),
        target_names=["time_us"],
        DESCR=_card(name),
        provenance=table.provenance,
    )


def _card(name: str) -> str:
    path = find(name)
    card = path / "README.md" if path is not None and path.is_dir() else Path()
    return card.read_text(encoding="utf-8") if card.is_file() else DATASETS[name].what
