"""perfml.layers in a script of the user's own: names, iterations, and nothing left behind."""

import pytest

import perfml
from collectors import layers as script
from tests.support.ranges import ListedRanges


@pytest.fixture
def ranges(monkeypatch):
    """Record what would go to NVTX."""
    listed = ListedRanges()
    monkeypatch.setattr(script, "_nvtx", lambda: listed)
    return listed


@pytest.fixture
def model():
    torch = pytest.importorskip("torch")
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())


@pytest.fixture
def batch():
    return pytest.importorskip("torch").ones(1, 2)


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
    torch = pytest.importorskip("torch")
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
    torch = pytest.importorskip("torch")
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
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with perfml.layers(model), perfml.iteration(0):
        assert model(batch).shape == (1, 2)
