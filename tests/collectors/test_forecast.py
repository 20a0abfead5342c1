"""How long counting takes is said after the first pass, with what makes it shorter."""

from pathlib import Path

import pytest

from collectors.profilers import cupti, forecast
from collectors.profilers.counter_record import CounterRecord
from collectors.profilers.forecast import Forecast, of_replay
from collectors.profilers.process import Finished, ProfilerError, run
from tests.support.processes import PATIENCE_S

BEFORE = "# perfml-counters 1\nM\t0\tm__1\n# timed 3\n# groups 2\n# apart 1\n# group 0 passes 8\n"
EXPECTED = "# reserved 3495 ranges 13499660 bytes\n# expects {}\n"
PASS = "# pass {} 0 0.212684 {} 0.04\n"


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    monkeypatch.setattr(forecast, "_LOOK_S", 0.0)
    said = []
    return tmp_path / "7.tsv", Forecast(tmp_path, 3, said.append), said


def test_it_is_said_once_after_the_first_pass(waiting):
    record, look, said = waiting
    look()
    record.write_text(BEFORE + EXPECTED.format(8000))
    look()
    with record.open("a") as more:
        more.write(PASS.format(8000, 7.16)[:-9])  # half a line
    look()
    assert said == []
    record.write_text(BEFORE + EXPECTED.format(8000) + PASS.format(8000, 7.16))
    look()
    look()
    # 8,000 launches x (3 x (8 x 0.9 + 0.74) + 3.9) ms
    (text,) = said
    assert text.startswith(
        "8,000 launches an iteration, 8 passes of the hardware's counters, 3 times, "
        "0.9 ms a launch and pass: counting takes about 3 min 42 s."
    )
    assert "--metric-iterations 1 (1 min 35 s), --metrics published" in text


def test_an_iteration_that_does_not_fit_into_memory_is_measured_in_parts(waiting):
    record, look, said = waiting
    record.write_text(BEFORE + EXPECTED.format(8000) + PASS.format(3495, 3.1))
    look()
    assert "8,000 launches" in said[0]
    assert "in 3 parts, an iteration each" in said[0]


def test_what_is_done_soon_is_not_spoken_of(waiting):
    record, look, said = waiting
    record.write_text(BEFORE + EXPECTED.format(86) + PASS.format(86, 0.08))
    look()
    assert said == []


def test_a_damaged_record_is_left_to_its_reader(waiting):
    record, look, said = waiting
    record.write_text("# expects many\n")
    look()
    assert said == []


def test_launches_that_are_repeated_on_the_spot_are_told_before():
    assert of_replay(100) == ""
    assert of_replay(16_000).startswith("16,000 launches are repeated on the spot")
    assert "about 32 min 0 s" in of_replay(16_000)


def test_a_program_that_took_too_long_is_told_how_long_it_would_have_taken(tmp_path, monkeypatch):
    def killed(injected, command, *, env, meanwhile, **_):
        record = Path(env["PERFML_COUNTERS_DIR"], "7.tsv")
        record.write_text(BEFORE + EXPECTED.format(8000) + PASS.format(8000, 7.16))
        meanwhile()
        return Finished(tuple(command), -9, "", 75.0, timed_out=True)

    monkeypatch.setattr(cupti, "run_injected", killed)
    monkeypatch.setattr(cupti, "library", lambda name: tmp_path)
    said = []
    options, log = cupti.CuptiOptions(("m__1",), sets=3), tmp_path / "log.txt"
    with pytest.raises(ProfilerError, match="within 75 s") as error:
        cupti.profile(
            options, ["./train"], folder=tmp_path, log=log, timeout_s=75, tell=said.append
        )
    assert said == [error.value.found]
    assert "counting takes about 3 min 42 s" in said[0]


def test_somebody_is_asked_before_launches_are_repeated_for_over_five_minutes(tmp_path):
    asked = []

    def agrees(said):
        asked.append(said)
        return False

    def replay(launches):
        record = CounterRecord(all_launches=launches, launches=launches)
        subject = cupti._Program(
            cupti.CuptiOptions(("m__1",)), ("./train",), tmp_path, 1.0, {}, agrees=agrees
        )
        subject.start = lambda request: record
        return cupti._by_kernel_replay(record, subject, "no iterations")

    assert replay(2000).replay == "kernel"
    assert not asked
    with pytest.raises(ProfilerError, match="five minutes") as error:
        replay(27_118)
    assert "--yes" in error.value.cure
    assert "about 54 min 14 s" in asked[0]


@pytest.mark.process
def test_a_program_is_looked_after_while_it_runs(tmp_path):
    looks = []
    log = tmp_path / "log"
    run(["sleep", "0.2"], log=log, timeout_s=PATIENCE_S, meanwhile=lambda: looks.append(1))
    assert looks
