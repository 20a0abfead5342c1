"""Stand-in for srun: attention's own kernels on the CPU, and the stand-in profilers.

``FAULTY`` names the backends whose kernels never rescale a row.
"""

import os
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def main(command):
    """Run a command of `perfml collect`."""
    from tests._checked_workload import profiler

    profiler(command)
    from collectors.workloads import Options, run
    from collectors.workloads._base import parse_settings
    from collectors.workloads._session import KernelSession
    from tests._attention_sources import NO_RESCALE, cpu_session

    words = command[command.index("collectors.workloads.run") + 1 :]
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
    from collectors.workloads.trace import TimedKernel

    layers = session.layer_names()
    return [
        TimedKernel(i, layer, "k", 2.5, 0.0, "", "") for i in range(iterations) for layer in layers
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
