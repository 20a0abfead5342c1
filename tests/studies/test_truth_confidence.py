"""The fit of confidence: signs, groups that are left out, and where high confidence begins."""

from __future__ import annotations

import numpy as np

from perfml.explain.tree.confidence import FEATURES
from studies.truth.confidence import FACTORIAL, Case, curve, firm_from, fit, held_out, predict
from studies.truth.scores import DEVELOP
from studies.truth.sets import COLUMNS


def cases(count=400):
    random = np.random.default_rng(3)
    found = []
    for at in range(count):
        features = tuple(random.uniform(size=len(FEATURES)))
        # the first feature tells, the second one tells the wrong way
        right = bool(random.uniform() < 0.2 + 0.8 * features[0] * (1 - 0.3 * features[1]))
        found.append(Case(DEVELOP, f"group {at % 5}", "default", features, right, residual=False))
    return found


def test_no_weight_is_negative_and_what_tells_has_one():
    point = fit(cases())
    assert (point[1:] >= 0).all()
    assert point[1] > 1
    assert point[2] == 0


def test_held_out_probabilities_are_those_of_models_that_have_not_seen_the_group():
    some = cases()
    out = held_out(some)
    group = [at for at, case in enumerate(some) if case.group == "group 0"]
    others = fit([case for case in some if case.group != "group 0"])
    assert np.allclose(out[group], predict(others, [some[at] for at in group]))


def test_a_rest_is_never_firm():
    rest = Case(DEVELOP, "g", "default", (1.0,) * len(FEATURES), right=True, residual=True)
    assert predict(fit(cases()), [rest]).tolist() == [0.0]


def test_firm_begins_where_answers_are_right_often_enough():
    some = [
        Case(part, "g", next(iter(COLUMNS)), (0.0,), right=at >= least, residual=False)
        for part, least in ((DEVELOP, 20), (FACTORIAL, 60))
        for at in range(100)
    ]
    sure = np.tile(np.linspace(0.0, 0.99, 100), 2)
    # the part that is worst decides
    assert firm_from(sure, some) == 0.6
    point = next(row for row in curve(sure, some) if row["from"] == 0.6)
    assert (point["answers"], point["right"], point["of"]) == (80, 80, 200)
