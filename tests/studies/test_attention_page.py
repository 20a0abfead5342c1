"""The page and the card of the attention ladder hold what was recorded; the recorder fits it."""

from __future__ import annotations

import importlib.util
import json

import pytest

from collectors.workloads import Options, parse_settings
from studies.attention.counters import rows_of, tensor_instructions
from studies.attention.page import DATA
from studies.workloads.attention.workload import plan

pytestmark = pytest.mark.page


@pytest.fixture(scope="module")
def recording():
    spec = importlib.util.spec_from_file_location("record_attention", DATA / "record.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.RECORDING


def test_an_instruction_of_mma_is_counted_once_and_does_4096_operations():
    # so the share of the tensor cores' peak, which is no counter, rests on the right cycles
    row = rows_of("b48_n25600_d64").loc["mma"]
    assert tensor_instructions(row) == pytest.approx(4 * 48 * 25_600**2 * 64 / 4096, rel=1e-3)


def test_every_run_of_the_recorder_can_be_planned(recording):
    for run in recording.runs:
        settings = parse_settings(run.settings or recording.settings)
        work = plan(Options(run.backend, run.precision, settings=settings))
        names = [name for name, *_ in work]
        assert len(names) == len(set(names)) > 2
    assert {name for name, *_ in work} == {row["layer"] for row in _recorded()["layers"]}


def _recorded():
    path = next((DATA / "runs").glob("*-coalesced-*/run.json"))
    return json.loads(path.read_text(encoding="utf-8"))
