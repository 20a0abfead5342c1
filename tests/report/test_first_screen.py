"""The first screen of an ordinary report of Nsight Compute: time, limit, findings of both."""

import collections
import functools
import json
import math
import re

import pytest
from typer.testing import CliRunner

from perfml.cli import app
from perfml.explain import advise
from perfml.explain.speed_of_light import KernelLevels
from tests.support.others_files import STRANGERS
from tests.support.paths import PUBLIC

pytestmark = pytest.mark.long

NAN = float("nan")
LINED = PUBLIC / "nvidia_sample_manual_nvtx.ncu-rep"
DEFAULT_SET = PUBLIC / "rtx2060s_histogram_10_launches.ncu-rep"
others = pytest.mark.skipif(not PUBLIC.is_dir(), reason="may be read, not committed")


@functools.cache
def run(*words):
    """Run a verb, each command once: a test only reads what it printed or wrote."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture
def hazards(recorded):
    """Return a details page with sections and rules of Nsight Compute (its full set)."""
    return recorded / "ncu" / "rules_hazards.csv.xz"


@others
def test_a_default_report_names_kernel_share_limit_and_a_rule_that_stands_in_it(tmp_path):
    page = tmp_path / "report.html"
    first = run("report", DEFAULT_SET, "--out", page).stdout.splitlines()[0]
    # no stall reasons were collected, and what is known to save is next to nothing
    assert "Latency limits Baseline" in first
    shown = page.read_text(encoding="utf-8").replace("\xa0", " ")
    assert "100 % of the time. Limit: latency" in shown
    text = page.read_text(encoding="utf-8")
    assert "AchievedOccupancy" in text
    # that neither unit is busy is the limit's own sentence: a rule that says no more is no finding
    assert "SOLBottleneck" not in text
    assert text.count("Collect more counters") == 0


@others
def test_bars_are_what_ncu_report_gives_weighted_by_time():
    import ncu_report

    range_ = ncu_report.load_report(str(DEFAULT_SET)).range_by_idx(0)
    launches = [range_.action_by_idx(at) for at in range(range_.num_actions())]

    def mean(name):
        times = [each["gpu__time_duration.sum"].as_double() for each in launches]
        levels = [each[name].as_double() for each in launches]
        return sum(map(math.prod, zip(times, levels, strict=True))) / sum(times) / 100

    (limit,) = json.loads(run("advise", DEFAULT_SET, "--json").stdout)["kernels"]
    throughput = "throughput.avg.pct_of_peak_sustained_elapsed"
    assert limit["compute"] == pytest.approx(mean(f"sm__{throughput}"))
    assert limit["memory"] == pytest.approx(mean(f"gpu__compute_memory_{throughput}"))
    assert (limit["launches"], limit["share"]) == (10, 1.0)


@others
def test_source_lines_have_the_samples_that_ncu_report_gives_and_lead_to_their_kernel(tmp_path):
    import ncu_report

    page = tmp_path / "report.html"
    run("report", LINED, "--out", page)
    range_ = ncu_report.load_report(str(LINED)).range_by_idx(0)
    launches = (range_.action_by_idx(at) for at in range(range_.num_actions()))
    daxpy = next(each for each in launches if each.name() == "daxpy_kernel")
    samples = daxpy["smsp__pcsamp_sample_count"]
    addresses = samples.correlation_ids()
    on_line = collections.Counter()
    for at in range(samples.num_instances()):
        place = daxpy.source_info(addresses.as_uint64(at))
        on_line[place.line()] += samples.as_uint64(at)
    line, most = on_line.most_common(1)[0]
    text = page.read_text(encoding="utf-8")
    lines = text[text.index('id="lines"') :]
    assert lines.index(f"manual_nvtx.cu:{line}<") == lines.index("manual_nvtx.cu:")
    assert f"{100 * most / on_line.total():.0f} %" in lines[: lines.index("</tr>", 3000)]
    links = set(re.findall(r'href="#((?:kernel|lines)-\d+)"', text))
    assert {"kernel-0", "lines-0"} <= links <= set(re.findall(r'id="([\w-]+)"', text))


@others
@pytest.mark.parametrize(
    "path",
    [
        LINED,
        STRANGERS / "hpca" / "naive.ncu-rep",
        pytest.param(STRANGERS / "cudacode" / "naive.ncu-rep", marks=pytest.mark.slow),
        pytest.param(STRANGERS / "feather" / "2048_01_naive.ncu-rep", marks=pytest.mark.slow),
    ],
    ids=lambda path: path.name,
)
def test_reports_of_other_sets_and_versions_give_bars_and_what_their_rules_say(path):
    answer = json.loads(run("advise", path, "--json").stdout)
    shares = [each["share"] for each in answer["kernels"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
    assert all(0 <= each["compute"] <= 1 and 0 <= each["memory"] <= 1 for each in answer["kernels"])
    assert any("Nsight Compute" in each["says"] for each in answer["answer"])
    assert answer["kernels"][0]["kernel"] in run("advise", path).stdout


def test_equal_findings_of_perfml_and_nsight_compute_are_one(hazards):
    found = json.loads(run("advise", hazards, "--json").stdout)["answer"]
    (conflicts,) = (
        each
        for each in found
        if {"wavefronts_per_shared_load", "SharedMemoryConflicts"} <= set(each["rules"])
    )
    assert conflicts["says"] == ["perfml", "Nsight Compute"]
    places = [(str(each["where"]), each["hazard"], each["mitigation"]) for each in found]
    assert len(places) == len(set(places))


def test_findings_are_in_the_order_of_probability_times_likely_gain(hazards):
    found = advise(str(hazards)).findings
    expected = [one.expected_us for one in found]
    known = [us for us in expected if not math.isnan(us)]
    assert known == sorted(known, reverse=True)
    assert expected[: len(known)] == known


@pytest.mark.parametrize(
    ("compute", "memory", "limit"),
    [
        (0.9, 0.3, "compute"),
        (0.3, 0.7, "memory"),
        (0.5, 0.59, "latency"),
        (NAN, 0.9, "memory"),
        (NAN, 0.2, "not measured"),
        (NAN, NAN, "not measured"),
    ],
)
def test_the_limit_is_the_busier_of_both_or_latency_where_both_are_known_and_low(
    compute, memory, limit
):
    assert KernelLevels("gemm", 1, 10.0, 1.0, compute, memory, NAN).limit == limit


@others
@pytest.mark.parametrize("verb", ["inspect", "advise", "report", "explain", "gate"])
def test_the_published_study_is_told_of_only_where_models_learn(verb, tmp_path):
    files = [DEFAULT_SET] * (2 if verb in ("explain", "gate") else 1)
    out = ["--out", tmp_path / "r.html"] if verb == "report" else []
    done = CliRunner().invoke(app, [verb, *map(str, [*files, *out])])
    assert "published study" not in done.output


@others
def test_it_is_told_with_v_and_where_models_learn_from_its_metrics():
    assert "published study" in run("advise", DEFAULT_SET, "-v").output
    rank = ["rank", str(DEFAULT_SET)]
    assert "published study" not in CliRunner().invoke(app, rank).output
    words = [*rank, "--features", "published"]
    assert "published study" in CliRunner().invoke(app, words).output
