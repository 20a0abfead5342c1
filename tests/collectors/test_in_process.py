"""A process that measures itself: the real library over a stand-in for CUPTI."""

import csv
import ctypes
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

import perfml
from collectors import attach, in_process
from collectors import layers as script
from collectors.profilers.gpu import Gpu, NoGpuError
from collectors.profilers.process import ProfilerError
from perfml.errors import InputError
from perfml.ingest.profiles import ingest
from tests.support import cupti_on_cpu

pytestmark = pytest.mark.process

GPU = Gpu("NVIDIA H100 80GB HBM3", "580.159.04", "9.0")


@pytest.fixture
def built(counters_on_cpu):
    return counters_on_cpu[0]


@pytest.fixture
def gpu(built, monkeypatch):
    """Return a function that launches kernels as torch would."""
    monkeypatch.setattr(in_process, "library", lambda name: built)
    monkeypatch.setattr(in_process, "gpus", lambda: [GPU])
    monkeypatch.setattr(in_process.cupti, "require", lambda gpu: None)
    ctypes.CDLL(str(built.with_name("libcuda.so.1")), ctypes.RTLD_GLOBAL)
    fake = ctypes.CDLL(str(built.with_name(cupti_on_cpu.NAME)))
    fake.fake_node.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    fake.fake_kernel.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint64]
    return fake


class Model:
    """Launches what two layers would."""

    def __init__(self, gpu):
        self.gpu = gpu

    def __call__(self, number):
        ranges = script._nvtx()
        with perfml.iteration(number):
            for name in ("conv", "norm"):
                with ranges.range(name):
                    self.gpu.fake_kernel(0, f"_Z4{name}Pf".encode(), 0)


@pytest.fixture
def model(gpu):
    return Model(gpu)


def profile(tmp_path, **options):
    given = {"metrics": (), "out": tmp_path, "name": "net", **options}
    return perfml.profile(**given)


