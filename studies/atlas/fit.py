"""Fit what `perfml predict` keeps of the atlas: ``python -m studies.atlas.fit``.

Run it after `studies.atlas.pack`, or after a change to how layers are described or fitted; a test
compares what is kept with models fitted anew.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys

from perfml.modeling.features import BOUND
from perfml.predict.describe import Vocabulary
from perfml.predict.learned import AXES, FILE, NETWORK, Kept, KeptModel, digest_of
from perfml.predict.model import LayerModel, codes_of, held_out_residuals
from perfml.predict.reference import reference
from studies.atlas.pack import ATLAS


def fit_all(reference, made_of):
    """Fit everything that is kept, on all rows of a reference that have a bound."""
    known = reference[reference[BOUND].notna()].reset_index(drop=True)
    words = Vocabulary.of(known)
    held_out = {}
    models = []
    for axis in (each for each in AXES if len(set(known[each])) > 1):
        folds = []
        held_out[axis] = held_out_residuals(
            known, words, "shape", codes_of(known, axis), keep=folds
        )
        if axis == NETWORK:
            models += [("shape", without, model) for without, model in folds]
    whole = [
        (tier, frozenset(), LayerModel.fit(known, words, tier)) for tier in ("shape", "counted")
    ]
    kept = tuple(
        KeptModel(tier, model.columns, without, model.trees)
        for tier, without, model in (*whole, *models)
    )
    return Kept(words, kept, held_out, made_of, importlib.metadata.version("scikit-learn"))


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    path = ATLAS / FILE
    fit_all(reference(), digest_of(ATLAS)).write(path)
    sys.stdout.write(f"{path.name}: {path.stat().st_size / 2**20:.2f} MiB\n")


if __name__ == "__main__":
    main()
