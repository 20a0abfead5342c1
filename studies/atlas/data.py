"""The atlas as arrays: rows, features, folds of networks, and fits on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import pandas as pd

from perfml.datasets import find
from perfml.datasets.table_files import read_parts
from perfml.metrics import clock_of
from perfml.modeling.features import BOUND
from perfml.modeling.models.registry import make_imputer
from perfml.modeling.parallel import quietly
from perfml.predict.describe import Vocabulary, describe, prepare_layers
from perfml.predict.model import codes_of
from perfml.tables import metric_columns
from studies import yardsticks

TIERS = ("shape", "counted", "clocked")
FOLDS = 10

_TABLES: list[pd.DataFrame] = []
"""What is analysed in the place of the atlas, the last one of them."""


@contextmanager
def analysing(table: pd.DataFrame) -> Iterator[None]:
    """Analyse other prepared rows than the atlas's inside the block."""
    cached = (rows, words, features, metric_columns_of, metrics)
    _TABLES.append(table)
    for each in cached:
        each.cache_clear()
    try:
        yield
    finally:
        _TABLES.pop()
        for each in cached:
            each.cache_clear()


@cache
def rows():
    """Return the rows of the atlas's first table that have a bound and a kind.

    What came `later` and the `rest` had no part in the choice of metrics.
    """
    table = _TABLES[-1] if _TABLES else _first()
    return table[table[BOUND].notna() & table["kind"].notna()].reset_index(drop=True)


def _first():
    table = read_parts(find("atlas"), "layers")
    return prepare_layers(table.frame, table.provenance)


@cache
def words():
    return Vocabulary.of(rows())


@cache
def features(tier):
    """Return the features of a tier that vary; ``clocked`` has shares beside what is counted."""
    found = describe(rows(), words(), "counted" if tier == "clocked" else tier)
    if tier == "clocked":
        clocked = [name for name in metric_columns(rows()) if clock_of(name) == "clocked"]
        found = found.join(rows()[clocked].astype(float))
    return found[[name for name in found.columns if found[name].nunique() > 1]]


def networks():
    return codes_of(rows(), "workload")


def by_network(ratio_error, codes=None):
    """Return the mean over networks of the mean relative error of their rows."""
    error = np.abs(np.exp(ratio_error) - 1)
    codes = networks() if codes is None else codes
    return float(np.mean(np.bincount(codes, error) / np.bincount(codes)))


def fit_predict(model, train, ratio, test, seed=0):
    return fitted(model, train, ratio, seed)(test)


def fitted(model, train, ratio, seed=0):
    """Return a function that predicts features, by a model fitted on some."""
    values = train.to_numpy()
    imputer = None
    if model != "lgbm":
        imputer = make_imputer().fit(values)
        values = imputer.transform(values)
    made = yardsticks.make(model, seed)
    estimator, _ = quietly(lambda x: made.fit(x, ratio), values)

    def predict(table):
        x = np.asarray(table)
        return quietly(estimator.predict, x if imputer is None else imputer.transform(x))[0]

    return predict


@cache
def metric_columns_of(metric):
    """Return the columns of the counted tier that a metric has."""
    known = features("counted").columns
    return [name for name in (metric, f"log {metric}", f"log {metric} / bound") if name in known]


@cache
def metrics():
    """Return the counted metrics, and the number of launches, that have columns."""
    return tuple(name for name in ("kernels", *words().counted) if metric_columns_of(name))


def shape_columns():
    return list(features("shape").columns)
