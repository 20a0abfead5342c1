"""The page of a decoder: prefill and decode, their classes, what to do first."""

import gzip
import json

import pandas as pd
import pytest

import perfml
from perfml.account.phase_times import phase_times
from perfml.ingest import ingest
from perfml.report.build import build_report
from perfml.report.render.markdown import to_markdown
from tests.support.paths import ROOT

TRACE = ROOT / "tests" / "data" / "servers" / "decoder_graph.json.gz"


@pytest.fixture(scope="module")
def kernels():
    return ingest([TRACE]).frame


@pytest.fixture(scope="module")
def phases(kernels):
    return {each.kind: each for each in phase_times(kernels)}


def test_a_step_is_its_kernels_the_waits_in_it_and_the_wait_before(phases):
    for each in phases.values():
        before = each.before_us if each.kind == "decode" else 0.0
        whole = each.kernels_us + each.idle_us + before
        assert each.whole_us == pytest.approx(whole, rel=1e-3)


def test_a_decode_step_takes_what_lies_between_two_replays(phases):
    events = json.loads(gzip.decompress(TRACE.read_bytes()))["traceEvents"]
    replays = {e["args"]["correlation"] for e in events if e["name"].startswith("cudaGraphLaunch")}
    begins = {}
    for e in events:
        number = e["args"].get("correlation")
        if e["cat"] == "kernel" and number in replays:
            begins[number] = min(e["ts"], begins.get(number, e["ts"]))
    starts = sorted(begins.values())
    between = (starts[-1] - starts[0]) / (len(starts) - 1)
    assert phases["decode"].steps == len(starts) == 20
    assert phases["decode"].whole_us == pytest.approx(between, rel=0.05)


def test_a_program_without_a_server_is_offered_none(kernels):
    page = to_markdown(build_report(perfml.merge(kernels), kernels=kernels))
    assert not any(word in page for word in ("vllm", "torchao", "flashinfer"))


def test_without_starts_a_step_is_the_sum_of_its_kernels(kernels):
    untimed = phase_times(kernels.drop(columns=["start_us", "gap_us"]))
    assert [each.whole_us for each in untimed] == [each.kernels_us for each in untimed]


def test_the_page_has_both_phases_and_their_classes(kernels):
    page = to_markdown(build_report(perfml.merge(kernels), kernels=kernels))
    assert "## Prefill and decode" in page
    for layer in ("gemm", "attention", "norm", "sampling", "indexing"):
        assert f"| {layer} |" in page
    # that products of one size are in one layer is how such layers are made
    assert "repeated_products" not in page


def test_other_layers_are_no_phases(kernels):
    assert phase_times(kernels.drop(columns="phase")) == ()
    assert phase_times(kernels.assign(layer=pd.array([None] * len(kernels), "string"))) == ()
