"""perfml gets no slower than a few times a yardstick that runs beside it."""

import pytest

from benchmarks import gate

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_every_limit_holds(monkeypatch, tmp_path):
    monkeypatch.setattr(gate, "TURNS", 3)
    found = {each.name: (each.ratio(), each.limit) for each in gate.gates(tmp_path)}
    assert len(found) == 4
    slow = {name: pair for name, pair in found.items() if pair[0] > pair[1]}
    assert not slow


@pytest.mark.slow
def test_work_that_became_ten_times_slower_is_found(monkeypatch):
    monkeypatch.setattr(gate, "TURNS", 3)

    def spin(rounds):
        return lambda: sum(range(rounds * 400_000))

    slow = gate.Gate("x", spin(20), spin(2), 3.0)
    assert slow.ratio() > slow.limit
    same = gate.Gate("x", spin(2), spin(2), 3.0)
    assert same.ratio() < same.limit
