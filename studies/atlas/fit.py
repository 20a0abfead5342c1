"""Fit what `perfml predict` keeps of the atlas: ``python -m studies.atlas.fit``.

Run it after a change to how layers are described or fitted; a test
compares what is kept with models fitted anew.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import sys

from perfml.modeling.features import BOUND
from perfml.predict.describe import Vocabulary
from perfml.predict.learned import AXES, FILE, KEPT, NETWORK, Kept, digest_of
from perfml.predict.model import LayerModel, codes_of, held_out_residuals
from perfml.predict.python import reference
from studies.atlas.record import ATLAS


def fit_all(reference, made_of):
    """Fit everything that is kept, on all rows of a reference that have a bound."""
    known = reference[reference[BOUND].notna()].reset_index(drop=True)
    words = Vocabulary.of(known)
    held_out = {}
    models = [LayerModel.fit(known, words, tier) for tier in KEPT]
    for tier, axis in itertools.product(KEPT, AXES):
        if len(set(known[axis])) > 1:
            groups, folds = codes_of(known, axis), []
            held_out[tier, axis] = held_out_residuals(known, words, tier, groups, keep=folds)
            models += folds if axis == NETWORK else []
    made_with = importlib.metadata.version("scikit-learn")
    return Kept(words, tuple(models), held_out, made_of, made_with)


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    path = ATLAS / FILE
    fit_all(reference(), digest_of(ATLAS)).write(path)
    sys.stdout.write(f"{path.name}: {path.stat().st_size / 2**20:.2f} MiB\n")


if __name__ == "__main__":
    main()
