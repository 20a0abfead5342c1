"""One process at a time has the GPU; the others prepare."""

import fcntl
import os
import subprocess
import sys

import pytest

from collectors.workloads import turns
from tests.support.paths import ROOT

TAKE = """
from collectors.workloads import turns
turns.wait_for_turn()
print("mine", flush=True)
input()
"""


def test_nothing_is_waited_for_where_no_turn_is_asked_for(monkeypatch):
    monkeypatch.delenv(turns.TURN, raising=False)
    turns.wait_for_turn()


@pytest.mark.process
def test_a_turn_lasts_until_its_process_ends(tmp_path):
    path = tmp_path / "gpu-0"
    environment = {**os.environ, turns.TURN: str(path), "PYTHONPATH": str(ROOT)}
    holder = subprocess.Popen(
        [sys.executable, "-c", TAKE],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline().strip() == "mine"
    with path.open() as file:
        with pytest.raises(OSError, match="temporarily unavailable"):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        holder.communicate("\n", timeout=20)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
