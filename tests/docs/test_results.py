"""The page of results says what the results files and the stored measurements say."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from benchmarks import agreement, counters_page, gate_page, rows
from studies.atlas.page import results as atlas
from studies.attention.page import benchmark
from studies.seeds.page import judged, tally
from tests.support.paths import ROOT

pytestmark = pytest.mark.page

TEXT = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


def test_every_results_file_is_listed():
    files = {*ROOT.glob("studies/*/*.md"), *ROOT.glob("benchmarks/*.md")}
    pages = [TEXT, (ROOT / "docs" / "explanation" / "importances.md").read_text("utf-8")]
    for path in files:
        assert any(f"{path.relative_to(ROOT)}" in page for page in pages), path


def test_experiments_prove_what_the_page_says():
    found = json.loads((ROOT / "studies/experiments/results.json").read_text(encoding="utf-8"))
    planted = found["planted"]
    network = found["YOLOv4-Tiny, less than half of the time launch overhead"]
    assert f"in {planted['right']} of {planted['kernels']} planted kernels" in TEXT
    assert f"in {network['right']} of {network['kernels']} kernels" in TEXT
    true, other = Counter(), Counter()
    for level in found["verdicts"].values():
        true.update(level["right"])
        other.update(level["wrong"])
    assert true["implausible"] == other["plausible"] == 0
    assert f"Of {true.total()} planted causes limits alone make {true['plausible']}" in TEXT
    assert f"Of {other.total()} other causes none is plausible" in TEXT
    there = found["planted on an H200"]
    right = sum(each["right"]["plausible"] for each in found["verdicts on an H200"].values())
    assert f"On an H200 {there['right']} of {there['kernels']} limits are right" in TEXT
    assert f"and {right} of {true.total()} planted causes are plausible" in TEXT
    pairs, planted = found["repairs of pairs"], found["repairs of planted kernels"]
    assert f"for {pairs['with a measured gain']} of {pairs['cases']} pairs" in TEXT
    assert f"error of the time is {100 * pairs['median error of the time']:.1f} %" in TEXT
    proven = pairs["verdicts"]["proven"]
    assert f"causes {proven} are proven, none refuted, {pairs['cases'] - proven} have" in TEXT
    of_planted = f"{planted['verdicts']['proven']} of {planted['cases']} causes are proven"
    assert of_planted in TEXT
    assert "refuted" not in {**pairs["verdicts"], **planted["verdicts"]}
    others = [each["habits of other causes"] for each in (pairs, planted)]
    assert f"{sum(each['refuted'] for each in others)} causes that a kernel does not have" in TEXT
    assert not any("proven" in each for each in others)
    forecast = found["H200 from H100"]["all"]
    for name, words in (("median error", "{} %, a roofline has {} %"),
                        ("90 % below", "{} %, with a roofline {} %")):  # fmt: skip
        numbers = (f"{100 * forecast[name][each]:.1f}" for each in ("shares", "roofline"))
        assert words.format(*numbers) in TEXT


def test_the_picture_of_the_experiments_is_that_of_the_study():
    picture = (ROOT / "docs" / "howto" / "prove.svg").read_bytes()
    assert picture == (ROOT / "studies" / "experiments" / "responses.svg").read_bytes()


def test_attention_is_as_fast_as_the_page_says():
    times = {
        (row["rung"], row["size"]): row["ms"] for row in benchmark()["ladder"] if "rung" in row
    }
    first = "b10_n2048_d64"
    whole = times["separate", first] / times["o_registers", first]
    assert f"is {whole:.0f} times as fast as the five separate kernels" in TEXT
    at = {row["backend"]: row["ms"] for row in benchmark()["tokens"] if row["tokens"] == 25_600}
    ratio = {name: at["torch-fa2"] / ms for name, ms in at.items()}
    assert (
        f"({ratio['wmma']:.2f} times). `mma` reaches {ratio['mma']:.2f} times, `wgmma` "
        f"{ratio['wgmma']:.2f} times, cuDNN {ratio['torch-cudnn']:.2f} times"
    ) in TEXT


def test_the_atlas_is_as_large_as_the_page_says():
    contents = json.dumps(atlas()["contents"])
    assert "18413" in contents
    assert "18,413 measured layers of 50" in TEXT
    answer = (ROOT / "studies" / "atlas" / "RESULTS.md").read_text(encoding="utf-8")
    for there, here in (
        ("within 24 % in the mean", "mean error of 24 %"),
        ("counters count brings that to 11 %", "Counters bring that to 11 %"),
        ("off by 57 %", "has 57 %"),
        ("(44 % to 20 %) and least for activation", "(44 % to 20 %) and least for activation"),
    ):
        assert there in answer
        assert here in TEXT
    form = r"off by (\d+) % in the mean on layers .*?([\d.]+) % of these .*?usually ([\d.]+) times"
    off, inside, wide = re.search(form, answer).groups()
    howto = (ROOT / "docs" / "howto" / "predict.md").read_text(encoding="utf-8")
    assert f"off by {off} % in the mean on layers" in TEXT
    assert f"the mean error is {off} %" in howto
    for page in (TEXT, howto):
        assert f"{inside} % of these" in page
        assert f"usually {wide} times wide" in page


def test_passes_cost_what_the_page_says():
    table = dict(
        re.findall(
            r"^\| (\d) \| [^|]+ \| ([\d.]+) \|",
            (ROOT / "studies/plan/RESULTS.md").read_text("utf-8"),
            re.M,
        )
    )
    assert (
        f"One replay pass takes {table['1']} s per launch, three take {table['3']} s, "
        f"eight take {table['8']} s"
    ) in TEXT


def page(name):
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_counters_cost_what_the_pages_say():
    costs = json.loads(counters_page.COSTS.read_text(encoding="utf-8"))["costs"]
    mine = {each["tool"]: each for each in costs if each["network"] == "yolov4-tiny"}
    ours, again = (mine["cupti, 30 x"][name] for name in ("ms_a_launch", "again_ms_a_launch"))
    (theirs,) = [each["ms_a_launch"] for name, each in mine.items() if name.startswith("ncu")]
    said = f"took {ours:.1f} ms per launch for YOLOv4-Tiny, Nsight Compute {theirs:.0f} ms"
    assert f"{said} ({theirs / ours:.0f} times as long" in TEXT
    text = page("explanation/counters.md")
    assert f"took {ours:.1f} ms a launch for YOLOv4-Tiny with 30" in text
    assert f"and {theirs:.1f} ms under Nsight Compute" in text
    assert f"takes {again:.1f} ms a launch" in text


def test_counted_work_agrees_with_nsight_compute_as_the_page_says():
    path = ROOT / "benchmarks" / "results" / "agreement-h200.json"
    kinds = json.loads(path.read_text(encoding="utf-8"))["kinds"]
    counted = [row for name, row in kinds.items() if name.startswith(("of instr", "that count"))]
    assert len(counted) == 2
    largest = max(row[pair][1] for row in counted for pair in agreement.PAIRS if row[pair])
    assert f"differ by {largest:.1g} at the most" in page("explanation/counters.md")


def test_speed_is_what_the_table_says():
    table = rows.on_page(rows.DOCS.read_text(encoding="utf-8"))
    faster = {(row["work"].split(",")[0], row["other side"]): row["times faster"] for row in table}
    csv = "ncu CSV to layers"
    assert f"{faster[csv, 'pandas, same work']} times as fast as pandas with the same" in TEXT
    assert f"{faster[csv, 'Polars, same work']} times as fast as Polars." in TEXT
    chosen = [float(each) for (work, side), each in faster.items() if "chosen" in side]
    assert f"{min(chosen):.2f} to {max(chosen):.2f} times" in TEXT


def test_the_rows_of_the_four_documents_are_counted_as_the_page_says():
    works, partly, cannot, every = re.findall(r"\d+", tally().splitlines()[-1])
    assert f"Of {every} rows {works} work, {partly} work in part, and {cannot} cannot" in TEXT
    steps, first = judged()
    assert f"Of {steps} steps with a reason by their author" in TEXT
    assert f"names the author's cause first in {first}." in TEXT


def test_the_gate_is_as_quiet_and_as_sharp_as_the_page_says():
    counts = json.loads(gate_page.RESULTS.read_text(encoding="utf-8"))
    runs, recordings = counts["iterations of one run"], counts["two recordings"]
    whole = runs["comparisons"] + recordings["comparisons"]
    assert f"closed in none of {whole:,} comparisons" in TEXT
    assert not any("gate: worse" in each for each in (runs, recordings))
    time = "5 % threshold: worse"
    assert f"on the time closed in {runs[time] + recordings[time]}." in TEXT
    for what, found in counts.items():
        name, _, grown = what.partition(",")
        named = found.get("gate: worse, and that counter named")
        if grown and name in ("iterations of one run", "two recordings"):
            assert f"in {named:,} of {found['comparisons']:,}" in TEXT
