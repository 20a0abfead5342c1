"""Every surface says the same first finding with the same numbers, and no law is broken."""

import math
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from perfml.datasets.opening import read_input
from perfml.errors import PerfmlError
from perfml.explain import advise, explain, load_tables, sides_of
from perfml.explain.advice.finding import Finding, Gain, Where, saving
from perfml.explain.advice.findings import launch_findings
from perfml.explain.advice.first_fix import first_fix
from perfml.explain.advice.table import layers_of, representative_launches
from perfml.explain.brief import brief_advice, brief_explanation
from perfml.explain.results import points_of
from perfml.explain.speed_of_light import KernelLevels
from perfml.explain.times import Ratio
from perfml.explain.tree.ideal import ideal_launch
from perfml.explain.tree.layer import Match, decompose_layer
from perfml.report.conditions import conditions
from perfml.report.document import Points, ReportTable
from perfml.report.pairs import advise_conditions
from perfml.report.results import Pair, Results
from perfml.report.sections.advice import advice_section, finding_steps
from perfml.report.sections.explanation import explanation_summary, why_section
from perfml.report.sections.first import first_steps
from perfml.report.verbs import advice_document
from perfml.util.findings import Time
from perfml.util.words import capital
from tests.support.paths import PUBLIC, ROOT
from tests.support.sampled import sampled

CASES = PUBLIC.parents[1] / "cases" / "recordings_2026_11_28"
KINDS = (".csv", ".csv.xz", ".ncu-rep", ".sqlite", ".sqlite.xz", ".json", ".json.gz", ".txt", ".pb")
FOLDERS = (
    *(ROOT / "tests" / "data" / name for name in ("ncu", "nvprof", "servers", "torch_trace")),
    *(CASES, PUBLIC, PUBLIC.parent / "strangers"),
)
SERVERS = ("vllm", "torchao", "flashinfer", "sglang")
TENSOR_TYPES = ("tf32", "bfloat16", "fp8")
LARGEST = 400_000  # bytes of a file: what is larger takes seconds, and has been read by others


def recordings():
    found = [path for folder in FOLDERS if folder.is_dir() for path in sorted(folder.rglob("*"))]
    return [
        path
        for path in found
        if path.is_file() and path.name.endswith(KINDS) and path.stat().st_size < LARGEST
    ]


REFUSED = frozenset(
    {
        "darknet19_v100_metrics_all.txt",
        "dd2360_ncu_failed.txt",
        "gaps.json",
        "gtx1080_flash_attention_events.txt",
        "gtx1080_flash_attention_overflow.txt",
        "labels.json",
        "launches_without_kernels.json",
        "metrics.csv",
        "metrics_two_devices.txt",
        "mobilenet.qat.onnx.engine.graph.json",
        "mobilenet.qat.onnx.engine.profile.metadata.json",
        "no_kernels.txt",
        "no_kernels_says_why.sqlite",
        "run.json",
        "tensorflow_gpu.xplane.pb",
        "thor_print_summary_per_kernel_excerpt.csv",
        "titanxp_bfs_no_kernels_profiled.txt",
        "trace_metrics.csv",
        "zero_timestamps.json",
    }
)
"""Files that may be refused: counters or facts without times, and damaged ones."""


