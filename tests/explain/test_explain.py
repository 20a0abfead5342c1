"""Two sides compared: times, kernels, metrics, alignment, and the recorded H200 sweep."""

import json

import numpy as np
import pandas as pd
import pytest

from perfml.errors import PerfmlError, TableError
from perfml.explain import align_layers, compare_times, explain, sides_of
from perfml.explain.changed_metrics import compare_metrics
from perfml.explain.launches import changes_between
from perfml.explain.load import load_tables
from perfml.ingest.merge.rule import merge
from perfml.ingest.profiles import ingest

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def recorded_kernels(sweep):
    """Return the launches of the sweep at batch 1."""
    kernels = ingest([sweep]).frame
    return kernels[kernels["batch"] == 1].reset_index(drop=True)


@pytest.fixture(scope="module")
def explained(recorded_kernels):
    layers = merge(recorded_kernels)
    pair = sides_of(layers, "cublas", "cudnn", kernels=recorded_kernels)
    return explain(*pair, layers=["conv_03", "conv_20"], model="gbr", training=layers)


def test_the_interval_of_a_ratio_covers_the_true_ratio_as_often_as_it_says():
    random = np.random.default_rng(7)
    hits = 0
    for _ in range(400):
        before = np.exp(random.normal(0.0, 0.05, size=6))
        after = np.exp(random.normal(0.3, 0.10, size=5))
        found = compare_times(before, after)
        hits += found.log_low <= 0.3 <= found.log_high
    assert 0.92 <= hits / 400 <= 0.98


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([10, 10.1, 9.9], [20, 20.1, 19.9], "slower"),
        ([20, 20.1, 19.9], [10, 10.1, 9.9], "faster"),
        ([10, 10.05, 9.95], [10.02, 10.0, 9.97], "no difference"),
        ([10, 10.001], [10.05, 10.051], "no difference"),
        ([10, 13, 8], [12, 9, 14], "undecided"),
        ([10], [10.01], "no difference"),
        ([10], [12], "slower"),
    ],
)
def test_verdicts(before, after, verdict):
    found = compare_times(before, after)
    assert found.verdict == verdict
    assert found.sentence().startswith(verdict)


@pytest.mark.parametrize("times", [[], [0.0], [-1.0, 2.0], [float("nan")]])
def test_times_that_are_none_are_refused(times):
    with pytest.raises(PerfmlError, match="target"):
        compare_times([1.0], times)


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        ("abc", "abc", ["same"]),
        ("abc", "ac", ["same", "vanished", "same"]),
        ("ac", "abc", ["same", "appeared", "same"]),
        ("abcd", "axd", ["same", "fused", "same"]),
        ("axd", "abcd", ["same", "split", "same"]),
        ("ab", "ax", ["same", "replaced"]),
    ],
)
def test_changes_are_found_in_launch_order(before, after, kinds):
    changes = changes_between(tuple(before), tuple(after))
    assert [each.kind for each in changes] == kinds
    assert [place for each in changes for place in each.baseline] == list(range(len(before)))
    assert [place for each in changes for place in each.target] == list(range(len(after)))


def test_another_instantiation_of_a_function_is_a_variant_not_another_kernel():
    before = ("conv_fp32", "void at::add_kernel<float>(int)", "relu")
    after = ("pack", "conv_fp16", "void at::add_kernel<half>(int)", "relu")
    changes = changes_between(before, after)
    assert [each.kind for each in changes] == ["split", "variant", "same"]


def test_kernels_are_found_by_what_they_do_not_by_how_busy_they_are(root):
    layers, kernels = load_tables(
        root / "datasets" / "h200-yolov4-tiny", ["batch=1", "backend=cudnn"]
    )
    pair = sides_of(layers, "fp32", "fp16", by="precision", kernels=kernels)
    detail = explain(*pair, layers=["conv_20"], model=None).details[0]
    appeared = detail.causes.by_kernel.query("term == 'kernels_appeared'")["kernels"]
    assert sorted(set(appeared)) == ["nchwToNhwcKernel", "nhwcToNchwKernel"]
    assert detail.kernels["change"].tolist() == ["split", "variant"]
    assert detail.launches["baseline_us"].sum() == pytest.approx(detail.time.baseline_us)
    assert detail.launches["target_us"].sum() == pytest.approx(detail.time.target_us)


