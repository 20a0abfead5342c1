"""What is learned from a reference: fitted anew, or kept as data beside the atlas.

`compare` asks a `Learned` for three things: what layers like some rows take, what they take by
their counted work, and how far the reference's own rows are off when they are held out. `FittedNow`
fits for each answer. `Kept` has the answers for the whole atlas in ``fitted.npz``, written by
``python -m studies.atlas.fit``: arrays, no pickle, and only for the very tables they were made of.

Here to change: what is kept, in `Kept`.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.datasets.parts import part_files
from perfml.errors import InputError
from perfml.predict.describe import Vocabulary, describe
from perfml.predict.model import LayerModel, codes_of, held_out_residuals, log_base
from perfml.predict.trees import Trees
from perfml.util.digest import sha256_of, sha256_of_file
from perfml.util.files import replacing
from perfml.util.typing import Floats, Progress

FILE = "fitted.npz"
"""Beside the parts of the atlas's Layers table."""

NETWORK = "workload"
AXES = (NETWORK, "backend", "precision", "usual_kind")
"""Columns by whose values rows are held out."""

_FORMAT = 1
_HELD_OUT = "held out."


class Learned(Protocol):
    """What `perfml.predict.compare` needs to know of a reference."""

    def expected(self, rows: pd.DataFrame) -> Floats:
        """Return the logarithm of the microseconds that layers like these usually take."""

    def by_work(self, rows: pd.DataFrame) -> Floats:
        """Return the same of layers that count as much work."""

    def residuals(self, axis: str) -> Floats:
        """Return log(measured / expected) of the reference's rows, held out by a column."""


@dataclass(frozen=True)
class FittedNow:
    """Fits models on rows of other networks when they are asked for.

    Attributes
    ----------
    known
        Prepared rows.
    words, tier
        What they are described by.
    seed
        Of the models, and of how networks are dealt out.
    progress
        Called as ``progress(done, total, what)``.
    """

    known: pd.DataFrame
    words: Vocabulary
    tier: str
    seed: int = 0
    progress: Progress | None = None

    def expected(self, rows: pd.DataFrame) -> Floats:
        """Fit all rows."""
        return LayerModel.fit(self.known, self.words, self.tier, self.seed).log_times(rows)

    def by_work(self, rows: pd.DataFrame) -> Floats:
        """Fit all rows with their counts."""
        return LayerModel.fit(self.known, self.words, "counted", self.seed).log_times(rows)

    def residuals(self, axis: str) -> Floats:
        """Fit the rows of some values of the column, and predict those of the others."""
        groups = codes_of(self.known, axis)
        return held_out_residuals(
            self.known, self.words, self.tier, groups, seed=self.seed, progress=self.progress
        )


@dataclass(frozen=True)
class KeptModel:
    """One fitted model: its tier and columns, the networks it did not learn from, its trees."""

    tier: str
    columns: tuple[str, ...]
    without: frozenset[str]
    trees: Trees


