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
    expected = ("stream", "dram_bytes", "dram bytes", "high", "", claimed, "instructions")
    assert findings[0] == Finding(*expected)
    assert [each.layer for each in findings] == ["stream", "fma", "nowhere"]
    at_its_limit, elsewhere, unknown = examine(findings, responses(read_experiments(PROBE)))
    assert at_its_limit.verdict.verdict == "plausible"
    assert elsewhere.verdict.verdict == "implausible"
    assert unknown.verdict is None
    assert "no launch of this layer was examined" in unknown.said


@pytest.mark.parametrize("text", ["", "[]", '{"layers": []}', '{"details": [{"causes": 3}]}'])
def test_another_file_is_refused(text, tmp_path):
    path = tmp_path / "explain.json"
    path.write_text(text)
    with pytest.raises(InputError, match="no explanation"):
        read_findings(path)
