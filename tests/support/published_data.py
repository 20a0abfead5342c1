"""A file of the published study's structure, made by hand."""

import numpy as np
import pandas as pd

from perfml.datasets.published import COLUMNS
from perfml.metrics import PUBLISHED
from perfml.reproduce import Plan
from perfml.reproduce.published import CONSTANT

QUICK = Plan(splits=4, model_seeds=2, own_splits=2, n_jobs=1)
"""Few splits: for what does not depend on how many there are."""

# condition: rows, mean time, sd, gld_efficiency: six conditions, as the published file has
CONDITIONS = {
    ("trt", 3): (14, 264.0, 3.0, 0.54),
    ("cublas", 3): (14, 982.0, 2.0, 0.60),
    ("cudnn", 3): (14, 357.0, 4.0, 0.94),
    ("trt", 20): (14, 355.0, 2.0, 0.58),
    ("cublas", 20): (14, 798.0, 1.5, 0.66),
    ("cudnn", 20): (14, 659.0, 30.0, 0.84),
}


def verdict(found, start):
    """Return the claim that begins with some words."""
    return next(claim for claim in found.claims if claim.claim.startswith(start))


def synthetic(seed=0):
    """Make a file of the published structure: repeats of six conditions, two decimals."""
    rng = np.random.default_rng(seed)
    rows = []
    for place, ((backend, layer), (count, mean, sd, gld)) in enumerate(CONDITIONS.items()):
        for _ in range(count):
            row = {name: round(0.3 + 0.01 * rng.integers(0, 4), 2) for name in PUBLISHED}
            row |= dict(zip(CONSTANT, (1.0, 0.1, 0.0), strict=True))
            row["gld_efficiency"] = gld
            row["shared_efficiency"] = round(0.4 + 0.05 * place, 2)
            row |= {"type": backend, "time": round(rng.normal(mean, sd), 2)}
            rows.append((layer, rng.random(), row))
    ordered = [row for _, _, row in sorted(rows, key=lambda each: each[:2])]
    return pd.DataFrame(ordered)[list(COLUMNS)]
