"""The workload conv: problems, options, the reference, and every kernel's source on the CPU."""

from dataclasses import replace

import pytest

from collectors.workloads import Options, default_backends, workload
from perfml.errors import InputError
from studies.workloads.conv import problems
from studies.workloads.conv import workload as conv
from studies.workloads.conv.problems import DEFAULT_SIZES, Problem, parse_sizes
from tests.support.ladders_on_cpu import COMPILER, on_cpu
from tests.support.ranges import ListedRanges

pytestmark = pytest.mark.slow

SMALL = {
    # more maps than a tile, a ragged last tile, padding; and a shape without padding
    "padded": Problem("", 1, maps=19, channels=3, height=9, width=7, size=3, pad=1),
    "bare": Problem("", 1, maps=4, channels=1, height=14, width=12, size=7, pad=0),
}
SIZES = (("sizes", "padded_b2,bare_b5"),)


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Let the problems be small ones, and return a function that runs kernels on the CPU."""
    if COMPILER is None:
        pytest.skip("needs a C++ compiler")
    monkeypatch.setattr(problems, "_SHAPES", SMALL)
    return lambda: on_cpu(monkeypatch, conv, tmp_path)


@pytest.mark.parametrize(
    "text", ["conv3_b1", "conv1", "conv1_b0", "conv1_b65536", "", "conv1_b1,,"]
)
def test_a_problem_that_does_not_exist_is_refused(text):
    with pytest.raises(InputError, match="no problem of this name"):
        parse_sizes(text)


def test_a_problem_named_twice_is_refused():
    with pytest.raises(InputError, match="twice"):
        parse_sizes("conv1_b1,conv1_b1")


def test_the_ladder_starts_with_three_kernels_and_ends_with_cudnn():
    found = workload("conv")
    assert found.backends()[0] == "unroll"
    assert found.backends()[-1] == "cudnn"
    assert found.precisions("wmma_fp16") == ("fp16",)
    assert found.precisions("cudnn") == ("fp32", "tf32", "fp16")
    assert "wmma_tf32" not in default_backends("conv")
    assert {"streams", "tile8", "tile32", "cudnn"} < set(default_backends("conv"))
    assert {name for pair in found.steps() for name in pair} == set(found.backends())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options("nosuch"), "no such version"),
        (Options("fused", precision="fp16"), "does not offer this precision"),
        (Options("fused", batch=2), "part of a problem's name"),
        (Options("fused", settings=(("tile", "8"),)), "no setting of this name"),
        (Options("fused", device="cpu"), "CUDA kernels"),
        (Options("constant", settings=(("sizes", "yolo20_b1"),)), "do not fit in constant memory"),
        (Options("fused", settings=(("copies", "yes"),)), "copies is 0 or 1"),
        (Options("cudnn", settings=(("copies", "1"),)), "without copies"),
    ],
)
def test_what_cannot_be_run_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        workload("conv").session(options)


def test_constant_memory_takes_the_problems_whose_weights_fit():
    names = [each.name for each in conv.WORKLOAD.problems(Options("constant"))]
    assert names == [name for name in DEFAULT_SIZES.split(",") if not name.startswith("yolo")]


def test_the_grid_covers_every_pixel_map_and_image():
    problem = parse_sizes("conv2_b100")[0]
    assert conv.grid_of(problem, "fused") == (73, 1, 100)
    assert conv.grid_of(problem, "tile8") == (145, 2, 100)
    assert conv.grid_of(problem, "tile32") == (37, 1, 100)
    assert conv.grid_of(problem, "wmma_fp16") == (19, 1, 100)


@pytest.mark.extras
def test_the_reference_is_the_convolution():
    import torch

    for shape in SMALL.values():
        problem = replace(shape, images=3)
        weights = torch.randn(problem.maps, problem.channels, problem.size, problem.size)
        images = torch.randn(3, problem.channels, problem.height, problem.width)
        expected = torch.nn.functional.conv2d(
            images.double(), weights.double(), padding=problem.pad
        )
        assert torch.allclose(problems.reference(problem, weights, images), expected, atol=1e-12)


@pytest.mark.extras
@pytest.mark.parametrize("version", conv.VERSIONS)
def test_every_version_is_right_on_fresh_inputs(version, small):
    precision = conv.VERSIONS[version].precision
    with small() as built:
        session = workload("conv").session(Options(version, precision, settings=SIZES))
        with session.active():
            rows = session.check()
        launched = [name for module in built for name, _ in module.launches]
    assert [row.output for row in rows] == ["padded_b2/y", "bare_b5/y"]
    assert all(row.passed for row in rows), rows
    # tensor-core versions round their operands, others do not: the limits tell them apart
    assert all((row.error > 1e-4) == (precision != "fp32") for row in rows)
    expected = {"unroll": 6, "streams": 18, "fused_streams": 6}.get(version, 2)
    assert len(launched) == expected


@pytest.mark.extras
@pytest.mark.parametrize("version", ["unroll", "fused_streams"])
def test_copies_bring_the_images_and_take_the_outputs_of_every_part(version, small, monkeypatch):
    settings = (*SIZES, ("copies", "1"))
    with small():
        session = workload("conv").session(Options(version, settings=settings))
        assert all(row.passed for row in session.check())
        assert session.describe()["settings"]["copies"] is True
        # and the check sees it where they are forgotten
        monkeypatch.setattr(conv._Data, "copied", lambda _data, launch, _first, _count: launch)
        session = workload("conv").session(Options(version, settings=settings))
        assert not any(row.passed for row in session.check())


@pytest.mark.extras
def test_a_wrong_kernel_does_not_pass(small, monkeypatch):
    right = conv.shape_argument

    def shifted(problem, images=None):
        made = right(problem, images)
        made["pad"] = 0
        return made

    with small():
        monkeypatch.setattr(conv, "shape_argument", shifted)
        session = workload("conv").session(Options("fused", settings=SIZES))
        assert [row.passed for row in session.check()] == [False, True]


@pytest.mark.extras
def test_layers_are_the_problems_and_runs_are_described(small):
    with small():
        session = workload("conv").session(Options("streams", settings=SIZES))
        ranges = ListedRanges()
        session.run(ranges)
    assert ranges.paths == ["padded_b2", "bare_b5"]
    described = session.describe()
    assert described["settings"]["streams"] == 4
    assert described["settings"]["changes"] == "unroll"
    assert described["layers"][0]["flops"] == 2 * 2 * 19 * 63 * 27


@pytest.mark.extras
def test_the_yardstick_passes_its_own_limits(monkeypatch):
    import torch

    monkeypatch.setattr(problems, "_SHAPES", SMALL)
    monkeypatch.setattr(conv, "DEVICE", "cpu")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for precision in ("fp32", "fp16"):
        session = workload("conv").session(Options("cudnn", precision, settings=SIZES))
        with session.active():
            rows = session.check()
        assert [row.output for row in rows] == ["padded_b2/y", "bare_b5/y"]
        assert all(row.passed for row in rows), rows
