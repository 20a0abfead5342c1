"""What is kept fitted says what a fit anew says, and is used only for what it was made of."""

from __future__ import annotations

import importlib.metadata

import numpy as np
import pandas as pd
import pytest

from perfml.datasets import find
from perfml.errors import InputError
from perfml.predict import predict
from perfml.predict.describe import describe
from perfml.predict.learned import FILE, KEPT, NETWORK, Kept, digest_of, kept_in
from perfml.predict.model import Intervals, LayerModel, Trees, ensemble, log_ratio
from perfml.predict.python import kept as kept_of_atlas
from perfml.predict.python import reference as atlas
from studies.atlas.fit import fit_all

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def kept(reference):
    return fit_all(reference, "made-up")


def test_trees_as_arrays_predict_what_scikit_learn_predicts():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 5))
    x[rng.random(x.shape) < 0.2] = np.nan
    fitted = ensemble(0).fit(x, rng.standard_normal(400))
    assert Trees.of(fitted).predict(x) == pytest.approx(fitted.predict(x), abs=1e-12)


@pytest.mark.slow
def test_an_unknown_network_gets_the_same_verdicts_from_what_is_kept(network, reference, kept):
    anew, again = (predict(network, reference, kept=each) for each in (None, kept))
    for one, other in zip(anew.layers, again.layers, strict=True):
        assert (one.layer, one.verdict, one.note) == (other.layer, other.verdict, other.note)
        assert one.expected_us == pytest.approx(other.expected_us)
        # residuals are kept in half precision
        assert one.high_us == pytest.approx(other.high_us, rel=5e-3)
        assert one.why == other.why


@pytest.mark.slow
def test_a_network_of_the_reference_is_judged_by_a_model_that_did_not_learn_from_it(
    network, reference, kept
):
    name = str(reference["workload"].iloc[0])
    blind = [model.tier for model in kept.models if name in model.without]
    assert blind == ["shape", "launched"]
    itself = predict(network.assign(workload=name), reference, kept=kept, top=0)
    other = predict(network, reference, kept=kept, top=0)
    assert itself.networks == other.networks - 1
    expected = [
        {each.layer: each.expected_us for each in found.layers} for found in (itself, other)
    ]
    assert expected[0] != expected[1]


@pytest.mark.slow
def test_what_is_kept_is_read_as_it_was_written(kept, tmp_path):
    kept.write(tmp_path / FILE)
    again = Kept.read(tmp_path / FILE)
    assert again.words == kept.words
    assert [model.without for model in again.models] == [model.without for model in kept.models]
    # half precision is enough for what is off by percents
    both = (each.held_out["launched", NETWORK] for each in (again, kept))
    assert next(both) == pytest.approx(next(both), rel=1e-3, abs=1e-6)
    assert np.array_equal(again.models[0].trees.threshold, kept.models[0].trees.threshold)


@pytest.mark.slow
def test_models_of_other_tables_are_not_used_and_damaged_ones_are_told(kept, tmp_path):
    assert kept_in(tmp_path) is None
    kept.write(tmp_path / FILE)
    assert kept_in(tmp_path) is None  # there is no table here that it was made of
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes()[:1000])
    with pytest.raises(InputError, match="cannot be read"):
        kept_in(tmp_path)


def test_the_atlas_has_models_of_its_own_tables():
    folder = find("atlas")
    assert folder is not None
    found = kept_of_atlas()
    assert found is not None, "fit them anew: python -m studies.atlas.fit"
    assert found.made_of == digest_of(folder)


@pytest.mark.slow
@pytest.mark.parametrize("tier", KEPT)
def test_what_is_kept_of_the_atlas_equals_a_fit_anew(tier):
    found = kept_of_atlas()
    rows = atlas()
    rows = rows[rows["bound_us"].notna()].reset_index(drop=True)
    model = next(each for each in found.models if each.tier == tier)
    anew = LayerModel.fit(rows, found.words, tier)
    assert anew.columns == model.columns, "fit them anew: python -m studies.atlas.fit"
    features = describe(rows, found.words, tier)
    before = model.trees.predict(features[list(model.columns)].to_numpy())
    after = anew.log_ratios(features)
    if importlib.metadata.version("scikit-learn") == found.made_with:
        # a tie between two splits is broken by a last digit, which processors sum differently
        assert np.mean(np.abs(before - after) > 1e-9) < 0.01
    # another version draws other features for its splits
    assert np.abs(before - after).mean() < 0.05
    assert np.abs(before - log_ratio(rows)).mean() < 0.2


def test_intervals_are_those_of_crepes():
    crepes = pytest.importorskip("crepes")
    rng = np.random.default_rng(1)
    for count in (30, 200, 1001):
        residuals = rng.standard_normal(count)
        family, other = (np.where(rng.random(n) < 0.5, "a", "b") for n in (count, 40))
        # expected times of all classes: below a launch's, and long ones
        usual, expected = rng.uniform(0, 6, count), rng.uniform(0, 6, 40)
        intervals = Intervals.calibrate(residuals, pd.Series(family), usual)
        sigmas, mine = (
            np.array(
                [
                    intervals.scatter.get(f"{name}, {np.digitize(np.exp(at), (3, 10, 50))}")
                    or intervals.scatter[name]
                    for name, at in zip(each, times, strict=True)
                ]
            )
            for each, times in ((family, usual), (other, expected))
        )
        system = crepes.ConformalPredictiveSystem().fit(residuals=residuals, sigmas=sigmas)
        ends = np.column_stack(intervals.around(expected, pd.Series(other), 0.8))
        theirs = system.predict_int(expected, sigmas=mine, confidence=0.8)
        assert ends == pytest.approx(theirs, abs=1e-12)
