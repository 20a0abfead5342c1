"""Every surface says the same first finding with the same numbers, and no law is broken."""

import math
import warnings
from pathlib import Path

import pytest

from perfml.datasets.opening import read_input
from perfml.errors import PerfmlError
from perfml.explain import advise
from perfml.explain.brief import brief_advice
from perfml.report.conditions import conditions
from perfml.report.document import ReportTable
from perfml.report.pairs import advise_conditions
from perfml.report.results import Results
from perfml.report.sections.advice import finding_steps
from perfml.report.sections.first import first_steps
from perfml.report.verbs import advice_document
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
    first = advice.findings[0]
    (step, *_) = finding_steps(advice.findings[:1], ())
    assert on_the_page(given, advice) in (None, step.title)
    brief = brief_advice(advice, (path.name,)).layers[0]
    assert brief.causes[0].cause.startswith(first.hazard[:300])
    table = next(
        block
        for part in advice_document(advice, 3).sections
        for block in part.blocks
        if isinstance(block, ReportTable) and block.columns[1].name.startswith("likely")
    )
    assert table.rows[0][1].value == (
        None if first.gain is None else pytest.approx(first.likely_us)
    )


def on_the_page(given, advice):
    """Return the title of the page's first step; None where backends are compared first."""
    layers = given.reported_layers
    shown = tuple(conditions(layers))
    if len(shown) != 1 or len(shown[0].backends) != 1 or given.ranks is not None:
        return None
    said = advise_conditions(shown, given.in_layers.kernels, given.sources, given.account)
    results = Results(conditions=shown, series={}, advice=said)
    return first_steps(results)[0].title


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
