"""Short answers: below their size whatever is asked, with the cause and what to do."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from perfml.explain.advice.finding import Finding, Gain, Where
from perfml.explain.advice.hazards import Advice
from perfml.explain.advice.symptoms import ceiling_of, unit_of
from perfml.explain.brief import LARGEST, brief_advice, brief_explanation
from perfml.explain.compare import explain
from perfml.explain.compared import make_side
from perfml.util.findings import Time
from tests.support.tables import make_kernels


def side(name, layers, scale):
    rows = [
        {"layer": f"{'long name ' * 9}{place}", "kernel": f"gemm_{place}", "time_us": scale + place}
        | {"inst_executed": 1000.0 * (scale + place), "theoretical_occupancy": 0.5}
        for place in range(layers)
    ]
    return make_side(name, make_kernels(rows))


@pytest.mark.parametrize("layers", [1, 3, 40])
def test_an_explanation_fits_and_says_how_much_did_not(layers):
    sides = side("before " * 50, layers, 2), side("after " * 50, layers, 5)
    brief = brief_explanation(explain(*sides, model=None, top=40), ("a" * 4000, "b" * 4000))
    assert len(json.dumps(brief.to_dict(), indent=2).encode()) <= LARGEST
    assert brief.layers
    assert brief.layers[0]["causes"][0]["do"]
    assert brief.missing
    assert brief.left_out > 0


def test_lines_are_what_the_document_holds():
    brief = brief_explanation(explain(side("a", 1, 2), side("b", 1, 5), model=None), ("a", "b"))
    text = "\n".join(brief.lines)
    assert brief.verdict in text
    assert all(each["do"] in text for layer in brief.layers for each in layer["causes"])


def test_advice_fits_whatever_stands_in_the_names_of_kernels():
    one = Finding(
        rules=("small_grid",),
        where=Where(("\x1b[2J" + "x" * 900,), "k"),
        holds=Time(2.0),
        gain=Gain(Time(0.8), Time(1.0), "counters"),
        probability=0.3,
        hazard="too few blocks",
        evidence="é" * 900,
        mitigation="split " * 200,
    )
    none = pd.DataFrame(columns=["backend", "precision", "batch", "rule", "missing", "why"])
    found = tuple(replace(one, rules=(f"rule {place}",)) for place in range(30))
    brief = brief_advice(Advice(found, none, layers=30), ("a.ncu-rep",))
    text = json.dumps(brief.to_dict(), indent=2)
    assert len(text.encode()) <= LARGEST
    assert "\\u001b" not in text
    assert brief.left_out > 0


def test_where_the_target_is_faster_what_to_do_is_for_the_baseline():
    brief = brief_explanation(explain(side("a", 1, 5), side("b", 1, 2), model=None), ("a", "b"))
    assert all(each["do"].startswith("in a: ") for each in brief.layers[0]["causes"])


def test_causes_of_two_sides_have_both_numbers_with_units_and_ceilings_as_findings_do():
    def row(name, time, dram, moved):
        counters = {"dram_utilization": dram, "dram_read_bytes": moved, "dram_write_bytes": 1e6}
        requests = {"gld_transactions": moved / 32, "gst_transactions": 3e4}
        asked = {"global_load_requests": moved / 128, "global_store_requests": 3e4}
        kernel = {"layer": "copy", "kernel": "copy", "time_us": time, "sm_efficiency": 1.0}
        return make_side(name, make_kernels([{**kernel, **counters, **requests, **asked}]))

    fast, slow = row("a", 50.0, 0.9, 4e7), row("b", 100.0, 0.9, 9e7)
    for sides, at in (((fast, slow), 0), ((slow, fast), 1)):
        detail = explain(*sides, model=None).details[0]
        first = detail.causes.totals[0].term.id
        held = {one.quantity: one for one in detail.numbers[first]}
        brief = brief_explanation(explain(*sides, model=None), ("a", "b")).layers[0]["causes"][0]
        assert set(brief["numbers"]) <= set(held.values()), at
        assert detail.to_dict()["numbers"][first][0]["quantity"] in held
        for name, one in held.items():
            assert (one.unit, one.ceiling) == (
                unit_of(name),
                pytest.approx(ceiling_of(name), nan_ok=True),
            )
        assert (held["dram_bytes"].slow, held["dram_bytes"].fast) == (9.1e7, 4.1e7)
        assert held["dram_utilization"].slow == 0.9
    assert (ceiling_of("dram_utilization"), unit_of("dram_bytes")) == (0.97, "bytes")