def test_a_table_that_names_no_kernels_is_still_explained(recorded_kernels):
    layers = merge(recorded_kernels)
    layers["kernel_names"] = pd.array([pd.NA] * len(layers), dtype="string")
    detail = explain(*sides_of(layers, "cublas", "cudnn"), layers=["conv_20"], model=None).details[
        0
    ]
    assert detail.kernels.empty
    assert detail.causes.pairs[0].resource is not None


def metric_rows(**columns):
    return pd.DataFrame(columns)


def test_a_metric_changes_only_beyond_its_own_noise():
    before = metric_rows(
        gld_efficiency=[0.50, 0.51, 0.49], dram_utilization=[0.2, 0.4, 0.3], ipc=[1.0, 1.0, 1.0]
    )
    after = metric_rows(
        gld_efficiency=[0.90, 0.91, 0.89], dram_utilization=[0.3, 0.5, 0.4], ipc=[1.0, 1.0, 1.0]
    )
    found = compare_metrics(before, after).set_index("metric")
    assert found["changed"].to_dict() == {
        "gld_efficiency": True,
        "dram_utilization": False,
        "ipc": False,
    }
    assert found.index[0] == "gld_efficiency"


def test_a_metric_that_one_side_lacks_changed_and_one_without_repeats_is_unknown():
    found = compare_metrics(
        metric_rows(ipc=[1.0, 1.0], shared_efficiency=[0.4, 0.4]),
        metric_rows(ipc=[1.0, 1.0], shared_efficiency=[np.nan, np.nan]),
    ).set_index("metric")
    assert bool(found.loc["shared_efficiency", "changed"])
    single = compare_metrics(metric_rows(ipc=[1.0]), metric_rows(ipc=[2.0]))
    assert single["changed"].isna().all()


def test_a_metric_that_is_0_on_both_sides_of_single_launches_comes_last():
    found = compare_metrics(
        metric_rows(tex_fu_utilization=[0.0], ipc=[1.0], stall_sync=[0.2]),
        metric_rows(tex_fu_utilization=[0.0], ipc=[2.0], stall_sync=[0.21]),
    )
    assert found["metric"].tolist() == ["ipc", "stall_sync", "tex_fu_utilization"]


def shaped(*rows):
    names = ["layer", "flops", "weight_bytes", "input_bytes", "output_bytes"]
    return pd.DataFrame(rows, columns=names)


def test_layers_align_by_name_then_by_shape_in_order():
    left = shaped(("stem", 1, 1, 1, 1), ("a", 5, 5, 5, 5), ("b", 5, 5, 5, 5), ("c", 9, 9, 9, 9))
    right = shaped(("y", 5, 5, 5, 5), ("stem", 1, 1, 1, 1), ("z", 5, 5, 5, 5), ("w", 7, 7, 7, 7))
    found = align_layers(left, right)
    assert found.pairs.to_numpy().tolist() == [
        ["stem", "stem", "name"],
        ["a", "y", "shape"],
        ["b", "z", "shape"],
    ]
    assert found.only_baseline == ("c",)
    assert found.only_target == ("w",)


def test_layers_of_other_names_without_shapes_are_not_guessed():
    with pytest.raises(PerfmlError, match="no layer of one side answers"):
        align_layers(pd.DataFrame({"layer": ["a", "b"]}), pd.DataFrame({"layer": ["c", "d"]}))


