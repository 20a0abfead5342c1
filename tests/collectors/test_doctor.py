"""Doctor sees coming what collect would stumble over, and names the cure."""

import json
import os

import pytest
from typer.testing import CliRunner

from collectors import doctor
from collectors.profilers.cupti_failures import UnableError
from collectors.profilers.gpu import NoGpuError, gpus
from perfml.cli import app
from perfml.errors import PerfmlError
from perfml.explain import load_peaks
from tests.support.paths import TOOLS

pytestmark = pytest.mark.process


@pytest.fixture
def tools(tools, tmp_path):
    tools.setattr(doctor, "_ask", lambda *_, **__: ("13.0 True 91900", 0))
    parameters = tmp_path / "params"
    parameters.write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 0\n")
    tools.setattr(doctor, "_DRIVER_PARAMETERS", parameters)
    return tools


def checks():
    return {each.name: each for each in doctor.diagnose()}


def test_a_whole_machine_is_green(tools):
    found = checks()
    assert found["gpu"].status == "ok"
    assert "NVIDIA H200, compute capability 9.0" in found["gpu"].found
    assert found["driver"].found == "580.159.04"
    assert (found["ncu"].status, found["ncu"].found) == ("ok", "2025.3.1.0")
    assert found["counters"].status == "ok"
    assert found["nvprof"].status == "absent"
    assert "fail" not in {each.status for each in found.values()}


def test_whatever_is_not_green_names_a_cure(tools):
    tools.setenv("PATH", os.defpath)
    for each in doctor.diagnose():
        assert each.status in ("ok", "warn", "fail", "absent")
        if each.status in ("warn", "fail"):
            assert each.cure, each


def test_counters_by_iterations_need_the_driver_cupti_and_a_compiler(tools):
    tools.setattr(doctor.cupti, "require", lambda gpu: None)
    assert checks()["counters by iterations"].status == "ok"

    def refuse(gpu):
        msg = "no C++ compiler on the PATH"
        raise UnableError(msg, cure="Install g++.")

    tools.setattr(doctor.cupti, "require", refuse)
    found = checks()["counters by iterations"]
    assert (found.status, found.found) == ("warn", "no C++ compiler on the PATH")
    assert found.cure.startswith("Install g++. Without it, Nsight Compute measures")


def test_without_a_driver_the_gpu_and_what_needs_it_are_absent(tools, tmp_path):
    tools.setenv("PATH", str(tmp_path))
    found = checks()
    assert found["gpu"].status == "absent"
    assert found["ncu"].status == "absent"
    assert "driver" not in found
    assert "counters" not in found


def test_a_gpu_without_ncu_is_a_failure_with_its_cure(tools, tmp_path):
    (tmp_path / "nvidia-smi").symlink_to(TOOLS / "nvidia-smi")
    tools.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    found = checks()
    assert found["ncu"].status == "fail"
    assert "Install Nsight Compute" in found["ncu"].cure


def test_counters_for_root_only_are_seen_before_a_run(tools, tmp_path):
    (tmp_path / "params").write_text("RmProfilingAdminOnly: 1\n")
    tools.setattr(os, "geteuid", lambda: 1000)
    found = checks()["counters"]
    assert found.status == "fail"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in found.cure
    tools.setattr(os, "geteuid", lambda: 0)
    assert checks()["counters"].status == "ok"
    (tmp_path / "params").unlink()
    assert checks()["counters"].status == "warn"


def test_an_old_gpu_is_pointed_to_nvprof(tools):
    tools.setenv("FAKE_GPU", "pascal")
    found = checks()
    assert found["ncu"].status == "absent"
    assert "nvprof" in found["ncu"].cure
    assert found["nvprof"].status == "ok"


def test_a_torch_that_does_not_see_the_gpu_is_a_failure(tools):
    real = doctor.version_of
    tools.setattr(doctor, "version_of", lambda name: "2.6" if name == "torch" else real(name))
    tools.setattr(doctor, "_ask", lambda *_, **__: ("12.1 False 8902", 0))
    found = checks()["torch on the GPU"]
    assert found.status == "fail"
    assert "CUDA 12.1" in found.found


def test_without_a_gpu_torch_is_not_imported(tools, tmp_path):
    tools.setenv("PATH", str(tmp_path))
    real = doctor.version_of
    tools.setattr(doctor, "version_of", lambda name: "2.6" if name == "torch" else real(name))
    tools.setattr(doctor, "_ask", lambda *_, **__: pytest.fail("it was"))
    found = checks()["torch on the GPU"]
    assert (found.status, found.found) == ("absent", "no GPU")


PEAKS = {
    "kind": "measured",
    "device": "NVIDIA H200",
    "source": "perfml doctor --measure-peaks, torch 2.11.0",
    "date": "2026-11-21",
    "peaks": {"dram": 4.22e12, "fp32": 51.2e12},
    "how": {"dram": "copy", "fp32": "matrix product of 8192^3"},
}


@pytest.mark.parametrize("answer", [("torch sees no GPU", 1), ("nonsense", 0), ("[]", 0), ("", 0)])
def test_peaks_that_could_not_be_measured_are_a_failure_with_its_cure(tools, answer):
    tools.setattr(doctor, "_ask", lambda *_, **__: answer)
    document, found = doctor.measured_peaks()
    assert document is None
    assert [(each.status, bool(each.cure)) for each in found] == [("fail", True)]


def test_measured_peaks_become_a_file_that_the_roofline_reads(tools, tmp_path):
    tools.setattr(doctor, "measured_peaks", lambda: (PEAKS, []))
    path = tmp_path / "peaks.json"
    words = ["doctor", "--measure-peaks", "--out", str(path), "--json"]
    result = CliRunner().invoke(app, words)
    assert json.loads(result.stdout)["peaks"] == PEAKS
    peaks = load_peaks(path)
    assert (peaks.device, peaks.values) == ("NVIDIA H200", PEAKS["peaks"])
    assert set(peaks.kinds.values()) == {"measured"}
    assert "torch 2.11.0, 2026-11-21" in peaks.sources[0]
    refused = CliRunner().invoke(app, ["doctor", "--out", str(path)])
    assert refused.exit_code == 1
    assert "--measure-peaks" in refused.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not a file of measured peaks"),
        ("[1]", "not a file of measured peaks"),
        ('{"peaks": {"dram": "fast"}}', "not a file of measured peaks"),
        ('{"peaks": {"dram": -1}}', "positive rate"),
        ('{"peaks": {}}', "positive rate"),
        ('{"peaks": {"dram": NaN}}', "positive rate"),
    ],
)
def test_a_damaged_peaks_file_is_an_error(tmp_path, text, said):
    path = tmp_path / "peaks.json"
    path.write_text(text)
    with pytest.raises(PerfmlError, match=said):
        load_peaks(path)


@pytest.mark.parametrize("state", ["none", "broken"])
def test_a_driver_without_a_gpu_says_what_it_said(tools, state):
    tools.setenv("FAKE_GPU", state)
    with pytest.raises(NoGpuError) as error:
        gpus()
    assert "N" in (error.value.found or "")
    assert error.value.cure
