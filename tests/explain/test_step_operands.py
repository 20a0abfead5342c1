"""Steps whose kernels take longer: what the trace holds of operands and launches tells why."""

import itertools

import pytest

from perfml.account.account import Account
from perfml.explain.steps import StepComparison
from perfml.readers import read
from tests.support.torch_trace import Trace

ROWS = {"dims": [[1024, 512], [1024, 512]], "types": ["float", "float"]}
ROWS["strides"] = [[512, 1], [512, 1]]


def side(tmp_path, us, *, kernel="vectorized_elementwise_kernel()", blocks=64, **operands):
    """Return the account of four steps of one operator whose kernel takes some microseconds."""
    trace = Trace()
    names = {"dims": "Input Dims", "types": "Input type", "strides": "Input Strides"}
    arguments = {names[name]: value for name, value in operands.items()}
    for step in range(4):
        at = step * (us + 60)
        trace.event("user_annotation", f"ProfilerStep#{step}", at, us + 50)
        trace.event("cpu_op", "aten::mul", at + 5, 20, args=arguments)
        grid = {"grid": [blocks, 1, 1]}
        trace.launch(kernel, at + 10, at + 20, us + step, correlation=step, **grid)
    path = tmp_path / f"{us}{kernel[:8]}.json"
    path.write_bytes(trace.data())
    return Account.from_dict(read(path).provenance["step"])


LONGER = [
    ("shapes", {**ROWS, "dims": [[4096, 512], [4096, 512]]}, {}),
    # as many elements, in a product of another shape
    ("shapes", {**ROWS, "dims": [[64, 8192], [64, 8192]], "strides": [[8192, 1]] * 2}, {}),
    ("wider_type", {**ROWS, "types": ["double", "double"]}, {}),
    ("strides", {**ROWS, "strides": [[1, 1024], [1, 1024]]}, {}),
    ("fewer_threads", ROWS, {"blocks": 8}),
    ("same_operands", ROWS, {}),
]


@pytest.mark.parametrize(("cause", "operands", "launch"), LONGER)
@pytest.mark.parametrize("turned", [False, True])
def test_what_was_given_to_an_operator_tells_why_its_kernels_take_longer(
    tmp_path, cause, operands, launch, turned
):
    pair = side(tmp_path, 300.0, **ROWS), side(tmp_path, 900.0, **operands, **launch)
    step = StepComparison(("a", "b"), *(pair[::-1] if turned else pair), capability=9.0)
    assert step.verdict == ("faster" if turned else "slower")
    assert (step.first_cause, step.slower) == (cause, "a" if turned else "b")
    # what names nothing is low, and says what would decide
    named = cause != "same_operands"
    assert step.confidence == ("medium" if named else "low")
    decides = "perfml collect --kernel vectorized_elementwise_kernel --launches 3:5"
    assert step.command is None or named != step.command.startswith(decides)
    rate = next((each for each in step.numbers if each.quantity == "operand_rate"), None)
    assert rate is not None
    assert rate.slow < rate.fast or cause in ("shapes", "wider_type")


def test_shapes_that_differ_by_little_are_no_reason_of_a_kernel_three_times_as_slow(tmp_path):
    larger = {**ROWS, "dims": [[1080, 512], [1080, 512]]}
    step = StepComparison(
        ("a", "b"), side(tmp_path, 300.0, **ROWS), side(tmp_path, 900.0, **larger), 9.0
    )
    assert (step.first_cause, step.confidence) == ("same_kernels", "low")
    assert "--launches 3:5" in step.command


@pytest.mark.parametrize(("blocks", "cause"), [(256, "shapes"), (8, "fewer_threads")])
def test_without_recorded_shapes_threads_tell(tmp_path, blocks, cause):
    step = StepComparison(
        ("a", "b"), side(tmp_path, 300.0), side(tmp_path, 900.0, blocks=blocks), 9.0
    )
    assert step.first_cause == cause
    again = StepComparison(("a", "b"), step.target, step.baseline, 9.0)
    assert (again.first_cause, again.slower) == (cause, "a")


def test_equal_launches_that_are_more_are_no_larger_operands(tmp_path):
    def launched(often):
        trace = Trace()
        for step in range(4):
            at = step * (160 * often + 60)
            trace.event("user_annotation", f"ProfilerStep#{step}", at, 160 * often + 50)
            trace.event("cpu_op", "aten::mul", at + 5, 20)
            for one in range(often):
                start, grid = at + 10 + 160 * one, {"grid": [512, 1, 1]}
                number = step * often + one
                asked = at + 10 + one / 2
                trace.launch("mul()", asked, start + 10, 150 + step, correlation=number, **grid)
        path = tmp_path / f"{often}.json"
        path.write_bytes(trace.data())
        return Account.from_dict(read(path).provenance["step"])

    step = StepComparison(("a", "b"), launched(2), launched(8), 9.0)
    assert (step.first_cause, step.slower) == ("more_launches", "b")


def test_a_trait_that_kernels_of_both_sides_have_is_no_difference(tmp_path):
    kernel = "volta_sgemm_128x64_tn"
    pair = [side(tmp_path, us, kernel=kernel, **ROWS) for us in (300.0, 900.0)]
    assert StepComparison(("a", "b"), *pair, 9.0).first_cause == "same_operands"
    larger = side(tmp_path, 901.0, kernel=kernel, **LONGER[0][1])
    assert StepComparison(("a", "b"), pair[0], larger, 9.0).first_cause == "shapes"


@pytest.mark.parametrize(
    ("fast", "slow", "cause"),
    [
        ("cutlass_80_tensorop_s1688gemm_256x64", "cutlass_80_simt_sgemm_256x64", "no_tensor_cores"),
        ("cutlass_80_tensorop_bf16_s16816gemm", "cutlass_80_tensorop_s1688gemm", "wider_type"),
        ("ampere_sgemm_32x32_sliced", "ampere_sgemm_128x64", "other_kernels"),
    ],
)
def test_names_of_other_kernels_on_equal_operands_tell_tensor_cores(tmp_path, fast, slow, cause):
    pair = side(tmp_path, 300.0, kernel=fast, **ROWS), side(tmp_path, 900.0, kernel=slow, **ROWS)
    for names, sides in ((("a", "b"), pair), (("b", "a"), pair[::-1])):
        step = StepComparison(names, *sides, 9.0)
        assert (step.first_cause, step.slower) == (cause, "b")


def test_equal_sides_of_two_scattering_steps_are_undecided():
    from tests.explain.test_steps import sides

    walls = (100.0, 112.0, 135.0, 147.0)
    # of four equal times those of one side lie apart in one of three orders
    for one in itertools.combinations(walls, 2):
        other = [us for us in walls if us not in one]
        assert sides(one, other).verdict == "undecided"
    assert sides([100.0, 104.0], [150.0, 155.0]).verdict == "slower"
