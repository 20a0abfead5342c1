"""Counters take the times of a trace that has the same name: by layer, else by kernel."""

from __future__ import annotations

import json

import numpy as np
import pytest

from perfml.errors import InputError
from perfml.ingest.profiles import ingest
from perfml.readers import read
from tests.support.nsys_export import Export
from tests.support.paths import DATA
from tests.support.torch_trace import Trace

COUNTERS = DATA / "ncu" / "vectors.csv"
"""Seven launches: one outside, then twice update/scale, update and reduce."""


@pytest.fixture
def counters(tmp_path):
    path = tmp_path / "vectors.csv"
    path.write_bytes(COUNTERS.read_bytes())
    return path


def test_a_trace_with_the_same_layers_gives_its_times_by_layer_and_place(counters, tmp_path):
    export = Export(tmp_path / "vectors.sqlite")
    export.launch("scale(float *, float, int)", 10, 1000, 1500)
    for step in (0, 1):
        base = 10_000 * (step + 1)
        export.range(f"step_{step}", base, base + 5000)
        export.range("update", base + 100, base + 400)
        export.range("scale", base + 110, base + 200)
        export.launch("scale(float *, float, int)", base + 120, base + 5000, base + 8000)
        export.launch("add(float *, const float *, int)", base + 300, base + 8100, base + 12_100)
        export.range("reduce", base + 500, base + 700)
        export.launch(
            "reduce(const float *, float *, int)", base + 510, base + 12_200, base + 14_200
        )
    export.close()
    frame = ingest([counters, tmp_path / "vectors.sqlite"]).frame
    assert frame["layer"].fillna("").tolist() == ["", *["update/scale", "update", "reduce"] * 2]
    assert frame["time_us"].tolist() == [0.5, 3.0, 4.0, 2.0, 3.0, 4.0, 2.0]
    assert frame["time_source"].unique().tolist() == ["nsys"]
    assert (frame["ncu_time_us"] != frame["time_us"]).all()
    assert frame["achieved_occupancy"].notna().all()
    assert frame["gap_us"].iloc[2] == pytest.approx(0.1)


def test_a_trace_without_layers_gives_its_times_by_kernel_however_it_is_spelt(counters, tmp_path):
    trace = Trace()
    names = [name.split("(")[0] for name in read(counters).frame["kernel"]]
    for place, name in enumerate(names):
        trace.launch(f"{name}(float*)", 10 * place, 1000 + 100 * place, 1.0 + place)
    path = tmp_path / "vectors.json"
    path.write_bytes(trace.data())
    kernels = ingest([counters, path])
    np.testing.assert_allclose(sorted(kernels.frame["time_us"]), np.arange(1.0, 8.0))
    assert kernels.frame["time_source"].unique().tolist() == ["torch"]
    assert kernels.frame["layer"].notna().any()


def test_a_trace_of_more_launches_gives_means_and_says_so(counters, tmp_path):
    trace = Trace()
    for place, name in enumerate(["scale", "scale", "scale", "scale", "add", "add", "reduce"]):
        trace.launch(f"{name}(float*)", 10 * place, 1000 + 100 * place, 1.0 + place)
    path = tmp_path / "vectors.json"
    path.write_bytes(trace.data())
    kernels = ingest([counters, path])
    by_kernel = kernels.frame.groupby(kernels.frame["kernel"].str.split("(").str[0])["time_us"]
    assert by_kernel.nunique().unique().tolist() == [1]
    assert by_kernel.first().to_dict() == {"add": 5.5, "void reduce<256>": 7.0, "scale": 2.5}
    assert any("number of invocations differs" in text for text in kernels.warnings)


def test_a_trace_of_another_program_is_refused(counters, tmp_path):
    trace = Trace()
    trace.launch("softmax(float*)", 10, 1000, 1.0)
    path = tmp_path / "vectors.json"
    path.write_bytes(trace.data())
    with pytest.raises(InputError, match="no kernel in common"):
        ingest([counters, path])


def test_a_trace_alone_is_a_run_with_times_and_no_counters(tmp_path):
    export = Export(tmp_path / "net_eager_fp16_b8.sqlite")
    export.launch("k", 10, 100, 200)
    export.close()
    frame = ingest([tmp_path / "net_eager_fp16_b8.sqlite"]).frame
    assert frame["backend"].tolist() == ["eager"]
    assert frame["precision"].tolist() == ["fp16"]
    assert frame["time_us"].tolist() == [0.1]


def test_trtexecs_two_files_make_one_run_of_the_backend_tensorrt(tmp_path):
    profile, layers = tmp_path / "net.profile.json", tmp_path / "net.layers.json"
    entries = [{"count": 10}, {"name": "conv + relu", "timeMs": 3.0, "averageMs": 0.3}]
    profile.write_text(json.dumps(entries), encoding="utf-8")
    layer = {"Name": "conv + relu", "LayerType": "CaskConvolution", "TacticName": "sm75_xmma"}
    layers.write_text(json.dumps({"Layers": [layer], "Bindings": []}), encoding="utf-8")
    kernels = ingest([tmp_path])
    frame = kernels.frame
    assert frame["backend"].tolist() == ["tensorrt"]
    assert frame["workload"].tolist() == ["net"]
    assert frame["kernel"].tolist() == ["sm75_xmma"]
    np.testing.assert_allclose(frame["time_us"], [300.0])
    assert len(kernels.provenance["sources"]) == 2


def test_json_files_that_are_no_traces_are_passed_over_in_a_folder(counters, tmp_path):
    (tmp_path / "settings.json").write_text('{"batch": 1}', encoding="utf-8")
    assert len(ingest([tmp_path]).frame) == 7