def answered(path):
    """Return what is read, and its advice; None where the file is refused by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            given = read_input(str(path))
            read = given.in_layers
            found = advise(
                read.layers, kernels=read.kernels, account=given.account, sources=given.sources
            )
        except PerfmlError:
            return None
        return given, found


@pytest.mark.long
@pytest.mark.parametrize("path", sampled(recordings(), 40), ids=lambda path: path.name)
def test_every_surface_says_the_same_first_finding_and_no_law_is_broken(path):
    both = answered(path)
    if both is None:
        assert path.name in REFUSED
        return
    given, advice = both
    for one in advice.findings:
        obeys_the_laws(one, given)
    if not advice.findings:
        return
    steps = finding_steps(advice.worth[:4], ())
    shown = on_the_page(given, advice)
    assert shown in (None, [(step.title, step.gain, step.sure) for step in steps])
    brief = brief_advice(advice, (path.name,)).layers
    rows = table_of(advice_document(advice, 3)).rows
    page = advice_section({"": advice})
    listed = [] if page is None else table_of(page).rows
    assert len(rows) == len(advice.findings)
    said = [one["likely_us"] for one in advice_in_json(advice)]
    for at, one in enumerate(advice.findings):
        likely = None if one.gain is None else pytest.approx(one.likely_us)
        assert (rows[at][1].value, said[at]) == (likely, likely)
        if at < len(listed):
            assert listed[at][1].value == likely
        if at < len(brief):
            assert brief[at]["causes"][0]["cause"].startswith(one.hazard[:300])
            assert brief[at]["verdict"] == saving(one)


def advice_in_json(advice):
    """Return what a program reads of the findings, in their order."""
    for one in advice.to_dict()["answer"]:
        yield {"likely_us": None if one["gain"] is None else one["gain"]["likely"]["us"]}


def table_of(document):
    """Return the table of findings of a document or a section, however deep it stands."""
    return next(
        block
        for block in blocks_of(document)
        if isinstance(block, ReportTable) and block.columns[1].name.startswith("likely")
    )


def blocks_of(part):
    """Return all blocks of a document, a section or panels, in their order."""
    for block in (*getattr(part, "sections", ()), *getattr(part, "blocks", ())):
        yield block
        yield from blocks_of(block)


TWO_SIDED = [
    *((name, "before", "after") for name in (f"h200-torch-pairs{n}" for n in ("", "2", "3"))),
    *((f"h200-strangers{n}", "before", "after") for n in ("", "2", "3", "4", "5")),
    *((name, "before", "after") for name in ("h100-strangers6", "h100-torch-pairs4")),
    *(("h200-planted-causes", "base", f"level_{n}") for n in (1, 2, 3)),
    *(("h100-planted-causes", "base", f"level_{n}") for n in (1, 2, 3)),
    *(
        ("h200-yolov4-tiny", one, other)
        for one, other in (("cublas", "cudnn"), ("inductor", "cudnn"))
    ),
    ("h200-alike", "base", "cause"),
]
"""Recordings of two sides, and what these are called."""


@pytest.mark.long
@pytest.mark.parametrize("recording", sampled(TWO_SIDED, 3), ids="-".join)
def test_every_surface_says_the_same_cause_and_saving_of_two_sides(recording):
    name, baseline, target = recording
    where = ["precision=fp32", "batch=1"] if name == "h200-yolov4-tiny" else []
    layers, kernels = load_tables(name, where)
    layers = layers[layers["backend"].isin([baseline, target])]
    explanation = explain(*sides_of(layers, baseline, target, kernels=kernels), top=200)
    page = why_section([Pair("", explanation, layers)], "Why", "", several=False)
    screen = explanation_summary(explanation)
    program = {each["layer"]: each for each in explanation.to_dict()["details"]}
    short = {each["layer"]: each for each in brief_explanation(explanation, (name,)).layers}
    pages, screens = (
        [each for each in blocks_of(part) if isinstance(each, Points)] for part in (page, screen)
    )
    for detail in explanation.details:
        if detail.time.slower is None or not points_of(detail).get("do"):
            continue
        lines = detail.reasons
        assert tuple(map(capital, lines)) in [each.items for each in pages], detail.layer
        assert any(each.items == lines[: len(each.items)] for each in screens if each.items), (
            detail.layer
        )
        assert program[detail.layer]["reasons"] == list(lines)
        if detail.layer in short and short[detail.layer]["causes"]:
            do = short[detail.layer]["causes"][0]["do"]
            assert points_of(detail)["do"][:100] in do
            assert points_of(detail).get("saves", "")[:60] in do
        if detail.fix is not None:
            obeys(detail.fix)
    alone = replace(explanation, details=explanation.details[:1])
    steps = first_steps(
        Results(conditions=tuple(conditions(layers)), series={}, pairs=(Pair("", alone, layers),))
    )
    first = alone.details[0]
    for step in steps:
        if step.title == f"If you stay with {target}, change {first.layer}" and first.fix:
            assert (step.gain, step.sure) == (first.fix.saving(), first.causes.confidence)


ONE_LAUNCH = [name for name, *_ in TWO_SIDED if "strangers" in name or "planted" in name]


@pytest.mark.long
@pytest.mark.parametrize("name", sampled(list(dict.fromkeys(ONE_LAUNCH)), 2))
def test_a_cause_saves_the_same_beside_the_ideal_as_alone(name):
    _, kernels = load_tables(name)
    compared = 0
    for layer in layers_of(representative_launches(kernels), None):
        if len(layer.launches) > 1:
            continue
        (slow,) = layer.launches
        ideal = ideal_launch(slow)
        ratio = math.log(slow.time_us / ideal.time_us)
        times = Ratio(ideal.time_us, slow.time_us, ratio, None, None, (1, 1), "slower")
        causes = decompose_layer(
            [Match(slow.label, ideal, slow)], same_device=True, single=slow.single
        )
        fix = first_fix(times, causes, ("ideal", "slow"), ((ideal,), (slow,)))
        if fix is None or math.isnan(fix.likely_us):
            continue
        for one in launch_findings(layer):
            if one.rules == (fix.term.id,) and one.lost >= LISTED:
                compared += 1
                assert one.part == pytest.approx(fix.likely_us / fix.now.us), slow.label
    assert compared >= 10


LISTED = 0.01
"""Of a layer: a cause that takes less beside all others is no finding of its own."""


def obeys(fix):
    """Check what removing a cause saves: no more than there is, and as its ends say."""
    if fix.gain is not None:
        assert 0 <= fix.likely_us <= fix.most_us <= fix.now.us


def on_the_page(given, advice):
    """Return the page's steps; None where backends are compared first."""
    layers = given.reported_layers
    shown = tuple(conditions(layers))
    if len(shown) != 1 or len(shown[0].backends) != 1 or given.ranks is not None:
        return None
    said = advise_conditions(shown, given.in_layers.kernels, given.sources, given.account)
    results = Results(conditions=shown, series={}, advice=said)
    return [(step.title, step.gain, step.sure) for step in first_steps(results)]


