"""Datasets: recorded by this project, or published and fetched by hash; never made up.

A `Selection` says what a user asks about: names (a table, a published ``dataset.csv``, a data set,
a profile, a folder of profiles), and which of their rows, launches and layers. `read_inputs` turns
it into tables, for every verb and every function; `read_input` and `load` do so of one name. Every
``load_*`` takes and returns what `load_h200_yolov4_tiny` does; `find` gives a dataset's folder.

Here to change: what a name may be, in ``opening.py``; what may be selected, in ``selection.py``; a
recorded dataset is a folder of ``datasets/`` and an entry of ``registry.py``, or, where it proves
something, a folder of ``studies/data``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfml.datasets.registry import DATASETS, Dataset, fetch, find
from perfml.datasets.selection import Selection
from perfml.util.lazy import lazily

if TYPE_CHECKING:
    from perfml.datasets.loading import Input
    from perfml.datasets.opening import Inputs, load, read_input, read_inputs
    from perfml.datasets.published import from_published, to_published

_HOMES = {
    "Input": "loading",
    "Inputs": "opening",
    "load": "opening",
    "load_atlas": "frames",
    "load_h200_yolov4_tiny": "frames",
    "load_nazir2024": "frames",
    "read_input": "opening",
    "read_inputs": "opening",
    "from_published": "published",
    "to_published": "published",
}

__all__ = [
    "DATASETS",
    "Dataset",
    "Input",
    "Inputs",
    "Selection",
    "fetch",
    "find",
    "from_published",
    "load",
    "load_atlas",
    "load_h200_yolov4_tiny",
    "load_nazir2024",
    "read_input",
    "read_inputs",
    "to_published",
]

# on first use: shell completion needs the names, not pandas
__getattr__, __dir__ = lazily(__name__, globals(), _HOMES)