@pytest.mark.parametrize("name", [None, pd.NA])
def test_kernels_without_a_name_on_either_side_are_one_kernel_each(kernels_of, name):
    cells = {"layer": None, "kernel": name, "iteration": None, "dram_utilization": 0.5}
    sides = [
        kernels_of([{**cells, "time_us": base + step / 10} for step in range(4)])
        for base in (10.0, 20.0)
    ]
    found = explain(*sides, model=None)
    assert found.total.verdict == "slower"
    assert found.details[0].kernels["change"].tolist() == ["same"]
    assert found.details[0].causes.totals[0].term.id == "dram_busy_time"
    same = explain(sides[0], sides[0], model=None)
    assert same.total.verdict == "no difference"
    assert same.details[0].reasons == ()


def test_one_unnamed_kernel_a_side_is_aligned_and_its_launches_are_repeats(kernels_of):
    times = ([10.0, 10.1, 9.9], [5.0, 5.1, 4.9])
    sides = [
        kernels_of([{"kernel": name, "layer": None, "time_us": each} for each in values])
        for name, values in zip(("attention_v7", "attention_v8"), times, strict=True)
    ]
    found = explain(*sides, model="gbr")
    detail = found.details[0]
    assert (detail.layer, detail.target_layer) == ("attention_v7", "attention_v8")
    assert detail.time.verdict == "faster"
    assert detail.time.repeats == (3, 3)
    assert detail.kernels["change"].tolist() == ["replaced"]
    # without counters there is nothing that a model could learn from
    assert detail.model is None


def test_launches_outside_the_layers_are_named_not_dropped_in_silence(kernels_of):
    rows = [{"time_us": 3.0}, {"layer": None, "time_us": 1.0, "kernel": "pool"}]
    found = explain(kernels_of(rows), kernels_of(rows), model=None)
    assert any("25.0 % of the time" in each for each in found.warnings)


def test_two_identical_runs_give_no_difference(recorded_kernels):
    layers = merge(recorded_kernels)
    run = layers[layers["backend"] == "cudnn"]
    found = explain(run, run.copy(), model="gbr", training=layers)
    assert found.total.verdict == "no difference"
    assert set(found.layers["verdict"]) == {"no difference"}
    for each in found.details:
        assert not each.metrics["changed"].any()
        assert each.causes.terms["log_ratio"].abs().max() == pytest.approx(0, abs=1e-12)
        assert each.model.values["log_ratio"].abs().max() == 0
        assert set(each.kernels["change"]) == {"same"}


def test_halves_of_one_recorded_run_give_no_difference_in_total(recorded_kernels):
    run = merge(recorded_kernels[recorded_kernels["backend"] == "cudnn"])
    halves = [run[run["iteration"] % 2 == side] for side in (0, 1)]
    found = explain(*halves, model=None)
    assert found.total.verdict == "no difference"
    assert not (found.layers["verdict"].isin(["slower", "faster"])).any()


def test_causes_and_model_of_the_recorded_layers_add_up(explained):
    for each in explained.details:
        assert each.causes.terms["log_ratio"].sum() == pytest.approx(each.time.log_ratio, abs=1e-9)
        assert each.model.values["log_ratio"].sum() == pytest.approx(
            each.model.predicted_log_ratio, abs=1e-9
        )


def test_conv_20_is_slower_under_cudnn_because_its_blocks_fill_an_eighth_of_a_wave(explained):
    conv_20 = explained.details[1]
    assert conv_20.time.verdict == "slower"
    assert conv_20.time.ratio == pytest.approx(2.42, abs=0.02)
    first = conv_20.causes.terms.iloc[0]
    assert first["term"] == "wave_quantization"
    assert first["log_ratio"] > 0.3
    filled = conv_20.causes.by_kernel.query("term == 'wave_quantization'").iloc[0]
    assert (filled["baseline"], filled["target"]) == (0.75, 0.13)
    assert "gemm" in filled["kernels"]
    assert "implicit_gemm" in filled["kernels"]


