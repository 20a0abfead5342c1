"""Where `perfml reproduce` finds its data: a path, the environment, a download with its hash."""

import dataclasses
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from perfml.datasets import DATASETS
from perfml.errors import PerfmlError
from perfml.reproduce import Plan, reproduce
from perfml.reproduce.claims import NOT_TESTABLE
from perfml.reproduce.files import classification_table, regression_table
from perfml.reproduce.published import find_data, find_recording
from perfml.reproduce.run import standing_in
from tests.support.published_data import synthetic

pytestmark = pytest.mark.long

CONTENT = synthetic(3).to_csv(index=False).encode()


@pytest.fixture
def server():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):  # the name is http.server's
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT)

        def log_message(self, *_):
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{running.server_address[1]}/dataset.csv"
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def nothing_at_hand(monkeypatch, tmp_path):
    monkeypatch.delenv("PERFML_DATA", raising=False)
    monkeypatch.setattr("perfml.datasets.registry._cache", lambda: tmp_path / "cache")


def expect_hash(monkeypatch, digest):
    changed = dataclasses.replace(DATASETS["nazir2024"], sha256=digest)
    monkeypatch.setitem(DATASETS, "nazir2024", changed)


def test_a_download_with_the_right_hash_is_used_and_kept(server, monkeypatch):
    expect_hash(monkeypatch, hashlib.sha256(CONTENT).hexdigest())
    source = find_data(None, url=server)
    assert source.published
    assert len(source.layers) == 84
    # the second time nothing is downloaded
    assert len(find_data(None, url="http://127.0.0.1:9/none").layers) == 84


def test_a_download_with_another_hash_is_refused_and_the_recording_stands_in(server):
    source = find_data(None, url=server)
    assert not source.published
    assert source.name.startswith("h200")
    assert "cannot download dataset nazir2024" in source.notes[0]
    assert "hash" in source.notes[0]
    assert "PERFML_DATA" in source.notes[0]


def test_a_hash_error_is_raised_where_no_recording_can_stand_in(server, monkeypatch):
    monkeypatch.setattr("perfml.reproduce.published.find_recording", lambda: None)
    with pytest.raises(PerfmlError, match="sha256"):
        find_data(None, url=server)


def test_the_environment_names_the_file(monkeypatch, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes(CONTENT)
    monkeypatch.setenv("PERFML_DATA", str(path))
    assert find_data(None).name == "mine.csv"


def test_an_environment_that_names_no_file_is_an_error_not_a_fallback(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFML_DATA", str(tmp_path / "absent.csv"))
    with pytest.raises(PerfmlError, match="PERFML_DATA"):
        find_data(None)


@pytest.mark.slow
def test_without_the_file_nothing_published_is_judged(monkeypatch):
    whole = find_recording()
    few = [f"conv_{number:02d}" for number in (3, 15, 18, 20)]
    part = dataclasses.replace(
        whole,
        layers=whole.layers[whole.layers["layer"].isin(few)].reset_index(drop=True),
        kernels=whole.kernels[whole.kernels["layer"].isin(few)].reset_index(drop=True),
    )
    monkeypatch.setattr("perfml.reproduce.published.find_recording", lambda: part)
    plan = Plan(splits=3, model_seeds=1, own_splits=1, study_splits=2, n_jobs=1)
    found = reproduce(plan=plan, url="http://127.0.0.1:9/x")
    own = [claim for claim in found.claims if claim.data == found.source.name]
    assert own
    assert {claim.verdict for claim in own} == {NOT_TESTABLE}
    assert found.results["ranges"] == []
    assert found.results["regression"]["lmt"]["random"]["splits"] == 2
    assert found.results["regression"]["dt"]["percentile_of_published"] is None
    assert regression_table(found.results)["published_mape"].isna().all()
    assert classification_table(found.results)["published_accuracy"].isna().all()
    folds = found.results["regression"]["dt"]["leave_one_layer_out"]["folds"]
    assert [fold["layer"] for fold in folds] == few


def test_a_stand_in_is_fitted_less_often_and_says_so():
    plan, note = standing_in(Plan(splits=500))
    assert plan.splits < 500
    assert str(plan.splits) in note
    assert standing_in(Plan(splits=10))[0].splits == 10
