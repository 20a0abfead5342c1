"""The SM clock is measured by a program of its own, and travels from run.json to the layers."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from collectors.profilers import sm_clock
from perfml.ingest import ingest
from perfml.ingest.merge import merge

DRIVER = """
#include <cstdint>
#include <cstring>
// A GPU at 1,755 MHz whose timer steps by 32 ns.
static uint64_t held[2];
extern "C" {
int cuInit(unsigned) { return 0; }
int cuDeviceGet(int* device, int) { *device = 0; return 0; }
int cuDevicePrimaryCtxRetain(void** context, int) { *context = held; return 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuModuleLoadData(void** module, const char* ptx) {
  *module = held;
  return strstr(ptx, ".entry count_cycles") == nullptr;
}
int cuModuleGetFunction(void** function, void*, const char*) { *function = held; return 0; }
int cuMemAlloc_v2(uint64_t* memory, size_t size) {
  *memory = reinterpret_cast<uint64_t>(held);
  return size != sizeof held;
}
int cuLaunchKernel(void*, unsigned x, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void*, void** parameters, void**) {
  auto* out = *static_cast<uint64_t**>(parameters[0]);
  out[1] = (*static_cast<uint64_t*>(parameters[1]) + 31) / 32 * 32;
  out[0] = out[1] * 1755 / 1000;
  return x != 1;
}
int cuCtxSynchronize() { return 0; }
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) {
  memcpy(to, reinterpret_cast<void*>(from), size);
  return 0;
}
}
"""


@pytest.fixture
def driver(tmp_path):
    """Build a driver for the CPU; return the folder that it lies in."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    source = tmp_path / "driver.cpp"
    source.write_text(DRIVER)
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True)
    return tmp_path


@pytest.mark.process
def test_the_clock_is_cycles_by_the_nanosecond_timer(driver):
    assert sm_clock.measured({"LD_LIBRARY_PATH": str(driver)}) == pytest.approx(1755, abs=0.1)


@pytest.mark.process
def test_without_a_driver_there_is_no_clock_and_no_error(tmp_path):
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    assert sm_clock.measured({"LD_LIBRARY_PATH": str(tmp_path)}) is None


@pytest.mark.extras
@pytest.mark.process
def test_the_kernel_is_what_the_assembler_takes(tmp_path):
    assembler = shutil.which("ptxas")
    if assembler is None:
        pytest.skip("needs ptxas")
    (tmp_path / "a.ptx").write_bytes(sm_clock.PTX)
    command = [assembler, "-arch=sm_90", "a.ptx", "-o", "a.cubin"]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_the_clock_of_a_run_stands_beside_its_times(recorded, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(recorded / "fake_tools" / "yolov4-tiny", folder)
    manifest = json.loads((folder / "run.json").read_text())
    assert "sm_clock_mhz" not in merge(ingest([folder]).frame)
    manifest["timing"] = {**manifest.get("timing", {}), "sm_clock_mhz": 1755.0}
    (folder / "run.json").write_text(json.dumps(manifest))
    layers = merge(ingest([folder]).frame)
    assert set(layers["sm_clock_mhz"]) == {1755.0}
