"""A command that takes a tenth more processor time than before is said to."""

import pytest

from benchmarks import waits


@pytest.mark.parametrize(("seconds", "grown"), [(2.1, 0), (2.3, 1)])
def test_a_command_that_takes_a_tenth_longer_is_counted(monkeypatch, capsys, seconds, grown):
    monkeypatch.setattr(waits, "WAITS", {"one": ("inspect one.csv", 2.0)})
    monkeypatch.setattr(waits, "processor_time", lambda *c: 1.0 if c[0] == "-c" else seconds)
    assert waits.show(["one"], turns=1) == grown
    assert f"{seconds:.1f} times import pandas" in capsys.readouterr().out
