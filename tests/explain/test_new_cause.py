"""A new cause is an entry of the registry and a formula: every output takes it from there."""

import json
import math

import pytest
from typer.testing import CliRunner

from perfml.cli import app
from perfml.explain.counters import refine
from perfml.explain.tree.causes import TERMS, Kind, Term
from perfml.tables import write_table
from tests.support.tables import make_kernels

pytestmark = pytest.mark.long

TERM = Term(
    "predicated_lanes",
    "threads switched off by predicates",
    Kind.WORK,
    ("warp_nonpred_execution_efficiency",),
    "Sort the work so that a condition holds for a whole warp.",
    "{target:.1%} of the active threads do the instruction, {baseline:.1%} in the baseline",
    falls=True,
)
INSTRUCTIONS = {"issue_slot_utilization": 0.8, "ipc": 3.0, "warp_execution_efficiency": 1.0}
BEFORE = {"time_us": 100.0, "inst_executed": 1e8, "warp_nonpred_execution_efficiency": 1.0}
AFTER = {"time_us": 400.0, "inst_executed": 4e8, "warp_nonpred_execution_efficiency": 0.25}


def name_predicated_lanes(decomposition, pair):
    before, after = pair.levels(TERM.evidence[0])
    if before > after > 0:
        decomposition.name(TERM.id, before, after, math.log(before / after), of="instructions")


@pytest.fixture
def sides(tmp_path, monkeypatch):
    """Return tables of two launches that differ in a cause which two entries make known."""
    monkeypatch.setitem(TERMS, TERM.id, TERM)
    formulas = (*refine.REFINEMENTS[:-2], name_predicated_lanes, *refine.REFINEMENTS[-2:])
    monkeypatch.setattr(refine, "REFINEMENTS", formulas)
    paths = []
    for name, row in (("before", BEFORE), ("after", AFTER)):
        kernels = make_kernels([{**INSTRUCTIONS, **row, "backend": name}])
        paths.append(str(tmp_path / f"{name}.parquet"))
        write_table(kernels, paths[-1], kind="kernels", provenance={})
    return paths


def said(*words):
    result = CliRunner().invoke(app, [*words, "--quiet"])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_explain_says_a_new_cause_first_with_its_levels_and_what_to_do(sides):
    text = " ".join(said("explain", *sides, "--model", "none", "--more").split())
    assert f"makes it slower: {TERM.label} ×4" in text
    assert "25.0 % of the active threads do the instruction, 100.0 % in the baseline" in text
    assert TERM.action in text


def test_json_and_the_short_answer_hold_a_new_cause_by_its_id(sides):
    document = json.loads(said("explain", *sides, "--model", "none", "--json"))
    terms = {row["term"]: row for row in document["details"][0]["causes"]["terms"]}
    assert terms[TERM.id]["log_ratio"] == pytest.approx(math.log(4))
    assert terms["instructions"]["log_ratio"] == pytest.approx(0.0, abs=1e-9)
    brief = said("explain", *sides, "--model", "none", "--brief", "--json")
    assert TERM.label in brief
    assert TERM.action in brief


def test_a_report_says_and_describes_a_new_cause(sides, tmp_path):
    said("report", *sides, "--out", str(tmp_path / "page.md"))
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert TERM.label in page
    assert TERM.action in page
