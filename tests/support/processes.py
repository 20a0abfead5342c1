"""What tests ask of processes that run beside them."""

import time
from pathlib import Path


def until(condition, seconds=60):
    """Wait until a condition holds, and return what it returned."""
    end = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return answer


def alive(pid):
    """Whether a process runs: neither gone nor a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
