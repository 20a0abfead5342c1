"""Datasets: recorded by this project, or published and fetched by hash; never made up.

`load` turns what a user names (a table, a published ``dataset.csv``, a dataset's name) into a
Layers table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfml._lazy import resolve
from perfml.datasets._registry import DATASETS, Dataset, fetch, find

if TYPE_CHECKING:
    from perfml.datasets._load import load
    from perfml.datasets._loaders import (
        load_h200_attention,
        load_h200_conv,
        load_h200_planted,
        load_h200_qkv,
        load_h200_yolov4_tiny,
        load_nazir2024,
    )
    from perfml.datasets.published import from_published, to_published

_HOMES = {
    "load": "_load",
    "load_h200_attention": "_loaders",
    "load_h200_conv": "_loaders",
    "load_h200_planted": "_loaders",
    "load_h200_qkv": "_loaders",
    "load_h200_yolov4_tiny": "_loaders",
    "load_nazir2024": "_loaders",
    "from_published": "published",
    "to_published": "published",
}

__all__ = [
    "DATASETS",
    "Dataset",
    "fetch",
    "find",
    "from_published",
    "load",
    "load_h200_attention",
    "load_h200_conv",
    "load_h200_planted",
    "load_h200_qkv",
    "load_h200_yolov4_tiny",
    "load_nazir2024",
    "to_published",
]


def __getattr__(name: str) -> Any:
    """Import a loader when it is first used: shell completion needs the names, not pandas."""
    return resolve(__name__, globals(), _HOMES, name)


def __dir__() -> list[str]:
    return __all__
