"""Layers of recorded programs that name none: steps and classes of kernels."""

import bisect
import gzip
import json
from collections import Counter

import pytest

from perfml.account.phase_times import phase_times
from perfml.ingest import ingest
from perfml.ingest.inferred import NAMED_BY_CLASS
from perfml.readers.torch_trace import BY_OPERATOR
from tests.support.paths import ROOT
from tests.support.torch_trace import Trace

SERVERS = ROOT / "tests" / "data" / "servers"


def steps(kernels):
    """Return how many steps there are of each kind."""
    pairs = kernels[["layer", "iteration"]].itertuples(index=False)
    return Counter(kind for kind, _ in {(layer.partition("/")[0], turn) for layer, turn in pairs})


@pytest.mark.parametrize(
    ("name", "decoded"),
    [
        ("decoder_graph.json.gz", 20),
        ("decoder_ranges.json.gz", 12),
        ("decoder_compiled.json.gz", 20),
        ("in_process", 64),
    ],
)
def test_a_decoder_is_one_prefill_and_the_tokens_that_it_decoded(name, decoded):
    result = ingest([SERVERS / name])
    assert steps(result.frame) == {"prefill": 1, "decode": decoded}
    assert any(note.endswith(NAMED_BY_CLASS) for note in result.warnings)
    assert not any(note.endswith(BY_OPERATOR) for note in result.warnings)


def test_each_kernel_is_in_the_step_whose_range_it_was_launched_in():
    path = SERVERS / "decoder_ranges.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    ranges = sorted((e["ts"], e["name"]) for e in events if e["cat"] == "user_annotation")
    called = {e["args"]["correlation"]: e["ts"] for e in events if e["cat"].startswith("cuda_")}
    launched = sorted(
        (called[e["args"]["correlation"]], e["ts"], e["name"])
        for e in events
        if e["cat"] == "kernel"
    )
    starts = [start for start, _ in ranges]
    told = [bisect.bisect_right(starts, call) - 1 for call, _, _ in launched]
    frame = ingest([path]).frame
    assert frame["kernel"].tolist() == [name for *_, name in launched]
    assert frame["iteration"].tolist() == told
    kinds = [layer.partition("/")[0] for layer in frame["layer"]]
    assert kinds == [ranges[step][1] for step in told]


def test_the_time_of_a_class_is_that_of_its_kernels():
    events = json.loads(gzip.decompress((SERVERS / "decoder_graph.json.gz").read_bytes()))
    kernels = [e for e in events["traceEvents"] if e["cat"] == "kernel"]
    words = ("nvjet", "gemv", "splitKreduce")
    spent = sum(e["dur"] for e in kernels if any(word in e["name"] for word in words))
    frame = ingest([SERVERS / "decoder_graph.json.gz"]).frame
    products = frame["layer"].isin(["decode/gemm", "prefill/gemm"])
    assert frame.loc[products, "time_us"].sum() == pytest.approx(spent)


def traced(tmp_path, ranges):
    """Write a program of 12 steps with an argmax at the end of each, in some ranges."""
    trace, clock = Trace(), 0.0
    for _ in range(12):
        for name in ranges:
            trace.event("user_annotation", name, clock, 30)
            for kernel in ("gemm_kernel(int)", "rms_norm_kernel(int)", "flash_fwd_kernel(int)"):
                clock += 10
                trace.launch(kernel, clock - 8, clock, 5.0)
        trace.launch("ReduceOp<ArgMaxOps<float>>(int)", clock + 1, clock + 6, 2.0)
        clock += 20
    path = tmp_path / "program.json"
    path.write_bytes(trace.data())
    return path


def test_a_program_with_layers_keeps_them(tmp_path):
    names = ["embedding", "block_0", "block_1", "head"]
    frame = ingest([traced(tmp_path, names)]).frame
    assert {layer.partition("#")[0] for layer in frame["layer"].dropna()} == set(names)


def test_a_program_without_replays_or_tokens_keeps_its_range(tmp_path):
    frame = ingest([traced(tmp_path, ["step"])]).frame
    assert {layer.partition("#")[0] for layer in frame["layer"].dropna()} == {"step"}


def test_what_a_user_calls_a_range_has_no_meaning_of_ours(tmp_path):
    trace, clock = Trace(), 0.0
    for _ in range(6):
        trace.event("user_annotation", "step", clock, 90)
        for place, name in enumerate(("## forward ##", "decode", "prefill")):
            trace.event("user_annotation", name, clock + 1 + 30 * place, 28)
            trace.launch("gemm_kernel(int)", clock + 3 + 30 * place, clock + 10 + 30 * place, 20.0)
        clock += 100
    path = tmp_path / "loop.json"
    path.write_bytes(trace.data())
    frame = ingest([path]).frame
    assert "phase" not in frame or frame["phase"].isna().all()
    assert set(frame["layer"]) == {
        f"step/{name}" for name in ("## forward ##", "decode", "prefill")
    }
    assert phase_times(frame) == ()


def test_ranges_of_requests_are_no_layers_of_their_steps(tmp_path):
    trace, clock = Trace(), 0.0
    for request in range(5):
        trace.event("user_annotation", f"request {request}", clock, 320)
        for _ in range(6):
            for kernel in (
                "gemm_kernel(int)",
                "paged_attention_v1_kernel(int)",
                "argmax_kernel(int)",
            ):
                clock += 10
                trace.launch(kernel, clock - 8, clock, 5.0)
            clock += 23
        clock += 20
    path = tmp_path / "server.json"
    path.write_bytes(trace.data())
    assert steps(ingest([path]).frame) == {"decode": 30}