@dataclass(frozen=True)
class Kept:
    """What was fitted on a whole atlas.

    Attributes
    ----------
    words
        What its rows are described by.
    models
        The first of each tier learned from all networks; the others of tier ``shape`` stand in for
        it where a network of the atlas itself is judged.
    held_out
        By column of `AXES` that has several values: residuals of all rows that have a bound.
    made_of
        Digest of the tables.
    made_with
        Version of scikit-learn that fitted; another may draw other features.
    """

    words: Vocabulary
    models: tuple[KeptModel, ...]
    held_out: dict[str, Floats]
    made_of: str
    made_with: str

    def write(self, path: Path) -> None:
        """Write it as arrays and one document."""
        arrays: dict[str, npt.NDArray[Any]] = {}
        told = []
        for number, model in enumerate(self.models):
            arrays |= model.trees.as_arrays(f"{number}.")
            told.append(
                {
                    "tier": model.tier,
                    "columns": list(model.columns),
                    "without": sorted(model.without),
                }
            )
        arrays |= {
            f"{_HELD_OUT}{axis}": values.astype(np.float32)
            for axis, values in self.held_out.items()
        }
        words = {name: list(value) for name, value in vars(self.words).items()}
        document = {
            "format": _FORMAT,
            "made_of": self.made_of,
            "made_with": self.made_with,
            "words": words,
            "models": told,
        }
        arrays["about"] = np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type, unused-ignore]

    @classmethod
    def read(cls, path: Path) -> Kept:
        """Read what `write` wrote.

        Raises `InputError` if it is damaged.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                about = json.loads(arrays["about"].tobytes())
                if about["format"] != _FORMAT:
                    msg = f"format {about['format']}, and this perfml reads {_FORMAT}"
                    raise ValueError(msg)
                words = {name: tuple(value) for name, value in about["words"].items()}
                models = tuple(
                    KeptModel(
                        str(each["tier"]),
                        tuple(each["columns"]),
                        frozenset(each["without"]),
                        Trees.from_arrays(arrays, f"{number}."),
                    )
                    for number, each in enumerate(about["models"])
                )
                held_out = {
                    axis: np.asarray(arrays[f"{_HELD_OUT}{axis}"], float)
                    for axis in AXES
                    if f"{_HELD_OUT}{axis}" in arrays
                }
                made = str(about["made_of"]), str(about["made_with"])
                return cls(Vocabulary(**words), models, held_out, *made)
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            msg = "the fitted models of the atlas cannot be read"
            cure = "Install perfml again, or remove the file: models are then fitted anew."
            found = f"{type(error).__name__}: {error}"[:200]
            raise InputError(msg, where=str(path), found=found, cure=cure) from error


@dataclass(frozen=True)
class KeptFor:
    """What is kept, for rows of the atlas without the networks in question.

    Attributes
    ----------
    kept
        Fitted on all networks.
    places
        Which of the rows with a bound remain.
    anew
        Fits what is not kept.
    """

    kept: Kept
    places: npt.NDArray[np.int64]
    anew: FittedNow

    def expected(self, rows: pd.DataFrame) -> Floats:
        """Take each network's model that did not learn from it."""
        features = describe(rows, self.kept.words, "shape")
        networks = rows[NETWORK].astype(object).to_numpy()
        found = np.empty(len(rows))
        for network in dict.fromkeys(networks):
            own = networks == network
            model = self._model("shape", str(network))
            chosen = features.loc[own, list(model.columns)].to_numpy()
            found[own] = model.trees.predict(chosen)
        return found + log_base(rows)

    def _model(self, tier: str, network: str) -> KeptModel:
        of_tier = [model for model in self.kept.models if model.tier == tier]
        return next((model for model in of_tier if network in model.without), of_tier[0])

    @cached_property
    def _seen(self) -> frozenset[str]:
        return frozenset().union(*(model.without for model in self.kept.models))

    def by_work(self, rows: pd.DataFrame) -> Floats:
        """Take the model of all networks; fit anew for fewer counters or a network it has seen."""
        # a ratio that is nowhere defined has a column, and rows that were learned from lack it too
        fewer = [name for name in self.kept.words.counted if name not in rows.columns]
        if fewer or self._seen & set(rows[NETWORK].astype(str)):
            return self.anew.by_work(rows)
        model = self._model("counted", "")
        features = describe(rows, self.kept.words, "counted")[list(model.columns)]
        return model.trees.predict(features.to_numpy()) + log_base(rows)

    def residuals(self, axis: str) -> Floats:
        """Return those of the rows that remain."""
        if axis not in self.kept.held_out:
            return self.anew.residuals(axis)
        return np.asarray(self.kept.held_out[axis][self.places])


def digest_of(folder: Path) -> str:
    """Return one digest of the parts of a Layers table."""
    each = [sha256_of_file(path) for path in part_files(folder, "layers")]
    return sha256_of("".join(each).encode())


def kept_in(folder: Path) -> Kept | None:
    """Return what was fitted on the tables of a folder; None if nothing, or of other tables."""
    path = folder / FILE
    if not path.is_file():
        return None
    kept = Kept.read(path)
    return kept if kept.made_of == digest_of(folder) else None
