"""Where launches belong: in ranges, in modules, in the forward of a backward."""

import pytest

from perfml.readers import read
from tests.support.torch_trace import Trace

NODE = "autograd::engine::evaluate_function: "


@pytest.fixture
def layers(tmp_path):
    def of(trace):
        path = tmp_path / "trace.json"
        path.write_bytes(trace.data())
        frame = read(path).frame
        return dict(zip(frame["kernel"], frame["layer"], strict=True))

    return of


def operator(trace, name, start, duration, *, sequence=None, forward=0, tid=41):
    more = {"Fwd thread id": forward}
    if sequence is not None:
        more["Sequence number"] = sequence
    trace.event("cpu_op", name, start, duration, tid=tid, args=more)


def training(*, modules=True, backward=True):
    """One step: forward on thread 41, backward on thread 99."""
    trace = Trace()
    trace.event("user_annotation", "forward", 0, 400)
    for place, name in enumerate(("Linear_0", "Linear_1")):
        start = 10 + 100 * place
        if modules:
            trace.event("python_function", f"nn.Module: {name}", start, 90)
        operator(trace, "aten::linear", start + 5, 80, sequence=7 + place)
        trace.launch(f"forward_{name}()", start + 10, 2000 + place, 1.0)
    if backward:
        trace.event("user_annotation", "backward", 500, 400)
    for place, name in enumerate(("Linear_1", "Linear_0")):
        start = 510 + 100 * place
        operator(trace, f"{NODE}AddmmBackward0", start, 90, sequence=8 - place, forward=1, tid=99)
        trace.launch(f"backward_{name}()", start + 20, 3000 + place, 1.0, thread=99)
    operator(trace, f"{NODE}torch::autograd::AccumulateGrad", 800, 20, tid=99)
    trace.launch("accumulate()", 805, 3100, 1.0, thread=99)
    return trace


def test_backward_lies_in_the_range_around_it_and_belongs_to_the_module_of_its_forward(layers):
    assert layers(training()) == {
        "forward_Linear_0()": "forward/Linear_0",
        "forward_Linear_1()": "forward/Linear_1",
        "backward_Linear_1()": "backward/Linear_1",
        "backward_Linear_0()": "backward/Linear_0",
        "accumulate()": "backward",
    }


def test_without_a_range_of_its_own_backward_belongs_to_the_forward_by_sequence_numbers(layers):
    found = layers(training(backward=False))
    assert found["backward_Linear_0()"] == "forward/Linear_0/backward"
    assert found["backward_Linear_1()"] == "forward/Linear_1/backward"
    assert found["accumulate()"] == "torch::autograd::AccumulateGrad/backward"


def test_what_runs_again_in_backward_is_called_so(layers, tmp_path):
    trace = training()
    # a checkpoint: forward again within a node of backward, with sequence numbers of its own
    operator(trace, f"{NODE}CheckpointFunctionBackward", 720, 70, sequence=6, forward=1, tid=99)
    operator(trace, "aten::linear", 725, 40, sequence=1, tid=99)
    trace.launch("again()", 730, 3050, 10.0, thread=99)
    operator(trace, f"{NODE}AddmmBackward0", 770, 15, sequence=1, forward=2, tid=99)
    trace.launch("backward_again()", 775, 3070, 10.0, thread=99)
    assert layers(trace)["again()"] == "backward/recomputed"
    step = read(tmp_path / "trace.json").provenance["step"]
    zones = {part["kernel"]: part["zone"] for part in step["devices"][0]["parts"]}
    assert zones["again"] == "recomputed"
    assert zones["backward_again"] == zones["backward_Linear_0"] == ""


def test_kernels_of_one_graph_are_layers_of_their_own(layers):
    trace = Trace()
    trace.event("user_annotation", "decode", 0, 100)
    for place in range(6):
        name = "attention(half*)" if place % 3 == 0 else "norm(half*)"
        trace.launch(name, None, 200 + 10.0 * place, 5.0, correlation=7)
    graph = {"correlation": 7}
    trace.event("cuda_runtime", "cudaGraphLaunch", 50, 10, args=graph)
    assert layers(trace) == {
        "attention(half*)": "decode/attention",
        "norm(half*)": "decode/norm",
    }


def test_launches_beside_the_modules_belong_to_their_operators(layers):
    trace = Trace()
    trace.event("user_annotation", "ProfilerStep#1", 0, 500)
    trace.event("python_function", "nn.Module: Net_0", 10, 100)
    trace.launch("gemm()", 20, 1000, 5)
    trace.event("cpu_op", "aten::cross_entropy_loss", 200, 50)
    trace.launch("loss()", 210, 1010, 5)
    assert layers(trace) == {"gemm()": "Net_0", "loss()": "aten::cross_entropy_loss"}
