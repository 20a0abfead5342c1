"""The published numbers, and the data that are analysed beside them.

The numbers (Nazir 2024, chapter 2) are read from ``published.toml``; perfml measured none of them.
The data are the published file, or the recording that stands in for it.
"""

from __future__ import annotations

import tomllib
import warnings
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import pandas as pd

from perfml.datasets import fetch, find, from_published, read_input
from perfml.datasets.published import NAZIR2024_SHA256
from perfml.errors import PerfmlError
from perfml.util.files import sha256_of_file

_TEXT = (resources.files(__package__) / "published.toml").read_text(encoding="utf-8")
_FILE = tomllib.loads(_TEXT)

ROWS: int = _FILE["rows"]
CONSTANT: tuple[str, ...] = tuple(_FILE["constant"])
MAPE_BELOW: float = _FILE["mape_below"]
KEY_METRIC: str = _FILE["key_metric"]
CLASS_CODES: dict[str, int] = _FILE["class_codes"]

RANGES: dict[str, tuple[float, float]] = {
    name: (low, high) for name, (low, high) in _FILE["ranges"].items()
}
"""Table 2.2: lowest and highest value; type is a class code, time is in microseconds."""


@dataclass(frozen=True)
class Published:
    """What tables 2.5 and 2.6 say of one model."""

    title: str  # the model's name there
    score: float  # test MAPE (a fraction), or test accuracy
    top: tuple[str, ...]  # important features in the published order


def _models(task: str) -> dict[str, Published]:
    return {
        name: Published(each["title"], each["score"], tuple(each["top"]))
        for name, each in _FILE[task].items()
    }


REGRESSION, CLASSIFICATION = _models("regression"), _models("classification")


RECORDED = "h200-yolov4-tiny"
"""The dataset that ships with perfml and stands in where the published file cannot be had."""


@dataclass(frozen=True)
class Source:
    """What is analysed."""

    layers: pd.DataFrame  # a Layers table
    name: str  # file name, or the dataset's name
    sha256: str | None  # of the file; None for a recording of several files
    # whether it has the published schema, so that the published numbers can be compared
    published: bool
    original: bool  # whether it is the very file of the study
    notes: tuple[str, ...] = ()  # sentences for the top of the output


@dataclass(frozen=True)
class Recording:
    """A recording of all 21 layers: Layers and Kernels tables of batch 1."""

    name: str
    layers: pd.DataFrame
    kernels: pd.DataFrame


def find_data(path: Path | None, *, url: str | None = None) -> Source:
    """Return the published file, or the recorded layers where it cannot be had.

    `path` is what ``--data`` names. None looks at ``PERFML_DATA`` and the download cache, and
    downloads the file by commit (from `url`), checked by sha256. Raises `PerfmlError` if a named
    file is missing or is no such dataset, or neither the file nor a recording can be had.
    """
    if path is not None:
        return _from_file(path)
    # a wrong PERFML_DATA is the user's error; being offline is not
    local = find("nazir2024")
    if local is not None:
        return _from_file(local)
    try:
        return _from_file(fetch("nazir2024", url=url))
    except PerfmlError as error:
        recording = _any_recording()
        if recording is None:
            raise
        reason = error.what + (f" ({error.found})" if error.found else "")
        note = (
            f"The published file is not at hand: {reason}. The same analysis is shown on "
            f"{recording.name} instead, so no published number can be tested. To test them, pass "
            "--data dataset.csv or set PERFML_DATA."
        )
        return Source(recording.layers, recording.name, None, False, False, (note,))


def _any_recording() -> Recording | None:
    try:
        return find_recording()
    except PerfmlError:
        # what the user needs to know is why the published file could not be had
        return None


def _from_file(path: Path) -> Source:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        layers = from_published(path)
    digest = sha256_of_file(path)
    notes = [
        f"{warning.message}." for warning in caught if issubclass(warning.category, UserWarning)
    ]
    original = digest == NAZIR2024_SHA256
    if not original:
        notes.append(
            f"{path.name} is not the file of the study (its sha256 differs). A verdict is about "
            "this file, not about the study."
        )
    return Source(layers, path.name, digest, True, original, tuple(notes))


def find_recording() -> Recording | None:
    """Return the recording on this machine at batch 1, or None where there is none.

    Raises `PerfmlError` if it is there and cannot be read.
    """
    folder = find(RECORDED)
    if folder is None:
        return None
    given = read_input(folder)
    kept = [_one_condition(frame) for frame in (given.layers, given.launches)]
    return Recording(RECORDED, kept[0], kept[1])


def _one_condition(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep what the study measured: one image, single precision."""
    kept = frame
    for column, value in (("batch", 1), ("precision", "fp32")):
        same = (kept[column] == value).fillna(False).astype(bool)
        kept = kept[same] if same.any() else kept
    return kept.reset_index(drop=True)
