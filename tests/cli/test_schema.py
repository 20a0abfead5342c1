"""What verbs print with --json is what --json-schema says of it, on recorded data."""

import json
import lzma
import shutil
from pathlib import Path
from typing import get_args

import jsonschema
import pytest

from perfml.cli import app
from perfml.cli.documents import schema_of
from perfml.cli.output import VERSION
from perfml.cli.verbs import VERBS
from tests.support.command_line import run
from tests.support.modeling_data import networks_with_law
from tests.support.paths import DATA, ROOT
from tests.support.published_data import synthetic
from tests.support.report_data import layers as small_layers

pytestmark = pytest.mark.long

NETWORK = ("h200-yolov4-tiny", "--where", "batch=1", "--where", "precision=fp32")
SMALL = "small.parquet"
FEW = (SMALL, "--where", "backend=cudnn", "--most", "1")
SIDES = ("--baseline", "cublas", "--target", "cudnn")
HAZARDS = DATA / "ncu" / "rules_hazards.csv.xz"
TRACE = DATA / "nvprof" / "trace.csv"
PEAKS = ("--peaks", "peaks.json")

CASES = [
    ("ingest", ("vectors.csv", "--out", "kernels.parquet")),
    ("merge", ("vectors.csv", "--out", "layers.parquet")),
    ("inspect", ("vectors.csv",)),
    ("inspect", ("h200-yolov4-tiny",)),
    ("metrics", ("published",)),
    ("metrics", ("published", "--request")),
    ("datasets", ()),
    ("datasets", ("h200-yolov4-tiny",)),
    ("train", (SMALL, "--model", "dt", "--splits", "2")),
    ("rank", (SMALL, "--model", "dt", "--resamples", "2", "--permutations", "20")),
    ("select", FEW),
    ("select", (*FEW, "--passes", "1")),
    ("explain", (*NETWORK, *SIDES, "--model", "dt", "--top", "1")),
    ("explain", (TRACE, TRACE)),
    ("explain", (*NETWORK, *SIDES, "--model", "none", "--brief")),
    ("advise", (*NETWORK, "--layer", "conv_15")),
    ("advise", (HAZARDS,)),
    ("advise", (TRACE,)),
    ("advise", (HAZARDS, "--brief")),
    ("roofline", (*NETWORK, "--layer", "conv_15")),
    ("roofline", (HAZARDS, *PEAKS, "--per", "kernel")),
    ("predict", ("network.parquet", "--reference", "others.parquet", "--top", "1")),
    ("gate", ("vectors.csv", "vectors.csv")),
    ("gate", ("base.parquet", "more.parquet")),
    ("gate", ("--save", "main", "vectors.csv")),
    ("report", ("vectors.csv", "--models")),
    ("plot", ("times", "vectors.csv")),
    ("plot", ("--list",)),
    ("doctor", ()),
    ("collect", ("yolov4-tiny", "--backend", "cudnn", "--dry-run", "--out", "runs")),
    ("prove", ("proven", "--cause", "dram_bytes")),
    ("sweep", ("sweep.yaml", "--out", "swept", "--dry-run")),
    ("error", ("explain", "nothing.ncu-rep")),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory, recorded):
    """Return a folder with what the cases name."""
    from perfml.datasets import read_input
    from perfml.tables import write_table

    folder = tmp_path_factory.mktemp("made")
    report = shutil.copy(recorded / "ncu" / "vectors.csv", folder)
    (folder / "proven").mkdir()
    probe = ROOT / "studies" / "data" / "h100-experiments" / "probe.csv.xz"
    (folder / "proven" / "experiments.csv").write_bytes(lzma.decompress(probe.read_bytes()))
    peaks = {"fp32": 1e12, "dram": 1e12, "l2": 1e13}
    (folder / "peaks.json").write_text(json.dumps({"peaks": peaks}))
    (folder / "sweep.yaml").write_text("matrix:\n  workload: [yolov4-tiny]\n  backend: [cudnn]\n")
    layers = read_input(report).layers
    more = layers.assign(inst_executed=2e6)
    network = networks_with_law(networks=1, layers=24, seed=5).assign(workload="mine")
    network["device"] = "NVIDIA H200"
    network.loc[3, "time_us"] *= 5
    tables = (
        *(("base", layers.assign(inst_executed=1e6)), ("more", more)),
        ("small", small_layers(layers=6)),
        *(("network", network), ("others", networks_with_law(networks=4, layers=12))),
    )
    for name, table in tables:
        write_table(table, folder / f"{name}.parquet", kind="layers", provenance={})
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """Make a copy of that folder the working one."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


@pytest.mark.parametrize(("verb", "words"), CASES)
@pytest.mark.usefixtures("folder")
def test_what_a_verb_prints_is_of_its_schema(verb, words):
    command = [] if verb == "error" else [verb]
    result = run(*command, *words, "--json", "-q")
    document = json.loads(result.stdout)
    assert document["schema"] == f"{verb}/{VERSION}", document
    jsonschema.validate(document, schema_of(words[0] if verb == "error" else verb, strict=True))
    if "--brief" in words:
        assert len(result.stdout.encode()) < 6_000


@pytest.mark.slow
def test_the_repeated_study_is_of_its_schema(folder, monkeypatch):
    monkeypatch.setattr("perfml.reproduce.files._png", lambda ax: b"")
    synthetic().to_csv(folder / "dataset.csv", index=False)
    words = ("reproduce", "--data", "dataset.csv", "--splits", "2", "--out", "made")
    result = run(*words, "--json", "-q")
    document = json.loads(result.stdout)
    jsonschema.validate(document, schema_of("reproduce", strict=True))
    assert document["data"]["rows"] == 84


def test_every_verb_has_a_schema_and_a_case():
    verbs = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert verbs == set(VERBS)
    assert {verb for verb, _ in CASES} | {"attach", "reproduce"} == {*VERBS, "error"} - {"mcp"}


@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"mcp"}))
def test_a_schema_is_one(verb):
    jsonschema.Draft202012Validator.check_schema(schema_of(verb))


@pytest.mark.parametrize("verb", ["datasets", "explain", "gate", "collect"])
def test_a_verb_prints_it_without_its_arguments(verb):
    result = run(verb, "--json-schema")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == schema_of(verb)


def test_a_key_that_goes_or_changes_its_type_is_found():
    schema = schema_of("gate", strict=True)
    document = {"schema": "gate/1", "saved": "x"}
    jsonschema.validate(document, schema)
    for wrong in ({**document, "saved": 1}, {**document, "more": 1}, {"saved": "x"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_words_that_code_chooses_from_are_those_of_the_schema():
    from perfml.explain.tree.layer_causes import Reason
    from perfml.gate.verdict import Verdict

    explain, gate = (schema_of(verb)["$defs"] for verb in ("explain", "gate"))
    reasons = explain["Untold"]["properties"]["reason"]["enum"]
    assert reasons == list(get_args(Reason))
    verdicts = gate["LayerVerdict"]["properties"]["verdict"]["enum"]
    assert set(verdicts) == {verdict.value for verdict in Verdict}


def test_every_reason_and_a_number_that_is_not_known_are_of_the_schema():
    from perfml.explain.tree.causes import TERMS
    from perfml.explain.tree.layer_causes import Reason, Untold

    schema = schema_of("explain", strict=True)
    untold = {"$ref": "#/$defs/Untold", "$defs": schema["$defs"]}
    terms = tuple(TERMS.values())
    numbers = dict.fromkeys(("apart", "share", "second", "nearness", "inside"), 0.5)
    for reason in get_args(Reason):
        kept = {**numbers, "names": ["a"]}
        one = Untold(terms[:2], terms[2], ("ipc",), (), "default", 0.5, reason, kept, "look")
        document = one.to_dict()
        assert document["causes"] == [term.id for term in terms[:2]]
        jsonschema.validate(document, untold)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "reason": "mood"}, untold)
    unknown = Untold(terms[:1], terms[1], (), (), "default", float("nan")).to_dict()
    assert unknown["share"] is None
    jsonschema.validate(unknown, untold)


def test_what_a_dataclass_says_of_its_fields_is_in_the_schema():
    line = schema_of("explain")["$defs"]["Line"]["properties"]
    assert line["offset"]["description"] == "bytes from the start of the kernel's code"
    assert line["file"]["anyOf"] == [{"type": "string"}, {"type": "null"}]


def test_rows_of_a_frame_have_their_columns_and_a_key_may_be_called_otherwise_or_lack():
    explain = schema_of("explain", strict=True)["$defs"]
    rows = explain["Explain"]["properties"]["layers"]
    assert (rows["type"], rows["items"]) == ("array", {"$ref": "#/$defs/AlignedLayer"})
    assert explain["AlignedLayer"]["properties"]["low"] == {"type": ["number", "null"]}
    assert explain["Change"]["properties"]["cause"]["type"] == "string"
