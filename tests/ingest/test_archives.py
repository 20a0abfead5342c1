"""An archive of several profiles is read as the folder that it would be unpacked into."""

from __future__ import annotations

import gzip
import json
import tempfile

import pandas as pd
import pytest

from perfml.datasets import read_input
from perfml.errors import InputError
from perfml.ingest import ingest
from perfml.ingest.folder import ingest_folder
from perfml.readers import source as sources
from tests.support.archives import PACKED
from tests.support.paths import DATA

PAGE = (DATA / "ncu" / "vectors.csv").read_bytes()
TWO = {"a/before.csv": PAGE, "b/after.csv": PAGE.replace(b"H200", b"H100"), "README.md": b"x"}


@pytest.fixture(autouse=True)
def room(tmp_path, monkeypatch):
    """A place of its own for temporary files, so that what is left there is seen."""
    room = tmp_path / "temporary"
    room.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    yield room
    assert list(room.iterdir()) == []


def packed(tmp_path, files, kind="x.zip"):
    folder = tmp_path / "given"
    folder.mkdir()
    path = folder / kind
    path.write_bytes(PACKED[kind](files))
    return path


@pytest.mark.parametrize("kind", ["x.tar.gz", "x.zip"])
def test_its_profiles_are_those_of_the_folder(kind, tmp_path):
    path = packed(tmp_path, TWO, kind)
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, content in TWO.items():
        (folder / name.rpartition("/")[2]).write_bytes(content)
    expected = ingest([folder / "before.csv", folder / "after.csv"])
    found = ingest([path])
    pd.testing.assert_frame_equal(found.frame, expected.frame)
    assert found.warnings == expected.warnings
    assert [each.name for each in path.parent.iterdir()] == [kind]
    pd.testing.assert_frame_equal(read_input(path).launches, expected.frame)


def test_a_collected_run_in_it_is_one_run_with_its_times(tmp_path):
    manifest = {"run_id": "r1", "workload": "vectors", "backend": "cuda", "batch": 1}
    files = {"out/r1/run.json": json.dumps(manifest).encode(), "out/r1/metrics.csv": PAGE}
    found = ingest([packed(tmp_path, files)])
    assert found.frame["run_id"].unique().tolist() == ["r1"]
    assert found.frame["workload"].unique().tolist() == ["vectors"]


def test_names_cannot_lead_out_nor_hide_each_other(tmp_path):
    names = ["../../../a b.csv", "../../../a_b.csv", "/etc/c.csv", "x/..", "..\\d.csv"]
    path = packed(tmp_path, dict.fromkeys(names, PAGE))
    before = sorted(tmp_path.rglob("*"))
    found = ingest([path])
    assert len(found.frame) == 5 * len(ingest([DATA / "ncu" / "vectors.csv"]).frame)
    assert sorted(tmp_path.rglob("*")) == before


def test_compressed_profiles_in_it_are_read_and_other_compressed_files_are_not(tmp_path):
    files = {"a.csv.gz": gzip.compress(PAGE), "b.csv": PAGE, "notes.txt.gz": gzip.compress(b"slow")}
    assert len(ingest([packed(tmp_path, files)]).provenance["sources"]) == 2


def test_an_error_names_the_file_in_the_archive(tmp_path):
    path = packed(tmp_path, {**TWO, "run/cut.csv": PAGE[:-40]}, "x.tar.gz")
    with pytest.raises(InputError) as error:
        ingest([path])
    assert error.value.where == f"{path}/run/cut.csv:9"
    landed = ingest_folder([path], tmp_path / "tables", n_jobs=1)
    assert [name for name, _ in landed.failed] == [f"{path}/run/cut.csv"]
    assert landed.failed[0][1].where == f"{path}/run/cut.csv:9"
    assert len(landed.added) == 2


@pytest.mark.parametrize("kind", ["x.tar.gz", "x.zip"])
def test_together_they_hold_no_more_than_one_file_may(kind, tmp_path, monkeypatch):
    page = PAGE + PAGE.splitlines(keepends=True)[-1] * 400
    path = packed(tmp_path, {f"{n}.csv": page for n in range(8)}, kind)
    monkeypatch.setattr(sources, "RATIO", 1)
    monkeypatch.setattr(sources, "FREE", 3 * len(page))
    with pytest.raises(InputError, match="larger than"):
        ingest([path])
