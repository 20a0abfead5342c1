"""Datasets: recorded by this project, or published and fetched by hash; never made up.

`load` turns what a user names (a table, a published ``dataset.csv``, a dataset's name, a profile,
a folder of profiles) into a Layers table; `read_given` gives the launches behind it as well. Every
``load_*`` takes and returns what `load_h200_yolov4_tiny` does; `find` gives a dataset's folder.

Here to change: a recorded dataset is a folder of ``datasets/`` and an entry of ``registry.py``,
or, where it proves something, a folder of ``studies/data``; what a word on the command line may
name, in ``loading.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfml.datasets.registry import DATASETS, Dataset, fetch, find
from perfml.util.lazy import lazily

if TYPE_CHECKING:
    from perfml.datasets.choosing import LaunchChoice
    from perfml.datasets.loading import Given, load, read_given
    from perfml.datasets.published import from_published, to_published

_HOMES = {
    "Given": "loading",
    "LaunchChoice": "choosing",
    "load": "loading",
    "load_atlas": "loaders",
    "load_h200_yolov4_tiny": "loaders",
    "load_nazir2024": "loaders",
    "read_given": "loading",
    "from_published": "published",
    "to_published": "published",
}

__all__ = [
    "DATASETS",
    "Dataset",
    "Given",
    "LaunchChoice",
    "fetch",
    "find",
    "from_published",
    "load",
    "load_atlas",
    "load_h200_yolov4_tiny",
    "load_nazir2024",
    "read_given",
    "to_published",
]

# on first use: shell completion needs the names, not pandas
__getattr__, __dir__ = lazily(__name__, globals(), _HOMES)
