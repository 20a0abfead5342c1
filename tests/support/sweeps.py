"""What tests ask of a sweep's folder."""

import os
from dataclasses import asdict

from collectors.sweep.manifest import FILE, Manifest
from tests.support.paths import ROOT, TOOLS

FORKED = "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD"


def read_states(out):
    """Return what the manifest of a folder knows of each run, by id."""
    assert (out / FILE).is_file()
    return {run_id: asdict(state) for run_id, state in Manifest(out).states.items()}


def two_gpus(monkeypatch, folder, short_folder, *first):
    """Let this be a host with two GPUs, whose tools are stand-ins; `first` come before them.

    In the folder, ``notes`` says who profiled what, where and when; what waits does so while
    ``control/hold`` is there, and what may fail fails while ``control/failing`` is.
    """
    # not in the working directory: a file that a command names is part of the run's id
    (folder / "control").mkdir()
    path = [*first, TOOLS / "two_gpus", TOOLS, os.environ["PATH"]]
    for name, value in {
        "PATH": os.pathsep.join(map(str, path)),
        "TMPDIR": str(short_folder),  # GPUs' locks: two tests at once would wait for each other
        "FAKE_NOTES": str(folder / "notes"),
        "FAKE_HOLD": str(folder / "control/hold"),
        "FAKE_FAIL": str(folder / "control/failing"),
        "PYTHONPATH": str(ROOT),
        # workers forked from a process that has their libraries instead of started
        FORKED: "forkserver",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("FAKE_NCU", "FAKE_GPU", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