def test_conv_03_is_faster_under_cudnn_because_im2col_vanished(explained):
    conv_03 = explained.details[0]
    assert conv_03.time.verdict == "faster"
    gone = conv_03.causes.by_kernel.query("term == 'kernels_vanished'")
    assert "im2col" in gone.sort_values("log_ratio")["kernels"].iloc[0]
    assert conv_03.kernels["change"].tolist() == ["fused", "same"]
    assert "im2col" in conv_03.kernels["baseline"].iloc[0]
    assert "explain.model.direction" in [one.id for one in conv_03.disagreements]
    assert "inst_executed" in conv_03.causes.missing
    assert any("active multiprocessors only" in each for each in conv_03.causes.missing)


def test_a_layers_table_alone_gives_the_coarser_split_and_says_so(recorded_kernels):
    layers = merge(recorded_kernels)
    found = explain(*sides_of(layers, "cublas", "cudnn"), layers=["conv_20"], model=None)
    detail = found.details[0]
    assert "wave_quantization" not in set(detail.causes.terms["term"])
    assert detail.causes.missing[0].startswith("kernels table")
    assert any("kernels table" in each for each in found.warnings)
    assert detail.kernels["baseline_us"].iloc[0] != detail.kernels["baseline_us"].iloc[0]


def test_layers_of_the_same_shape_are_held_out_together(recorded_kernels):
    from perfml.explain.model import Explainer

    layers = merge(recorded_kernels[recorded_kernels["backend"] != "inductor"])
    number = layers["layer"].str[-2:].astype(int)
    for name in ("flops", "weight_bytes", "input_bytes", "output_bytes"):
        layers[name] = np.where(number <= 19, 1.0, number)
    pair = sides_of(layers, "cublas", "cudnn")
    rows = [side.layers[side.layers["layer"] == "conv_03"] for side in pair]
    # only conv_20 and conv_21 have another shape, which is too little to learn from
    assert Explainer(layers).attribute(*rows).held_out_log_ratio is None


def test_an_explanation_is_json_and_html(explained):
    text = json.dumps(explained.to_dict(), allow_nan=False)
    assert json.loads(text)["details"][1]["layer"] == "conv_20"
    page = explained._repr_html_()
    assert "wave quantization" in page
    assert "<b>" not in page.split("<h5>")[0] or "Warning" in page


def test_the_cure_for_a_mixed_side_names_a_value_that_the_other_side_has(sweep):
    layers = merge(ingest([sweep]).frame)
    layers = layers[(layers["backend"] != "cudnn") | (layers["batch"] == 8)]
    with pytest.raises(PerfmlError, match="the cublas side mixes") as caught:
        explain(*sides_of(layers, "cublas", "cudnn"), model=None)
    assert "--where batch=8" in str(caught.value)


@pytest.mark.parametrize(
    ("names", "said"),
    [(("cublas", "trt"), "no row has backend=trt"), (("cudnn", "cudnn"), "the same side")],
)
def test_sides_that_do_not_exist_are_errors(recorded_kernels, names, said):
    with pytest.raises(PerfmlError, match=said):
        sides_of(merge(recorded_kernels), *names)


def test_an_unknown_layer_and_a_foreign_table_are_errors(recorded_kernels):
    layers = merge(recorded_kernels)
    pair = sides_of(layers, "cublas", "cudnn")
    with pytest.raises(PerfmlError, match="conv_99"):
        explain(*pair, layers=["conv_99"], model=None)
    with pytest.raises(TableError, match="neither a kernels nor a layers table"):
        explain(pd.DataFrame({"x": [1]}), pd.DataFrame({"x": [1]}))


def test_sides_that_differ_in_more_than_the_backend_are_warned_of(kernels_of):
    found = explain(kernels_of([{"batch": 1}]), kernels_of([{"batch": 8}]), model=None)
    assert "the sides differ in batch too: 1 against 8" in found.warnings
    sides = ([{"precision": name}] for name in ("fp32", "unknown"))
    found = explain(*map(kernels_of, sides), model=None)
    assert not any("precision" in each for each in found.warnings)
