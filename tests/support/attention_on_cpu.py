"""Stand-in for srun (`LAUNCHER`): attention's own kernels on the CPU, and the stand-in profilers.

``FAULTY`` names the backends whose kernels never rescale a row.
"""

import os
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.checked_workload import profiler
from tests.support.paths import ROOT

LAUNCHER = f"env PYTHONPATH={ROOT} {sys.executable} -m tests.support.attention_on_cpu"


def main(command):
    """Run a command of `perfml collect`."""
    profiler(command)
    from collectors.workloads import Options
    from collectors.workloads import runner as run
    from collectors.workloads.base import parse_settings
    from collectors.workloads.session import KernelSession
    from tests.support.attention_sources import NO_RESCALE, cpu_session

    words = command[command.index("collectors.workloads.runner") + 1 :]
    given = run.parser().parse_args(words)
    options = Options(given.backend, given.precision, settings=parse_settings(given.set))
    fault = NO_RESCALE if given.backend in os.environ["FAULTY"].split(",") else ()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        # what is built from now on runs on the CPU, where no kernel can be timed
        cpu_session(Path(folder), patch, options, fault)
        patch.setattr(KernelSession, "timed_kernels", timed, raising=False)
        return run.main(words)


def timed(session, iterations):
    """Return one kernel a layer and iteration."""
    from collectors.workloads.base import TimedKernel

    layers = session.layer_names()
    return [
        TimedKernel(i, layer, "k", 2.5, 0.0, "", "") for i in range(iterations) for layer in layers
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
