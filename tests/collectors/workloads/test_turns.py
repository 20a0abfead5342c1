"""One process at a time has the GPU; the others prepare."""

import fcntl
import os
import subprocess
import sys

import pytest

from collectors.workloads import turns
from tests.support.paths import ROOT
from tests.support.processes import PATIENCE_S

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
        holder.communicate("\n", timeout=PATIENCE_S)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.process
def test_what_takes_long_is_imported_before_the_turn_and_may_be_missing(tmp_path):
    take = TAKE.replace("wait_for_turn()", 'wait_for_turn("fractions", "no_such_module")')
    held = tmp_path / "gpu-0"
    with held.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        script = (
            f'import sys\nprint("begun", flush=True)\n{take}\nassert "fractions" in sys.modules'
        )
        environment = {**os.environ, turns.TURN: str(held), "PYTHONPATH": str(ROOT)}
        waiting = subprocess.Popen(
            [sys.executable, "-c", script],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert waiting.stdout.readline().strip() == "begun"
    told, _ = waiting.communicate("\n", timeout=PATIENCE_S)
    assert told.strip() == "mine"
    assert waiting.returncode == 0
