"""The ladders recorded as a whole, and Darknet itself: the page says what the recordings have."""

import json

import pytest

from perfml.tables import read_table
from studies.ladders import pack
from studies.seeds import page, results, steps
from tests.support.paths import ROOT

TEXT = page.PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tables():
    return {name: read_table(pack.OUT / f"{name}.parquet") for name in pack.LADDERS}


@pytest.mark.parametrize("name", pack.LADDERS)
def test_a_ladder_is_there_whole_from_one_recording_and_was_right_before_it_was_measured(
    tables, name
):
    runs = tables[name].provenance["runs"]
    assert [pack.Version.of(each) for each in runs] == pack.wanted(name)
    assert set(tables[name].frame["run_id"]) == {each["run_id"] for each in runs}
    for each in runs:
        assert each["profiler"] == "cupti"
        assert each["device"] == "NVIDIA H200"
        assert each["started"].startswith("2026-11-22")
        assert each["check"]["passed"], each["run_id"]
    text = json.dumps(tables[name].provenance)
    assert "/tmp/" not in text
    assert "/opt/" not in text


@pytest.mark.slow
def test_the_answers_to_the_ladders_recorded_anew_are_those_that_are_kept():
    names = ("ladder", "step", "layer", "author", "ratio")
    measured, kept = steps.measure(steps.LADDERS), page.anew_rows()
    assert [[row[each] for each in names] for row in measured] == [
        [row[each] for each in names] for row in kept
    ], "write it anew: python -m studies.seeds.steps --anew"


def test_what_is_said_of_the_steps_recorded_anew_is_so():
    rows = [row for row in page.anew_rows() if row["author"] and row["explain"]]
    first = sum(row["place"] == 1 for row in rows)
    assert f"The author's cause is first in {first} of {len(rows)} rows" in TEXT
    off = sorted(abs(row["expected"] / row["ratio"] - 1) for row in page.anew_rows()
                 if row["expected"])  # fmt: skip
    assert 0.3 < off[len(off) // 2] < 0.38
    told = f"(median of {len(off)} rows), within a quarter in {sum(each < 0.25 for each in off)}."
    assert told in TEXT


def test_times_recorded_anew_are_those_of_the_data_sets_as_far_as_the_page_says(tables):
    within = {}
    for name in pack.LADDERS:
        older = read_table(ROOT / f"studies/data/h200-{name}/kernels.parquet").frame
        both = [_medians(frame) for frame in (tables[name].frame, older)]
        off = (both[0] / both[1]).dropna().sub(1).abs()
        within[name] = (len(off), (off < 0.01).sum(), (off < 0.05).sum())
    assert within["conv"] == (110, 107, 109)
    assert within["qkv"][::2] == (70, 70)
    assert within["attention"][::2] == (76, 70)


def _medians(frame):
    keys = ["backend", "precision", "layer"]
    sums = frame.groupby([*keys, "iteration"], observed=True)["time_us"].sum()
    return sums.groupby(keys, observed=True).median()


def test_triton_unrolling_and_tiles_gain_what_is_told():
    of = page.whole_times("attention")
    layers = [f"b48_n{tokens}_d64" for tokens in page.TOKENS] + ["b48_n6400_d128"]
    shares = [of["triton", "fp16", each] / of["torch-fa2", "fp16", each] for each in layers]
    assert (round(min(shares), 2), round(max(shares), 2)) == (0.77, 0.82)
    conv = page.whole_times("conv")
    sizes = [f"conv{each}_b{images}" for images in (1000, 10000) for each in (1, 2)]
    for version, least, most in (("unrolled", 1.03, 1.05), ("tile16", 1.16, 1.23)):
        found = [
            round(conv[f"wmma_fp16_{version}", "fp16", size] / conv["wmma_fp16", "fp16", size], 2)
            for size in sizes
        ]
        assert (min(found), max(found)) == (least, most)
    light = [
        (round(row["compute"]), round(row["memory"])) for row in page.results()["speed_of_light"]
    ]
    assert light == [(78, 27), (76, 25)]


def test_the_tensor_instructions_of_triton_are_as_few_as_those_of_wgmma(tables):
    frame = tables["attention"].frame.query("layer == 'b48_n6400_d64'")
    used = frame.groupby("backend", observed=True)["tensor_utilization"].mean()
    assert used["triton"] / used["wgmma"] == pytest.approx(1, abs=0.02)
    assert all(5 < used[name] / used["triton"] < 8 for name in ("torch-fa2", "wmma", "mma"))


def test_darknet_itself_does_what_the_page_says():
    found = page.darknet_results()
    assert found["worst_error"]["cublas"] < 1.5e-6
    assert round(found["worst_error"]["cudnn"], 5) == 3.5e-4
    cublas, cudnn = (found["runs"][name]["us"] for name in ("cublas", "cudnn"))
    assert sorted(cublas, key=cublas.get)[-2:] == ["conv_20", "conv_03"]
    assert [name for name in cublas if cudnn[name] >= cublas[name]] == ["conv_15"]
    kernels = [row["kernel"] for row in found["runs"]["cublas"]["kernels"]["conv_03"]]
    told = ("fill", "im2col", "gemm", "gemm", "add_bias", "activate")
    assert all(word in name for word, name in zip(told, kernels, strict=True))
    winograd = found["runs"]["cudnn, Winograd not fused"]
    assert 3.5 < sum(winograd["us"].values()) / sum(cudnn.values()) < 4


def test_a_later_recording_replaces_the_cases_that_it_has_and_adds_the_others(tmp_path):
    rows = [{"case": "t10", "version": "fused", "total_s": 2.0}]
    (tmp_path / "slow.json").write_text(
        json.dumps({"slow": [rows[0] | {"total_s": 1.0}, rows[0] | {"case": "t29"}]})
    )
    found = results.with_more({"attention": rows, "conv": []}, tmp_path)
    assert [(row["case"], row["total_s"]) for row in found["attention"]] == [
        ("t10", 1.0),
        ("t29", 2.0),
    ]
    assert "speed_of_light" not in found
