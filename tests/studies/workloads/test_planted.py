"""The planted families: definitions, truth, launches, and the check of a session."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from collectors.workloads import Options, workload
from collectors.workloads.cuda import Resources
from perfml.errors import PerfmlError
from perfml.explain.tree.causes import TERMS
from perfml.metrics import load_catalogue
from studies.truth.labels import RETIRED, retired_rules
from studies.workloads.planted import definition, plans
from studies.workloads.planted import families as planted
from studies.workloads.planted.answers import AWAITED
from studies.workloads.planted.arithmetic import strided
from studies.workloads.planted.reference import expected
from studies.workloads.planted.workload import LIMIT, Bench, chosen_families, sources

SOURCES = Path(plans.__file__).parent
SMS = 132
EVERY = [
    (family, level, size) for family in planted.FAMILIES for level in range(4) for size in range(4)
]


@pytest.mark.parametrize("family", planted.FAMILIES, ids=lambda family: family.name)
def test_a_family_has_four_settings_and_a_cause_that_perfml_knows_by_name(family):
    assert len(family.values) == len(set(family.values)) == len(definition.LEVELS)
    catalogue, rules = load_catalogue(), set(retired_rules())
    known = {*family.cause.metrics, *family.cause.direction, *family.along} - {
        "kernels",
        "launches",
    }
    assert [name for name in known if name not in catalogue] == []
    assert set(family.cause.rules) <= rules
    assert family.cause.terms
    assert set(family.cause.terms) <= {*TERMS, *AWAITED, *RETIRED}
    assert set(family.cause.direction) <= {*family.cause.metrics}
    assert not set(family.along) & set(family.cause.metrics)
    assert set(family.cause.direction.values()) | set(family.along.values()) <= {-1, 1}


@pytest.mark.parametrize("level", range(4))
def test_the_truth_of_a_level_is_a_json_document_that_names_every_layer_once(level):
    document = definition.truth_document(level, planted.FAMILIES)
    assert json.loads(json.dumps(document)) == document
    assert (document["backend"], document["level"]) == (definition.LEVELS[level], level)
    layers = [layer for each in document["families"] for layer in each["layers"]]
    assert len(layers) == len(set(layers)) == len(planted.FAMILIES) * len(definition.SIZES)
    assert all(re.fullmatch(r"[a-z0-9_]+_s[0-3]", layer) for layer in layers)
    assert all(each["value"] == each["values"][level] for each in document["families"])


def test_every_launch_fits_the_gpu_and_its_buffers():
    for family, level, size in EVERY:
        planned = plans.plan(family, level, size, SMS)
        assert 0 < planned.outputs <= 1 << definition.LOG_COUNT
        for call in planned.calls:
            assert planned.outputs <= call.grid * call.block * max(planned.rounds, 32)
            assert call.block in (32, 64, 128, 256, 1024)
            assert call.shared <= 227 * 1024
            numbers = [each for each in call.arguments if isinstance(each, int)]
            assert all(0 <= each < 2**31 for each in numbers)


def test_the_arguments_of_every_call_answer_to_the_kernels_parameters():
    bounds = r"(?:__launch_bounds__\([^)]*\))?"
    parameters = {
        (path.stem, name): [each.strip() for each in given.split(",")]
        for path in SOURCES.glob("*.cu")
        for name, given in re.findall(
            rf"__global__ void\s*{bounds}\s*(\w+)\(([^)]*)\)", path.read_text("utf-8")
        )
    }
    for family, level, size in EVERY:
        for call in plans.plan(family, level, size, SMS).calls:
            declared = parameters[call.source, call.kernel]
            assert len(declared) == len(call.arguments), call
            for word, argument in zip(declared, call.arguments, strict=True):
                kinds = {str: "*" in word, int: word.startswith("int "), float: "float " in word}
                assert kinds[type(argument)], (call.kernel, word, argument)


def work(family, level, size):
    """Return what must not change with the knob: thread-rounds of all launches."""
    planned = plans.plan(family, level, size, SMS)
    first = planned.calls[0]
    if first.kernel in ("walk", "uneven"):
        light, heavy, heavy_blocks = first.arguments[-3:]
        blocks = (first.grid - heavy_blocks) * light + heavy_blocks * heavy
        return blocks * first.block
    if first.kernel in ("advance", "waves"):
        return sum(call.grid * call.block * call.arguments[2] for call in planned.calls)
    return first.grid * first.block * planned.rounds


@pytest.mark.parametrize("family", planted.FAMILIES, ids=lambda family: family.name)
def test_the_knob_leaves_the_work_the_same_and_the_size_scales_it(family):
    for size, scale in enumerate(definition.SIZES):
        base = work(family, 0, size)
        for level in range(4):
            assert work(family, level, size) == pytest.approx(base, rel=2e-3)
        assert base == pytest.approx(scale * work(family, 0, 0), rel=1e-6)


def test_the_blocks_of_the_tail_family_fill_the_waves_they_are_meant_to():
    family = planted.BY_NAME["tail_wave"]
    grids = [plans.plan(family, level, 0, SMS).calls[0].grid for level in range(4)]
    assert grids == [132, 198, 165, 136]


def test_the_macros_of_a_level_are_divisors_of_the_work():
    for level in range(4):
        made = plans.macros(level)
        assert 96 % made["CHAINS"] == 0
        assert made["HELD"] % 4 == 0
        for size in range(4):
            load_chain = plans.plan(planted.BY_NAME["load_chain"], level, size, SMS)
            assert load_chain.rounds % made["LOADS"] == 0
            launches = plans.plan(planted.BY_NAME["launch_count"], level, size, SMS)
            assert launches.rounds % len(launches.calls) == 0


@pytest.mark.parametrize("shift", range(4))
def test_a_walk_meets_every_element_once_and_neighbours_are_apart(shift):
    j = np.arange(1 << 12)
    at = strided(j, 12, shift)
    assert sorted(at) == list(j)
    assert set(np.diff(at[:32])) == {1 << shift}


def test_settings_choose_families_and_sizes():
    def chosen(*pairs):
        return chosen_families(Options("base", settings=pairs))

    assert chosen() == (planted.FAMILIES, 4)
    few, sizes = chosen(("families", "divergence, special"), ("sizes", "2"))
    assert ([family.name for family in few], sizes) == (["divergence", "special"], 2)
    for pair in (
        ("families", "no_such"),
        ("sizes", "0"),
        ("sizes", "5"),
        ("sizes", "x"),
        ("no", "1"),
    ):
        with pytest.raises(PerfmlError):
            chosen(pair)
    with pytest.raises(PerfmlError, match="no level"):
        workload("planted").precisions("cublas")


class Computed:
    """Stands in for a compiled source: its kernels compute on the CPU what the reference says."""

    compiler = "none"

    def __init__(self, macros, wrong=1.0, beside=0):
        self.macros, self.wrong, self.beside = macros, wrong, beside

    def kernel(self, name):
        return ComputedKernel(name, self.macros, self.wrong, self.beside)


class ComputedKernel:
    def __init__(self, name, macros, wrong, beside):
        self.name, self.macros, self.wrong, self.beside = name, macros, wrong, beside

    def resources(self):
        return Resources(16, 0, 0)

    def __call__(self, grid, block, *arguments, shared=0):
        whole = [each for each in arguments if hasattr(each, "dtype")]
        out, source = whole[-1], whole[0]
        tensors = {"in": source.roll(self.beside)}
        if source.dtype.is_floating_point is False:
            # a table holds the next row in each of its 32 lanes
            tensors = {"rows": source[::32].long(), "in": whole[1]}
        numbers = tuple("x" if hasattr(each, "dtype") else each for each in arguments)
        call = definition.Call(self.name, grid, block, numbers, shared)
        value = expected(definition.Plan((call,), grid * block, 0), self.macros, tensors)
        out[: grid * block] = (value * self.wrong).float()


CHEAP = "occupancy_shared,dependency,launch_count,working_set,divergence"


def bench(level, wrong=1.0, sizes="1", families=CHEAP, beside=0):
    options = Options(definition.LEVELS[level], settings=(("families", families), ("sizes", sizes)))
    made = Computed(plans.macros(level), wrong, beside)
    modules = dict.fromkeys(sources(level), made)
    session = Bench(options, modules, "cpu", 1).session()
    session.synchronize = lambda: None
    return session


@pytest.mark.extras
@pytest.mark.parametrize("level", [0, 3])
def test_a_session_launches_what_was_planned_and_the_check_accepts_the_right_result(level):
    session = bench(level)
    rows = session.check()
    drawn = [row.output for row in rows if ", " not in row.output]
    assert [each.removesuffix("_s0/out") for each in drawn] == CHEAP.split(",")
    assert [row for row in rows if not row.passed] == []
    described = json.loads(json.dumps(session.describe()))
    assert described["settings"]["truth"] == session.files()["truth.json"]
    assert {each["layer"] for each in described["layers"]} == set(session.layer_names())
    launches = {each["family"]: each["launches"] for each in described["layers"]}
    assert launches["launch_count"] == planted.BY_NAME["launch_count"].values[level]


@pytest.mark.extras
def test_the_check_refuses_results_that_are_half_a_per_cent_off():
    assert not any(row.passed for row in bench(1, wrong=1.005).check())


ARITHMETIC = "divergence,dependency,barriers,special,doubles,code_footprint,launch_count,tail_wave"


@pytest.mark.extras
@pytest.mark.parametrize("level", [0, 3])
def test_the_check_refuses_kernels_that_read_their_neighbours_inputs(level):
    session = bench(level, sizes="4", families=ARITHMETIC, beside=1)
    worst = dict.fromkeys(session.layer_names(), 0.0)
    for row in session.check():
        layer = row.output.split("/")[0]
        # the neighbour of the last output is memory that nothing wrote, maybe NaN
        worst[layer] = max(worst[layer], np.nan_to_num(row.error, nan=np.inf))
    assert {layer: error for layer, error in worst.items() if not error > 100 * LIMIT} == {}


@pytest.mark.extras
def test_the_inputs_of_the_check_are_not_those_of_the_run_which_come_back():
    import torch

    session = bench(0, families="working_set")
    (only,) = session._layers
    only.launch()
    before = only.outputs["out"].clone()
    session.check()
    assert not torch.equal(before, only.outputs["out"])
    only.launch()
    assert torch.equal(before, only.outputs["out"])


def test_each_level_is_another_build_of_one_source():
    found = [sources(level) for level in range(4)]
    for name in ("planted", "memory", "units"):
        assert len({tuple(each[name].defines.items()) for each in found}) == 4
    assert all(not each[name].defines for each in found for name in ("instructions", "blocks"))
    assert all(source.path.is_file() for each in found for source in each.values())