@pytest.mark.slow
def test_what_a_block_ran_is_a_run_with_its_layers(model, tmp_path):
    with profile(tmp_path) as run:
        for number in range(4):
            model(number)
    frame = perfml.read(run.folder)
    assert frame["layer"].tolist() == ["conv", "norm"] * 4
    assert frame["iteration"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert frame["time_us"].eq(0.5).all()
    assert frame["device"].eq(GPU.name).all()
    record = json.loads((run.folder / "run.json").read_text())
    assert (record["workload"], record["timing"]["source"]) == ("net", "cupti-activity")
    assert record["run_id"] == run.folder.name


def test_counters_come_after_the_timed_iterations(model, tmp_path):
    with profile(tmp_path, metrics=("m__0", "m__1", "m__2"), timed=2) as run:
        for number in range(5):
            model(number)
    assert run.warnings == ()
    raw = (run.folder / "metrics.csv").read_text().splitlines()
    rows = list(csv.reader(line for line in raw if not line.startswith("#")))
    column = rows[0].index("m__2")
    assert [row[column] for row in rows[1:]] == ["2", "2.01"]
    assert len((run.folder / "timing.csv").read_text().splitlines()) == 1 + 2 * 2


def test_the_first_iterations_run_without_a_profiler(model, tmp_path):
    with profile(tmp_path, bare=2) as run:
        for number in range(5):
            model(number)
    assert perfml.read(run.folder)["iteration"].unique().tolist() == [2, 3, 4]
    steps = json.loads((run.folder / "run.json").read_text())["timing"]["step_us"]
    assert len(steps) == 2
    with pytest.raises(ProfilerError, match="without a profiler"), profile(tmp_path, bare=2):
        model(0)
    with profile(tmp_path) as again:  # nothing is left of the block that failed
        model(0)
    assert "step_us" not in json.loads((again.folder / "run.json").read_text())["timing"]


def test_ranks_are_runs_of_their_own_that_are_never_added_up(model, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(in_process, "gpus", lambda: [GPU, replace(GPU, name="NVIDIA H200")])
    for rank, visible in enumerate(("0,1", "0,1")):
        for name, value in (("RANK", f"{rank}"), ("LOCAL_RANK", f"{rank}")):
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with profile(tmp_path) as run:
            model(0)
        assert json.loads((run.folder / "run.json").read_text())["rank"] == rank
        assert run.folder.name.startswith(f"net-rank{rank}-")
    kernels = ingest([tmp_path]).frame
    assert kernels.groupby("process")["device"].unique().map(list).to_dict() == {
        0: [GPU.name],
        1: ["NVIDIA H200"],
    }
    layers = perfml.merge(kernels)
    assert layers["process"].tolist() == [0, 0, 1, 1]
    assert layers["time_us"].eq(0.5).all()


def test_threads_of_one_process_do_not_share_iterations_or_layers(gpu, tmp_path):
    turns = threading.Barrier(2)

    def work(first, name, turns_to_launch):
        ranges = script._nvtx()
        for number in range(first, first + 3):
            with perfml.iteration(number), ranges.range(name):
                for turn in range(max(turns_to_launch) + 1):
                    turns.wait()  # the stand-in for CUPTI takes one launch at a time
                    if turn in turns_to_launch:
                        gpu.fake_kernel(0, f"_Z4{name}Pf".encode(), 0)
            for _ in range(max(turns_to_launch) + 1, 5):
                turns.wait()

    with profile(tmp_path) as run:
        # both launch while both are inside, and the right one when the left one has left
        both = ((0, "left", (1,)), (100, "rest", (2, 4)))
        threads = [threading.Thread(target=work, args=each) for each in both]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    frame = perfml.read(run.folder).sort_values("iteration")
    assert frame["iteration"].tolist() == [0, 1, 2, 100, 100, 101, 101, 102, 102]
    assert frame["layer"].tolist() == ["left"] * 3 + ["rest"] * 6


def test_too_few_iterations_give_times_and_say_how_many_are_needed(model, tmp_path):
    with profile(tmp_path, metrics=("m__0", "m__1", "m__2"), timed=2) as run:
        for number in range(3):
            model(number)
    (said,) = run.warnings
    assert "3 iterations, and 4 are needed" in said
    assert str(run.folder) in repr(run)
    assert said in repr(run)
    assert not (run.folder / "metrics.csv").exists()
    assert perfml.read(run.folder)["time_us"].notna().all()


def test_a_process_is_measured_as_often_as_it_likes(model, tmp_path):
    @profile(tmp_path)
    def work():
        model(0)

    work()
    work()
    model(0)  # nobody measures
    assert len(list(tmp_path.glob("net-*/run.json"))) == 2
    with profile(tmp_path) as run:
        model(0)
        with pytest.raises(ProfilerError, match="measured already"), profile(tmp_path):
            pass
    assert len(perfml.read(run.folder)) == 2


def test_a_block_that_fails_or_does_nothing_leaves_no_run(model, tmp_path):
    run = profile(tmp_path)

    @run
    def fails():
        model(0)
        raise KeyError

    with pytest.raises(KeyError):
        fails()
    with pytest.raises(ProfilerError, match="no run yet"):
        run.report(tmp_path / "report.html")
    with pytest.raises(ProfilerError, match="no kernel ran"), profile(tmp_path):
        pass
    assert not list(tmp_path.glob("net-*"))


def test_another_tool_on_cupti_is_named(model, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_CUPTI_BUSY", "1")
    with pytest.raises(ProfilerError, match="another tool"), profile(tmp_path):
        model(0)


def test_kernels_of_a_graph_are_in_the_layers_that_captured_them(gpu, tmp_path):
    with profile(tmp_path) as run:
        ranges = script._nvtx()
        with perfml.iteration(0):
            for node, name in ((1, "embed"), (2, "head")):
                with ranges.range(name):
                    gpu.fake_node(node, 0)
            gpu.fake_node(11, 1)  # as instantiating the graph makes them
            gpu.fake_node(12, 2)
        with ranges.range("setup"):
            gpu.fake_node(3, 0)
        for number in (1, 2):
            with perfml.iteration(number), ranges.range("Net"):
                for node in (11, 12, 3, 99):
                    gpu.fake_kernel(0, b"_Z4workPf", node)
    frame = perfml.read(run.folder)
    assert frame["layer"].tolist() == ["embed", "head", "Net/setup", "Net"] * 2
    assert frame["iteration"].tolist() == [1] * 4 + [2] * 4


def test_without_a_gpu_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoGpuError, match="nvidia-smi"), profile(tmp_path):
        pass


SERVER = """
import ctypes, sys, time
library = ctypes.CDLL(sys.argv[1])
fake = ctypes.CDLL(sys.argv[1].replace("library.so", "libcupti_stand_in.so"))
library.InitializeInjection()
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    library.perfml_push(b"decode")
    fake.fake_kernel(0, b"_Z4workPf", ctypes.c_uint64(0))
    library.perfml_pop()
    time.sleep(0.01)
print("served")
"""


def test_a_running_process_is_measured_while_it_is_asked_to(built, tmp_path, monkeypatch):
    monkeypatch.setattr(attach, "gpus", lambda: [GPU])
    monkeypatch.setenv(attach.FOLDER, str(tmp_path / "meet"))
    attach.meeting_place()
    command = [sys.executable, "-c", SERVER, str(built), "60"]
    with subprocess.Popen(command, env=os.environ, stdout=subprocess.PIPE) as server:
        try:
            while server.pid not in attach.waiting():
                assert server.poll() is None
            for share in (1, 0.2):  # again and again
                folder = attach.attach(server.pid, seconds=2, share=share, out=tmp_path / "runs")
                frame = perfml.read(folder)
                assert set(frame["layer"]) == {"decode"}
                timing = json.loads((folder / "run.json").read_text())["timing"]
                assert timing["windows"] == (1 if share == 1 else 2)
                # a busy machine closes a window late
                assert 0.95 * share <= timing["seen_share"] <= 1
                # a launch takes 10 ms and more
                assert 0 < len(frame) <= 200 * timing["seen_share"] + 2 * timing["windows"]
                told = [each for each in ingest([folder]).warnings if "of the time" in each]
                assert len(told) == (0 if timing["seen_share"] == 1 else 1)
            with pytest.raises(InputError, match="no share"):
                attach.attach(server.pid, share=0, out=tmp_path / "runs")
            with pytest.raises(ProfilerError, match="not started for attaching"):
                attach.attach(os.getpid(), seconds=0.1, out=tmp_path / "runs")
        finally:
            server.kill()


def test_a_folder_of_somebody_else_is_not_trusted(tmp_path, monkeypatch):
    monkeypatch.setenv(attach.FOLDER, str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(InputError, match="somebody else"):
        attach.meeting_place()
