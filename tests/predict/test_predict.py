"""Layers that are slower than layers like them are found, and what cannot be told is not."""

import re

import numpy as np
import pandas as pd
import pytest

from perfml.datasets import load
from perfml.errors import PerfmlError
from perfml.explain import advise
from perfml.modeling.layer_shapes import FACTS
from perfml.predict import family_of, predict, prepare_layers, with_bounds
from perfml.predict.comparable import condition, findings_of, slowest_kernel
from perfml.predict.describe import TIERS, Vocabulary, describe, usual_kind
from perfml.predict.model import Intervals
from perfml.predict.results import SlowestKernel
from tests.predict.conftest import SLOW, WASTEFUL

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)
def few_folds():
    """Deal the eight networks into four parts: a fit each, nearly all that a test takes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("perfml.predict.model.FOLDS", 4)
        yield


@pytest.fixture(scope="module")
def found(network, reference):
    return predict(network, reference, reference_name="made-up")


def test_layers_that_break_the_law_are_slower_and_come_first(found):
    names = [each.layer for each in found.slower]
    assert {SLOW, WASTEFUL} <= set(names)
    assert len(names) <= 4  # two of 31 are above a 90 % interval by chance
    first = found.layers[0]
    assert first.layer == WASTEFUL
    assert first.excess_us == max(each.excess_us for each in found.slower)
    assert re.match(
        rf"{len(names)} of {found.compared} (different )?layers are slower", found.summary
    )


def test_the_ratio_is_what_was_planted(found):
    ratios = {each.layer: each.ratio for each in found.slower}
    assert ratios[SLOW] == pytest.approx(3.0, rel=0.25)
    assert ratios[WASTEFUL] == pytest.approx(2.5, rel=0.25)


def test_most_layers_lie_in_their_interval(found):
    compared = [each for each in found.layers if each.verdict != "not compared"]
    inside = [each.low_us <= each.time_us <= each.high_us for each in compared]
    assert 0.75 <= np.mean(inside) < 1.0
    assert all(
        (each.verdict == "usual") == held for each, held in zip(compared, inside, strict=True)
    )


def test_what_it_counts_too_much_is_named_beside_its_peers(found):
    why = next(each.why for each in found.slower if each.layer == WASTEFUL)
    assert why.unusual[0].metric == "inst_executed"
    assert why.unusual[0].factor == pytest.approx(4.0, rel=0.2)
    assert {peer.kind for peer in why.peers} == {"Conv2d"}
    assert why.counted
    assert "was not compared" in why.sentence  # the made-up table has no grids


def test_a_slow_layer_has_the_findings_of_advice():
    layers = load("h200-sweep").frame
    one = layers[(layers["backend"] == "cudnn") & (layers["batch"] == 1)]
    keys = [condition(row) for _, row in one.drop_duplicates("layer").iterrows()]
    reasons = findings_of(one, None, keys)
    assert set(reasons) <= set(keys)
    # layers asked for by name, as `predict` does: findings that are improbable of any layer stay
    table = advise(one, layers=sorted(one["layer"].unique())).table
    assert len(reasons) > len(set(advise(one).table["layer"]))
    firsts = table.assign(key=list(map(condition, table.to_dict("records")))).groupby("key")[
        "rules"
    ]
    assert {key: first.rules for key, (first, *_) in reasons.items()} == firsts.first().to_dict()
    assert ("uncoalesced_stores",) in firsts.first().to_list()


@pytest.mark.slow
def test_a_layer_is_never_compared_with_its_own_network(network, reference):
    both = pd.concat([reference, prepare_layers(network)], ignore_index=True)
    assert predict(network, both, top=0).networks == reference["workload"].nunique()


def test_without_shapes_layers_of_the_same_counted_work_are_compared(network, reference):
    bare = network.drop(columns=list(FACTS), errors="ignore")
    tables = [each.assign(dram_write_bytes=each["dram_read_bytes"]) for each in (bare, reference)]
    found = predict(tables[0], tables[1], top=0)
    assert {each.compared_by for each in found.layers} == {"counted work"}
    assert SLOW in {each.layer for each in found.slower}
    assert any("same counted work" in warning for warning in found.warnings)


def test_without_shapes_and_counters_nothing_can_be_told(network, reference):
    bare = network.drop(columns=[*FACTS, "inst_executed", "dram_read_bytes"], errors="ignore")
    with pytest.raises(PerfmlError, match="no layer can be compared: neither shapes nor"):
        predict(bare, reference)


def test_what_is_missing_of_every_layer_is_said_with_what_to_do(network, reference):
    few = network[network["layer"].isin(network["layer"].unique()[:10])]
    with pytest.raises(PerfmlError, match="the run does not name its GPU"):
        predict(few.assign(device=None), reference)
    bare = network.drop(columns=list(FACTS), errors="ignore")
    counted = bare.assign(
        precision=None, dram_write_bytes=bare["dram_read_bytes"], flop_count_sp=1e9
    )
    known = reference.assign(dram_write_bytes=reference["dram_read_bytes"])
    with pytest.raises(PerfmlError, match="does not name the precision") as precision:
        predict(counted, known)
    assert "perfml ingest RUN --precision" in precision.value.cure


@pytest.mark.slow
def test_without_counters_the_shape_alone_is_compared(network, reference):
    bare = network.drop(columns=["inst_executed", "dram_read_bytes", "ipc", "threads"])
    found = predict(bare, reference)
    assert SLOW in {each.layer for each in found.slower}
    assert not found.slower[0].why.counted
    assert "Counters were not collected" in found.slower[0].why.sentence


def test_attention_that_is_written_out_is_no_copy():
    assert family_of("clone") == "copy"
    assert family_of("clone", flops=1e8) == "attention"
    assert family_of("Linear", flops=1e8) == "product"


def test_a_module_and_its_operator_are_one_kind():
    assert usual_kind("gelu") == usual_kind("GELUActivation") == "GELU"
    assert usual_kind("RMSNorm") == "RMSNorm"  # one kernel, unlike those written in Python
    assert usual_kind("ConvTranspose2d") == "ConvTranspose2d"


def test_the_width_of_a_picture_is_its_channels_wherever_they_stand(reference):
    row = reference.head(1).assign(output="8x56x56x96")
    widths = {
        (family, kind): float(np.exp(describe(one, Vocabulary.of(reference))["log width"].iloc[0]))
        for family, kind in (
            ("product", "Linear"),
            ("normalization", "LayerNorm"),
            ("normalization", "BatchNorm2d"),
        )
        for one in [row.assign(family=family, usual_kind=kind)]
    }
    assert list(widths.values()) == pytest.approx([96, 96, 56])


@pytest.mark.slow
def test_an_unknown_kind_gets_the_interval_of_a_kind_left_out(network, reference, found):
    # products take three times what other kinds do: who never saw them is off by that
    own = reference.assign(
        time_us=reference["time_us"].where(reference["kind"] != "Linear", reference["time_us"] * 3)
    )
    strange = network.assign(kind=network["kind"].replace({"Linear": "MyLinear"}))
    other = predict(strange, own, top=0)
    widths = {each.layer: each.high_us / each.low_us for each in found.layers if each.low_us}
    renamed = [each for each in other.layers if each.kind == "MyLinear"]
    assert renamed
    for each in renamed:
        assert "kind MyLinear is not in the reference" in each.note
        assert each.high_us / each.low_us > 1.5 * widths[each.layer]


@pytest.mark.slow
def test_a_family_that_the_reference_lacks_is_not_compared(network, reference):
    strange = network.assign(kind=network["kind"].replace({"ReLU": "LSTM"}))
    found = predict(strange, reference, top=0)
    left = [each for each in found.layers if each.verdict == "not compared"]
    assert {each.kind for each in left} == {"LSTM"}
    assert {each.expected_us for each in left} == {None}
    assert any("no layer of this family (recurrent)" in warning for warning in found.warnings)


@pytest.mark.slow
def test_another_gpu_is_compared_with_itself_and_one_without_peaks_not_at_all(network, reference):
    slower = network.assign(device="NVIDIA A100-SXM4-40GB", time_us=network["time_us"] * 2)
    found = predict(slower, reference, top=0)
    assert SLOW in {each.layer for each in found.slower}
    assert len(found.slower) < 6
    assert all("is not in the reference" in each.note for each in found.layers)
    with pytest.raises(PerfmlError, match="peaks of NVIDIA Unheard are not known") as error:
        predict(network.assign(device="NVIDIA Unheard"), reference)
    assert "perfml doctor --measure-peaks" in str(error.value.cure)


@pytest.mark.slow
def test_the_fewer_layers_another_gpu_has_the_wider_are_their_intervals(network, reference):
    there = network.assign(device="NVIDIA H100 PCIe", time_us=network["time_us"] * 2)
    layers = there["layer"].unique()
    few = predict(there[there["layer"].isin(layers[:3])], reference, top=0)
    many = predict(there, reference, top=0)
    usual = {each.layer: each for each in many.layers}
    for each in few.layers:
        assert each.high_us / each.low_us > usual[each.layer].high_us / usual[each.layer].low_us
        # three layers are not believed that the GPU takes twice its peaks' time; forty are
        assert each.expected_us < usual[each.layer].expected_us


def test_the_slowest_kernel_of_a_layer_is_that_of_its_own_condition():
    rows = [
        ("conv", "cudnn", 0, "void ns::small<1>(int)", 2.0),
        ("conv", "cudnn", 0, "void ns::large<1>(int)", 3.0),
        ("conv", "cudnn", 0, "void ns::large<1>(int)", 3.0),
        ("conv", "cublas", 0, "void ns::other<1>(int)", 90.0),
        ("pool", "cudnn", 0, "void ns::pool<1>(int)", 90.0),
    ]
    columns = ["layer", "backend", "iteration", "kernel", "time_us"]
    once = pd.DataFrame(rows, columns=columns).assign(precision="fp32", batch=1)
    launches = pd.concat([once, once.assign(iteration=1)])
    found = slowest_kernel(launches, ("conv", "cudnn", "fp32", 1))
    assert found == SlowestKernel("large", 2, 6.0)
    assert slowest_kernel(launches, ("none", "cudnn", "fp32", 1)) is None
    assert slowest_kernel(None, ("conv", "cudnn", "fp32", 1)) is None


def test_a_precision_or_backend_that_is_alone_in_the_reference_is_said(network, reference):
    with pytest.raises(PerfmlError, match="no backend but cudnn, and this is tensorrt"):
        predict(network.assign(backend="tensorrt"), reference)


@pytest.mark.slow
def test_a_script_that_names_no_backend_is_taken_for_pytorch_as_it_is(network, reference):
    found = predict(network.assign(backend=pd.NA), reference, top=0)
    assert found.compared
    assert any("taken for PyTorch as it is" in warning for warning in found.warnings)


def test_a_model_compiled_whole_is_one_layer_and_not_compared(network, reference):
    whole = network.iloc[:1].assign(layer="graph")
    with pytest.raises(PerfmlError, match="compiled whole"):
        predict(whole, reference)


def test_a_reference_of_two_networks_is_too_little(network, reference):
    names = reference["workload"].unique()[:2]
    with pytest.raises(PerfmlError, match="too few other networks"):
        predict(network, reference[reference["workload"].isin(names)])


@pytest.mark.slow
def test_equal_layers_are_one_row_and_lose_together(network, reference):
    again = network[network["layer"] == SLOW].assign(layer="again")
    found = predict(pd.concat([network, again], ignore_index=True), reference, top=0)
    slow = next(each for each in found.slower if each.layer == SLOW)
    assert slow.copies == 2
    assert slow.name == f"{SLOW} and 1 equal"
    assert slow.excess_us == pytest.approx(2 * (slow.time_us - slow.expected_us))


def test_no_tier_holds_the_time(reference):
    words = Vocabulary.of(reference)
    faster = reference.assign(time_us=reference["time_us"] / 2, ipc=reference["ipc"] * 2)
    for tier in TIERS:
        pd.testing.assert_frame_equal(
            describe(reference, words, tier), describe(faster, words, tier)
        )


def test_a_convolution_is_described_alike_with_and_without_its_batch(reference):
    words = Vocabulary.of(reference)
    row = reference[reference["kind"] == "Conv2d"].iloc[:1]
    # four bytes each of 8 x 64 x 56 x 28 outputs
    row = row.assign(precision="fp32", filters=64, groups=1, batch=8, output_bytes=3211264.0)
    ways = [row.assign(output=each) for each in ("8x64x56x28", "56x28x64")]
    pd.testing.assert_frame_equal(*(describe(each, words) for each in ways))
    told = describe(ways[1], words).iloc[0]
    assert np.exp(told["log outputs"]) == pytest.approx(8 * 64 * 56 * 28)
    assert np.exp(told["log width"]) == pytest.approx(64)


def test_bf16_is_described_as_fp16_where_the_reference_has_no_bf16(reference):
    words = Vocabulary.of(reference)
    assert "bf16" not in words.precisions
    row = reference[reference["precision"] == "fp16"]
    other = describe(row.assign(precision="bf16"), words)
    pd.testing.assert_frame_equal(other, describe(row, words))


def test_a_bound_is_that_of_the_data_sheet(reference):
    row = reference[(reference["kind"] == "ReLU") & (reference["device"] == "NVIDIA H200")].iloc[:1]
    moved = row["input_bytes"] + row["output_bytes"]
    expected = moved.iloc[0] / 4.8e12 * 1e6
    assert with_bounds(row)["bound_us"].iloc[0] == pytest.approx(expected)
    unknown = with_bounds(row.assign(device="NVIDIA Unheard"))
    assert unknown["bound_us"].isna().all()


def test_a_network_of_many_layers_sets_no_interval_alone():
    rng = np.random.default_rng(0)
    # one network of 900 layers is hit exactly, nine of ten layers are off by half
    networks = pd.Series(["many"] * 900 + [f"net{at // 10}" for at in range(90)])
    residuals = np.where(networks == "many", 0.01, 0.5) * rng.standard_normal(990)
    family = pd.Series(["a"] * 990)
    widths = [
        float(
            np.subtract(
                *Intervals.calibrate(residuals, family, np.zeros(990), each).around(
                    np.zeros(1), pd.Series(["a"])
                )[::-1]
            )[0]
        )
        for each in (None, networks)
    ]
    # a next network is one of ten, so its layers lie within about 1.6 times 0.5 to either side
    assert widths[1] == pytest.approx(2 * 1.6 * 0.5, rel=0.3)
    assert widths[0] < widths[1] / 2
