"""What was planted is read as it was frozen, and shares come with their intervals."""

import json

import pytest

from perfml.errors import InputError
from perfml.explain.tree.causes import TERMS
from studies.truth import scores
from studies.truth.labels import RECORDED, RETIRED
from tests.support.paths import ROOT


def document(name, terms):
    family = {"family": name, "kind": "single", "layers": [f"{name}_s0"]}
    cause = {"metrics": ["stall_sync"], "terms": terms, "rules": []}
    families = [{**family, "cause": cause}]
    return {"baseline": "base", "levels": ["base", "level_1"], "families": families}


def test_recorded_labels_of_terms_are_read_as_ids(tmp_path):
    labels = ["wave fill", "work: shared-memory busy time", "work: FP64 operations", "stall_sync"]
    (tmp_path / "truth.json").write_text(json.dumps(document("old", labels)))
    (family,) = scores.read_truth(tmp_path).families
    assert family.terms == {
        "wave_quantization",
        "shared_memory_busy_time",
        "wavefronts_per_shared_load",
        "stall_sync",
    }


def test_every_label_of_the_recorded_truth_means_terms_that_exist():
    recorded = scores.read_truth(ROOT / "studies/data/h200-planted")
    named = {name for family in recorded.families for name in family.terms}
    assert named <= {*TERMS, *RETIRED}
    assert {name for ids in RECORDED.values() for name in ids} <= {*TERMS, *RETIRED}


def test_a_folder_without_planted_causes_or_with_damaged_ones_is_said_clearly(tmp_path):
    with pytest.raises(InputError, match="no planted causes"):
        scores.read_truth(tmp_path)
    (tmp_path / "truth.json").write_text('{"families": 3}')
    with pytest.raises(InputError, match="not a document of planted causes"):
        scores.read_truth(tmp_path)


def test_shares_have_wilsons_intervals():
    assert [round(end, 4) for end in scores.wilson(2, 5)] == [0.1176, 0.7693]
    assert scores.wilson(0, 0) == (0.0, 1.0)
    low, high = scores.wilson(20, 20)
    assert high == pytest.approx(1.0)
    assert low == pytest.approx(0.8389, abs=1e-4)


def test_halves_depend_on_the_name_alone():
    assert {scores.half_of(f"pair {at}") for at in range(20)} == {scores.DEVELOP, scores.ASIDE}
    # sha256 of the names: 60be..., 47e2...
    assert [scores.half_of(name) for name in ("map", "filters")] == ["develop", "aside"]
