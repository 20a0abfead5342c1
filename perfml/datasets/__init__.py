"""Datasets: recorded by this project, or published and fetched by hash; never made up.

`load` turns what a user names (a table, a published ``dataset.csv``, a dataset's name) into a
Layers table.
"""

from __future__ import annotations

from perfml.datasets._load import load
from perfml.datasets._loaders import load_h200_yolov4_tiny, load_nazir2024
from perfml.datasets._registry import DATASETS, Dataset, fetch, find
from perfml.datasets.published import from_published, to_published

__all__ = [
    "DATASETS",
    "Dataset",
    "fetch",
    "find",
    "from_published",
    "load",
    "load_h200_yolov4_tiny",
    "load_nazir2024",
    "to_published",
]
