"""First causes of an explanation, asked of recorded experiments."""

import json

import pytest

from perfml.errors import InputError
from perfml.experiments.record import read_experiments
from perfml.experiments.responses import responses
from perfml.experiments.verdicts import Finding, examine, read_findings
from tests.support.paths import ROOT

PROBE = ROOT / "studies" / "data" / "h100-experiments" / "probe.csv.xz"


def explained(layer, target_layer, log_ratio, *terms):
    causes = [{"term": term, "label": term.replace("_", " ")} for term in terms]
    return {
        "layer": layer,
        "target_layer": target_layer,
        "time": {"verdict": "slower" if log_ratio > 0 else "faster" if log_ratio else "undecided"},
        "causes": {"log_ratio": log_ratio, "confidence": "high", "terms": causes},
    }


def test_the_first_cause_is_asked_of_the_slower_side(tmp_path):
    path = tmp_path / "explain.json"
    rows = [
        explained("a", "stream", 0.7, "dram_bytes", "instructions"),
        explained("fma", "b", -0.7, "dram_bytes"),
        explained("fma", "nowhere", 0.7, "dram_bytes"),
        explained("fma", "fma", 0.0),
        explained("fma", "fma", 0.0, "fp32_pipe_time"),
    ]
    path.write_text(json.dumps({"details": rows}))
    findings = read_findings(path)
    claimed = pytest.approx(0.5034, abs=1e-4)  # 1 - exp(-0.7)
    assert findings[0] == Finding("stream", "dram_bytes", "dram bytes", "high", "", claimed)
    asked = [(each.layer, each.cause) for each in findings]
    assert asked[:2] == [("stream", "dram_bytes"), ("stream", "instructions")]
    assert [layer for layer, _ in asked[2:]] == ["fma", "nowhere"]
    at_its_limit, _, elsewhere, unknown = examine(findings, responses(read_experiments(PROBE)))
    assert at_its_limit.verdict.verdict == "plausible"
    assert elsewhere.verdict.verdict == "implausible"
    assert unknown.verdict is None
    assert "no launch of this layer was examined" in unknown.said


@pytest.mark.parametrize("text", ["", "[]", '{"layers": []}', '{"details": [{"causes": 3}]}'])
def test_another_file_is_refused(text, tmp_path):
    path = tmp_path / "explain.json"
    path.write_text(text)
    with pytest.raises(InputError, match="no answer"):
        read_findings(path)


def test_findings_of_an_answer_are_asked_in_its_order_of_the_layers_that_they_are_of(tmp_path):
    def row(cause, layers, likely, kernel=""):
        where = {"layers": layers, "kernel": kernel}
        gain = None if likely is None else {"likely": {"us": likely}, "high": {"us": 9.0}}
        return {"rules": [cause], "where": where, "holds": {"us": 10.0}, "gain": gain,
                "confidence": "low"}  # fmt: skip

    path = tmp_path / "answer.json"
    rows = [row("stall_sync", ["a", "b"], 4.0, "k"), row("launch_gaps", [], 3.0),
            row("dram_bytes", ["c"], None), row("dram_bytes", ["a"], 1.0)]  # fmt: skip
    path.write_text(json.dumps({"answer": rows}))
    asked = [(each.layer, each.cause, each.kernel, each.claimed) for each in read_findings(path)]
    expected = [("a", "stall_sync", "k", 0.4), ("b", "stall_sync", "k", 0.4)]
    assert asked == [*expected, ("a", "dram_bytes", "", 0.1)]
