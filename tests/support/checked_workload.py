"""Stand-in for srun (`LAUNCHER`): the workload's runner without a GPU, stand-in profilers.

``FAKE_ERRORS`` is a JSON object: backend to the relative errors of its outputs.
"""

import contextlib
import json
import math
import os
import sys
from pathlib import Path

from tests.support.paths import ROOT

TOOLS = ROOT / "tests/data/fake_tools"
LIMIT = 1e-5
LAUNCHER = f"env PYTHONPATH={ROOT} {sys.executable} -m tests.support.checked_workload"


class Session:
    """One layer; every inference prints a line, so that the log tells the order."""

    def __init__(self, backend):
        self.backend = backend

    def layer_names(self):
        return ("n8",)

    def describe(self):
        return {"settings": {"compiler": "none"}, "layers": [{"layer": "n8"}]}

    def active(self):
        return contextlib.nullcontext()

    def run(self, ranges):
        with ranges.range("n8"):
            print("an inference", flush=True)

    def synchronize(self):
        pass

    def check(self):
        from collectors.workloads import CheckRow

        errors = json.loads(os.environ["FAKE_ERRORS"])[self.backend]
        return [CheckRow(f"n8/out_{i}", error, LIMIT) for i, error in enumerate(errors)]

    def timed_kernels(self, iterations):
        from collectors.workloads.base import TimedKernel

        return [TimedKernel(i, "n8", "k", 2.5, math.nan, "", "") for i in range(iterations)]


class Workload:
    """Stands for a built-in workload of any name."""

    def __init__(self, check_first):
        self.check_first = check_first

    def session(self, options):
        return Session(options.backend)


def profiler(command):
    """Become a stand-in profiler if that is what a command starts."""
    name = Path(command[0]).name
    if name in ("ncu", "nvprof"):
        os.environ["FAKE_WORKLOAD"] = "yolov4-tiny"
        os.execv(sys.executable, [sys.executable, str(TOOLS / name), *command[1:]])


def main(command):
    """Run a command of `perfml collect`."""
    profiler(command)
    from collectors.workloads import runner as run
    from collectors.workloads import workload

    run.workload = lambda name: Workload(workload(name).check_first)
    return run.main(command[command.index("collectors.workloads.runner") + 1 :])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
