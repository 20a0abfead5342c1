"""attention's own check, on its sources compiled for the CPU: what it refuses and leaves alone."""

from __future__ import annotations

import pytest

from collectors.collect import collect
from collectors.workloads import Options
from tests.support import attention_on_cpu
from tests.support.attention_sources import NO_RESCALE, cpu_session

pytestmark = pytest.mark.slow


def asked(backend, precision, size, **settings):
    pairs = {"sizes": size, **settings}
    return Options(backend, precision, settings=tuple(pairs.items()))


@pytest.mark.parametrize(
    ("options", "replaced"),
    [
        (asked("wmma", "fp16", "1x700x64", variants="q32_kv64"), "rescale"),
        (asked("mma", "fp16", "1x700x64", variants="r32_kv64_w4"), "rescale"),
        (asked("wgmma", "fp16", "1x700x64", variants="kv128_c3_turns"), "rescale"),
        (asked("wgmma", "fp16", "1x700x128", variants="d128_kv64_c3", causal="1"), "rescale"),
        (asked("o_registers", "fp32", "1x256x64"), "maximum"),
    ],
    ids=["wmma", "mma", "wgmma", "wgmma-d128-causal", "fp32"],
)
def test_the_check_of_collect_refuses_a_kernel_whose_fault_random_inputs_do_not_show(
    tmp_path, monkeypatch, options, replaced
):
    text = {
        "rescale": NO_RESCALE,
        "maximum": (
            "scores[y * kRows + thread] = sum;\n      tile_max = fmaxf(tile_max, sum);",
            "scores[y * kRows + thread] = sum;\n      tile_max = 0.0f;",
        ),
    }[replaced]
    session, _ = cpu_session(tmp_path, monkeypatch, options, text)
    (layer,) = session.layer_names()
    assert {row.output: row.passed for row in session.check()} == {
        f"{layer}/o": True,
        f"{layer}/o, rising scores": False,
    }


@pytest.mark.parametrize(
    ("options", "most"),
    [
        (asked("mma", "fp16", "1x330x128", variants="d128_r16_kv64_w4", causal="1"), 4e-4),
        (asked("fused", "fp32", "1x256x32"), 2e-6),
        (asked("o_registers", "fp32", "1x256x64"), 2e-6),
    ],
    ids=["mma-d128-causal", "fused", "o_registers"],
)
def test_the_check_of_collect_leaves_the_inputs_as_they_were(tmp_path, monkeypatch, options, most):
    session, tensors = cpu_session(tmp_path, monkeypatch, options)
    before = {name: tensors.values[name].clone() for name in "qkv"}
    rows = session.check()
    assert len(rows) == 2
    assert {row.output: row.error for row in rows if not row.error < most} == {}
    assert all(bool((before[name] == tensors.values[name]).all()) for name in "qkv")


def test_collect_measures_no_kernel_without_its_rescale_and_goes_on_to_the_next(tmp_path, tools):
    tools.setenv("FAKE_NCU_ARGUMENTS", str(tmp_path / "profiled"))
    tools.setenv("FAULTY", "mma")
    results = collect(
        "attention",
        backends=("mma", "wgmma"),
        precisions=("fp16",),
        warmup=1,
        workload_options=("--set", "sizes=1x700x64"),
        out=tmp_path / "runs",
        launcher=attention_on_cpu.LAUNCHER,
    )
    wrong, right = results
    assert [wrong.status, right.status] == ["failed", "done"], [each.message for each in results]
    assert wrong.message.startswith(
        "b1_n700_d64/o, rising scores: a kernel's output is wrong, so nothing was measured (found: "
        "relative error "
    )
    assert "the limit is 2e-03" in wrong.message
    assert "Mend the kernel, or leave it out with --backend or --set" in wrong.message
    assert not wrong.folder.exists()
    assert (tmp_path / "profiled").read_text().count("--export") == 1
    errors = {row["output"]: row["relative_error"] for row in right.record["check"]["outputs"]}
    assert set(errors) == {"b1_n700_d64/o, rising scores", "b1_n700_d64/o"}
    assert max(errors.values()) < 4e-4
