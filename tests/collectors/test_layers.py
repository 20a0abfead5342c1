"""perfml.layers in a script of the user's own: names, iterations, and nothing left behind."""

import json

import pytest

import perfml
from collectors import layers as script
from perfml.account.account import Account
from perfml.account.causes import findings
from perfml.account.words import step_sentence
from perfml.errors import InputError
from perfml.readers import read
from tests.support.ranges import ListedRanges
from tests.support.torch_trace import Trace

pytestmark = pytest.mark.extras


@pytest.fixture
def ranges(monkeypatch):
    """Record what would go to NVTX."""
    listed = ListedRanges()
    monkeypatch.setattr(script, "_nvtx", lambda: listed)
    return listed


@pytest.fixture
def model():
    import torch

    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())


@pytest.fixture
def batch():
    import torch

    return torch.ones(1, 2)


def names(ranges):
    return [path.partition("/")[2] for path in ranges.paths if "/" in path]


def test_each_call_is_an_iteration_with_its_modules_in_it(ranges, model, batch):
    with perfml.layers(model):
        model(batch)
        model(batch)
    whole = ["Sequential", "0", "Sequential.after_0", "1", "Sequential.after_1"]
    assert names(ranges) == whole * 2
    iterations = [path for path in ranges.paths if "/" not in path]
    assert len(set(iterations)) == 2
    assert all(path.startswith("iter_") for path in iterations)


def test_calls_without_a_profiler_are_iterations_without_layers(ranges, model, batch, monkeypatch):
    with script.followed(model, bare=2):
        for _ in range(3):
            model(batch)
    assert len([path for path in ranges.paths if "/" not in path]) == 3
    assert names(ranges) == ["Sequential", "0", "Sequential.after_0", "1", "Sequential.after_1"]
    assert not {**model._forward_hooks, **model[0]._forward_hooks}
    ranges.paths.clear()
    monkeypatch.setenv(script.BARE, "folder")  # a program that is run for its time alone
    with perfml.layers(model):
        model(batch)
    assert (len(ranges.paths), names(ranges)) == (1, [])


def test_an_iteration_of_the_users_own_holds_several_calls(ranges, model, batch):
    with perfml.layers(model), perfml.iteration(7):
        model(batch)
        model(batch)
    assert next(path for path in ranges.paths if path.startswith("iter_")) == "iter_7"
    assert {path.partition("/")[0] for path in ranges.paths} == {"iter_7"}
    assert ranges.paths.count("iter_7/0") == 2


def test_without_iterations_only_modules_are_named(ranges, model, batch):
    with perfml.layers(model, iterations=False):
        model(batch)
    assert ranges.paths == ["Sequential", "0", "Sequential.after_0", "1", "Sequential.after_1"]


def test_after_the_block_the_model_is_as_it_was(ranges, model, batch):
    with perfml.layers(model):
        model(batch)
    recorded = len(ranges.paths)
    model(batch)
    assert len(ranges.paths) == recorded


def test_a_module_that_raises_closes_its_ranges(ranges, model, batch):
    with perfml.layers(model, iterations=False):
        with pytest.raises(RuntimeError):
            model(batch[:, :1])
        ranges.paths.clear()
        model(batch)
    assert ranges.paths[:2] == ["Sequential", "0"]


def compiled(block, how):
    """Return a block as a user would have compiled it, or as compiling in place leaves it."""
    import torch

    if how == "function":
        return torch.compile(block, backend="eager")
    if how == "script":
        return torch.jit.script(block)
    if how == "in place":
        block.compile(backend="eager")
    else:
        block._compiled_call_impl = block._call_impl
    return block


@pytest.mark.parametrize(
    "how",
    [
        "script",
        "as in place",
        # torch.compile takes seconds to import
        pytest.param("in place", marks=pytest.mark.slow),
        pytest.param("function", marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_compiled_module_is_one_layer_and_a_warning_names_it(ranges, model, batch, how):
    import torch

    block = compiled(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), how)
    whole = torch.nn.Sequential(model, block)
    warned = pytest.warns(UserWarning, match="compiled, so one layer each: 1")
    with warned, perfml.layers(whole, iterations=False):
        whole(batch)
    assert ranges.paths[-2:] == ["1", "Sequential.after_1"]
    assert "0.0" in ranges.paths
    assert not [path for path in ranges.paths if path.startswith("1.")]
    recorded = len(ranges.paths)
    whole(batch)
    assert len(ranges.paths) == recorded


def test_without_a_gpu_a_script_runs_as_it_is(model, batch, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with perfml.layers(model), perfml.iteration(0):
        assert model(batch).shape == (1, 2)


def test_an_iteration_is_refused_a_name(ranges):
    with pytest.raises(InputError, match="has a number") as error, perfml.iteration("step"):
        pass
    assert "perfml.iteration(0)" in error.value.cure
    assert ranges.paths == []


def test_a_step_is_timed_without_a_profiler_and_the_report_of_its_trace_keeps_to_it(tmp_path):
    trace = tmp_path / "trace.json"
    recorded = Trace()
    for step in range(4):  # 1,000 us a step, 100 of them computing
        recorded.event("user_annotation", "step", 1000.0 * step, 990)
        asked, grid = 1000.0 * step + 20, {"grid": [4096, 1, 1]}
        recorded.launch("relu()", asked, asked + 30, 100.0, correlation=step, **grid)
    trace.write_bytes(recorded.data())
    calls = []
    median = perfml.time_step(lambda: calls.append(1), trace, steps=5, warmup=2)
    assert (len(calls), median > 0) == (7, True)
    beside = tmp_path / "trace.json.step.json"
    assert len(json.loads(beside.read_text())["step_us"]) == 5
    plain = findings(account(trace, beside, None))
    bare = account(trace, beside, [420.0, 400.0, 380.0, 400.0])
    assert (bare.bare_us, bare.bare.step_us) == (400.0, 400.0)
    assert "Without a profiler a step takes 400 µs" in step_sentence(bare)
    # the device computes 100 us, so that 300 of some 900 us of idle time are the program's
    scale = 300 / bare.busiest.step.idle_us
    for one, other in zip(plain, findings(bare), strict=True):
        assert other.saved_us == pytest.approx(one.saved_us * scale)
        assert other.saved_us <= 300.0
    beside.write_text('{"step_us": [-1]}')
    with pytest.raises(InputError, match="step times"):
        read(trace)


def account(trace, beside, times):
    beside.unlink(missing_ok=True)
    if times is not None:
        beside.write_text(json.dumps({"step_us": times}))
    return Account.from_dict(read(trace).provenance["step"])
