"""What several tests of the collectors measure with."""

import pytest

from collectors.profilers import experiment_record, experiments
from tests.support import cupti_on_cpu
from tests.support.processes import PATIENCE_S


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Compiling an injected library takes ten seconds: tests that need one are slow."""
    for item in items:
        if {"counters_on_cpu", "experiments_on_cpu"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def counters_on_cpu():
    """Return the range profiler, compiled over a stand-in for CUPTI, and a program."""
    return cupti_on_cpu.compiled()


@pytest.fixture(scope="session")
def experiments_on_cpu():
    return cupti_on_cpu.compiled_experiments()


@pytest.fixture
def examine(experiments_on_cpu, tmp_path, monkeypatch):
    """Return a function that examines the program under words that say what it launches."""
    library, program = experiments_on_cpu
    monkeypatch.setattr(experiment_record, "library", lambda name: library)

    def examined(words, *, env=None, timeout_s=PATIENCE_S, **settings):
        command = [str(program), *words.split()]
        log = tmp_path / "log.txt"
        variables = {"PERFML_EXPERIMENTS_PATIENCE": "1", **(env or {})}
        found = experiments.examine(
            command, log=log, timeout_s=timeout_s, env=variables, **settings
        )
        return found, log.read_text()

    return examined
