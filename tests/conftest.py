"""What every test may use: where the recorded data lies, and small tables to work on."""

from __future__ import annotations

import functools
import gc
import lzma
import os
import signal
import sys
import tempfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

# The tests run beside each other, one process a core: threads of torch and of BLAS would wait for
# each other, and spin meanwhile, at up to five times the processor time. Read when numpy is loaded.
# Nor does a test that did not ask for processes get any: each would load all libraries again.
os.environ.setdefault("LOKY_MAX_CPU_COUNT", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
import typer.main
import typer.testing

from tests.support.compiling import shared_folder
from tests.support.examples import load_profile
from tests.support.paths import ROOT
from tests.support.processes import PATIENCE_S
from tests.support.tables import make_kernels

# A shell that starts something in the background without job control lets it ignore Ctrl-C, and so
# do all its children: the programs under test have the signals that a user's have.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# pytest-xdist tells its workers the width of a terminal; a pipe, which most tests read, has none
os.environ.pop("COLUMNS", None)

# As an active environment does: a stand-in that asks for python3 gets this one, at a quarter of the
# processor time of the shim that chooses among the machine's versions.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

# Hundreds of thousands of objects live as long as the tests do (modules, recorded tables); looking
# for cycles among them at every 700 new ones takes up to a tenth of the time.
gc.set_threshold(200_000, 20, 20)

# Typer builds all verbs anew for every command that is given, which takes 60 ms.
typer.main.get_command = functools.cache(typer.main.get_command)
typer.testing._get_command = typer.main.get_command

# its classes are torch's
collect_ignore = [] if find_spec("torch") else ["collectors/workloads/test_backward_ranges.py"]
pytest_plugins = ["tests.support.notebooks", "tests.support.processor_time"]
load_profile()


def pytest_configure():
    """Make the folder that processes of pytest-xdist share, before they start."""
    shared_folder()


def pytest_sessionfinish():
    """Look for cycles in nothing that lives: that takes seconds, and the system takes it back."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """Say last how many tests were skipped, and why: one line a reason."""
    skipped = terminalreporter.stats.get("skipped", ())
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")


WAITING = {"test_sweep_speedup.py", "test_sweep.py", "test_faults.py", "test_parallel.py"}
"""Modules that wait for processes more than they compute."""


def pytest_collection_modifyitems(items):
    """Begin with what waits: in .ci/run there is other work for its core only in the beginning."""
    items.sort(key=lambda item: item.path.name not in WAITING)


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def recorded() -> Path:
    """Return the folder of real profiler files that the tests may read."""
    return ROOT / "tests" / "data"


@pytest.fixture(scope="session")
def sweep() -> Path:
    """Return the folder of the recorded H200 sweep."""
    return ROOT / "studies/data/h200-sweep"


@pytest.fixture
def short_folder():
    """Make a folder with a short name: a socket's, as of a process that forks, has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="perfml", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def tools(monkeypatch):
    """Put the stand-ins for profilers and the driver's tools first, and return `monkeypatch`.

    Variables ``FAKE_*`` tell them what to do; none is set.
    """
    monkeypatch.setenv("PATH", f"{ROOT / 'tests/data/fake_tools'}{os.pathsep}{os.environ['PATH']}")
    for name in [name for name in os.environ if name.startswith("FAKE_")]:
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture
def kernels_of():
    """Return `make_kernels`."""
    return make_kernels


@pytest.fixture
def reading(tmp_path):
    """Return a function that reads the content of an export, with the options of the readers."""
    from perfml.readers import ReadOptions, read

    def run(content, **options):
        path = tmp_path / "export.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read(path, ReadOptions(**options))

    return run


@pytest.fixture
def failing(reading):
    """Return a function that reads what cannot be read, and returns the error."""
    from perfml.errors import InputError

    def run(content, **options):
        with pytest.raises(InputError) as caught:
            reading(content, **options)
        assert 1 <= len(str(caught.value).splitlines()) <= 2
        return caught.value

    return run


@pytest.fixture(scope="session")
def cudnn(recorded):
    """Return the bytes of a recorded export of 72 launches."""
    return lzma.open(recorded / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz").read()


@pytest.fixture(scope="session", autouse=True)
def doctor_asks_once():
    """Let doctor ask a program once: torch alone takes seconds to say which version it is."""
    from collectors import doctor

    ask = doctor._ask

    @functools.cache
    def answer(command, path, timeout_s):
        return ask(list(command), timeout_s)

    def remembered(command, timeout_s=PATIENCE_S):
        return answer(tuple(command), os.environ["PATH"], timeout_s)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(doctor, "_ask", remembered)
        yield