def obeys_the_laws(one, given):
    if one.gain is not None:
        assert 0 <= one.likely_us <= one.saved_us * (1 + 1e-9)
        assert one.saved_us <= one.holds.us * (1 + 1e-9), one
        assert not math.isnan(one.probability)
    said = f"{one.mitigation} {one.command}".lower()
    assert not any(word in said for word in SERVERS), said
    if "channels_last" in said and given.in_layers.kernels is not None:
        assert one.rules[0] == "layout" or convolves(given.in_layers.kernels), said
    if one.rules == ("no_tensor_cores",) and capability(given) < 8:
        assert not any(name in said for name in TENSOR_TYPES), said


def convolves(kernels):
    names = kernels["kernel"].dropna().astype(str).str.lower()
    return bool(names.str.contains("conv|im2col|nchw|nhwc|wgrad|dgrad|fprop|cudnn|winograd").any())


def capability(given):
    column = given.in_layers.kernels
    known = [] if column is None else column["compute_capability"].dropna().astype(str)
    return max((float(each) for each in known if each.replace(".", "").isdigit()), default=9.0)


def test_recordings_are_found():
    assert isinstance(ROOT, Path)
    assert len(recordings()) > 20


def test_of_a_group_of_kernels_the_numbers_of_a_step_are_of_all_and_told_once():
    gain = Gain(Time(20.0, "step"), Time(20.0, "step"), "counters")
    one = Finding(
        rules=("grid",),
        where=Where(("a", "b")),
        holds=Time(50.0, "step"),
        gain=gain,
        probability=0.5,
        hazard="few blocks",
        evidence="",
        mitigation="Launch more.",
    )
    levels = [
        KernelLevels(name, 1, us, us / 100, 0.1, 0.2, 0.1)
        for name, us in (("a", 30.0), ("other", 50.0), ("b", 20.0))
    ]
    single = replace(one, where=Where(("a",)), holds=Time(30.0, "step"))
    alone, group = (f"{step.gain} {step.text}" for step in finding_steps([single, one], levels))
    assert ("of 30.0 µs" in alone, "30 %" in alone) == (True, True)
    # the other kernel of the group takes 20 of the 50 microseconds that the saving is of
    assert ("of 50.0 µs" in group, "20.0 µs, 20 %" in group) == (True, False)
    together = finding_steps([one], levels)[0]
    assert "50 %" in together.text
