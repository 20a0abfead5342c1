"""What is learned from a reference: fitted anew, or kept as data beside the atlas.

`compare` asks two things by tier: what layers like some rows take, and how far the reference's own
rows are off when they are held out. `FittedNow`
fits for each answer. `Kept` has the answers for the whole atlas in ``fitted.npz``, written by
``python -m studies.atlas.fit``: arrays, no pickle, and only for the very tables they were made of.

Here to change: what is kept, in `Kept`.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.datasets.table_files import part_files
from perfml.errors import InputError
from perfml.predict.describe import Vocabulary, describe
from perfml.predict.model import LayerModel, Trees, codes_of, held_out_residuals, log_base
from perfml.util.files import replacing, sha256_of, sha256_of_file
from perfml.util.typing import Floats, Progress

FILE = "fitted.npz"
"""Beside the parts of the atlas's Layers table."""

NETWORK = "workload"
AXES = (NETWORK, "backend", "precision", "usual_kind")
"""Columns by whose values rows are held out."""

KEPT = ("shape", "launched")
"""Tiers of which models are kept."""

_FORMAT = 2
_HELD_OUT = "held out."


@dataclass(frozen=True)
class FittedNow:
    """Fits models when they are asked for, on prepared rows of other networks.

    Of their metrics those are learned from that the judged layers have. `seed` is of the models,
    and of how networks are dealt out; `progress` is called as ``progress(done, total, what)``.
    """

    known: pd.DataFrame
    metrics: Sequence[str]
    seed: int = 0
    progress: Progress | None = None

    @cached_property
    def words(self) -> Vocabulary:
        """What rows are described by."""
        return Vocabulary.of(self.known, self.metrics)

    def expected(self, rows: pd.DataFrame, tier: str) -> Floats:
        """Return the logarithm of the microseconds that layers like these usually take."""
        return LayerModel.fit(self.known, self.words, tier, self.seed).log_times(rows)

    def residuals(self, axis: str, tier: str) -> Floats:
        """Return log(measured / expected) of the reference's rows, held out by a column."""
        groups = codes_of(self.known, axis)
        return held_out_residuals(
            self.known, self.words, tier, groups, seed=self.seed, progress=self.progress
        )


@dataclass(frozen=True)
class Kept:
    """What was fitted on a whole atlas.

    The first of the `models` of a tier learned from all networks; the others stand in for it where
    a network of the atlas itself is judged. `held_out` has the residuals of all rows with a bound,
    by tier and column of `AXES` that has several values. `made_of` is the digest of the tables,
    `made_with` the version of scikit-learn: another may draw other features.
    """

    words: Vocabulary
    models: tuple[LayerModel, ...]
    held_out: dict[tuple[str, str], Floats]
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
            # a thousandth is enough of what is off by percents
            f"{_HELD_OUT}{tier}.{axis}": values.astype(np.float16)
            for (tier, axis), values in self.held_out.items()
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
                words = Vocabulary(**{key: tuple(value) for key, value in about["words"].items()})
                models = tuple(
                    LayerModel(
                        words,
                        str(each["tier"]),
                        tuple(each["columns"]),
                        Trees.from_arrays(arrays, f"{number}."),
                        frozenset(each["without"]),
                    )
                    for number, each in enumerate(about["models"])
                )
                held_out = {
                    (tier, axis): np.asarray(arrays[f"{_HELD_OUT}{tier}.{axis}"], float)
                    for tier in KEPT
                    for axis in AXES
                    if f"{_HELD_OUT}{tier}.{axis}" in arrays
                }
                made = str(about["made_of"]), str(about["made_with"])
                return cls(words, models, held_out, *made)
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            msg = "the fitted models of the atlas cannot be read"
            cure = "Install perfml again, or remove the file: models are then fitted anew."
            found = f"{type(error).__name__}: {error}"[:200]
            raise InputError(msg, where=str(path), found=found, cure=cure) from error


@dataclass(frozen=True)
class KeptFor:
    """What is kept, for the rows of the atlas at `places`: without the networks in question.

    Residuals that are not kept are computed `anew`.
    """

    kept: Kept
    places: npt.NDArray[np.int64]
    anew: FittedNow

    @property
    def words(self) -> Vocabulary:
        """What rows are described by."""
        return self.kept.words

    def expected(self, rows: pd.DataFrame, tier: str) -> Floats:
        """Take each network's model that did not learn from it."""
        models = [model for model in self.kept.models if model.tier == tier]
        networks = rows[NETWORK].astype(object).fillna("").to_numpy()
        features = describe(rows, self.kept.words, tier)
        found = np.empty(len(rows))
        for network in dict.fromkeys(networks):
            own = networks == network
            model = next((each for each in models if network in each.without), models[0])
            found[own] = model.log_ratios(features[own])
        return found + log_base(rows)

    def residuals(self, axis: str, tier: str) -> Floats:
        """Return those of the rows that remain."""
        if (tier, axis) not in self.kept.held_out:
            return self.anew.residuals(axis, tier)
        return np.asarray(self.kept.held_out[tier, axis][self.places])


def folders_of(atlas: Path) -> list[Path]:
    """Return the folders of the atlas's Layers tables: what was recorded first, and what after."""
    folders = (atlas, *(atlas / name for name in ("later", "rest", "bf16")))
    return [folder for folder in folders if part_files(folder, "layers")]


def digest_of(atlas: Path) -> str:
    """Return one digest of the parts of its Layers tables."""
    files = [path for folder in folders_of(atlas) for path in part_files(folder, "layers")]
    return sha256_of("".join(map(sha256_of_file, files)).encode())


def kept_in(folder: Path) -> Kept | None:
    """Return what was fitted on the tables of a folder; None if nothing, or of other tables."""
    path = folder / FILE
    if not path.is_file():
        return None
    kept = Kept.read(path)
    return kept if kept.made_of == digest_of(folder) else None
