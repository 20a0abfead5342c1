"""Cross-validation and bootstraps go through joblib, so that its engines spread them."""

import os

import joblib
import numpy as np
import pandas as pd
import pytest

from perfml.modeling import evaluate, rank
from perfml.modeling.parallel import run_all
from tests.support.modeling_data import linear_layers

pytestmark = pytest.mark.long


def where(unit):
    return unit, os.getpid()


def test_without_an_engine_short_work_stays_in_this_process():
    found = run_all(where, range(4), n_jobs=None, seconds=0.1)
    assert found == [(unit, os.getpid()) for unit in range(4)]


def test_an_engine_that_was_chosen_gets_the_work_and_keeps_its_order(monkeypatch):
    monkeypatch.delenv("LOKY_MAX_CPU_COUNT", raising=False)
    threads = set()

    def work(unit):
        import threading

        threads.add(threading.current_thread().name)
        return unit

    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert run_all(work, range(20), n_jobs=None, seconds=0.1) == list(range(20))
    assert "MainThread" not in threads


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
        ) as scheduler,
        distributed.Client(scheduler),
    ):
        yield scheduler


@pytest.mark.slow
def test_a_cluster_gives_the_scores_and_ranks_of_this_process(cluster):
    layers = linear_layers(layers=6)
    words = {"models": ["dt"], "seed": 0}
    few = {"resamples": 2, "permutations": 20, "methods": ("builtin",)}
    here = evaluate(layers, splits=2, **words), rank(layers, **few, **words)
    with joblib.parallel_config(backend="dask"):
        there = evaluate(layers, splits=2, **words), rank(layers, **few, **words)
    for left, right in zip(here, there, strict=True):
        table = "scores" if hasattr(left, "scores") else "table"
        pd.testing.assert_frame_equal(getattr(left, table), getattr(right, table))
    assert np.isfinite(there[0].scores["median"]).all()
