"""The notebook about one pair runs, and its prose holds for what it computes."""

import pytest

CHECK = """
assert found.total.verdict == "slower"
assert round(conv_20.time.ratio, 1) == 2.4
assert "wave_quantization" in list(conv_20.causes.terms["term"])[:3]
assert conv_20.causes.terms["log_ratio"].iloc[0] < conv_20.time.log_ratio / 2
assert abs(conv_20.causes.terms["log_ratio"].sum() - conv_20.time.log_ratio) < 1e-9
filled = conv_20.causes.by_kernel.query("term == 'wave_quantization'").iloc[0]
assert (filled["baseline"], filled["target"]) == (0.75, 0.13)
assert conv_03.time.verdict == "faster"
assert "wrong direction" in conv_03.disagreements[0]
assert same.total.verdict == "no difference"
"""


@pytest.mark.slow
def test_why_is_it_slower_runs_and_its_prose_holds(kernel, root, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(root))
    notebook = kernel.run("05_why_is_it_slower", CHECK)
    shown = [
        output.text
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.output_type == "stream"
    ]
    assert any(text.startswith("slower: 1.6") for text in shown)
