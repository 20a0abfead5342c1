"""Files that are no profile, or none as they are: each is named for what it is, with what to do."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile

import pytest

from perfml.errors import InputError
from perfml.readers import read
from tests.support.paths import DATA, PUBLIC


def refusal(path) -> str:
    with pytest.raises(InputError) as error:
        read(path)
    text = str(error.value)
    assert len(text.splitlines()) <= 2
    assert text.replace("\n", "").isprintable()
    return text


def tar_of(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("profiles/run.csv")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["profiles.tar", "profiles.tar.gz", "profiles.tgz"])
def test_a_tar_archive_is_named_whether_compressed_or_not(name, tmp_path):
    content = tar_of((DATA / "ncu" / "vectors.csv").read_bytes())
    path = tmp_path / name
    path.write_bytes(content if name.endswith(".tar") else gzip.compress(content))
    text = refusal(path)
    assert "this is a tar archive" in text
    assert f"tar xf {name}" in text


def test_a_zip_archive_is_named_and_its_name_is_quoted(tmp_path):
    path = tmp_path / "my run; rm x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("run.csv", "x")
    text = refusal(path)
    assert "this is a zip archive" in text
    assert "unzip 'my run; rm x.zip'" in text


@pytest.mark.parametrize(
    "content",
    [
        b'<?xml version="1.0"?>\n<session version="2" name="NewSession1.nvvp">\n</session>\n',
        b'\xef\xbb\xbf<session version="2"/>',
    ],
)
def test_a_session_of_the_visual_profiler_says_that_it_has_no_measurements(content, tmp_path):
    path = tmp_path / "run.nvvp"
    path.write_bytes(content)
    text = refusal(path)
    assert "a session of the Visual Profiler" in text
    assert "nvprof --export-profile" in text


def test_times_of_whole_inferences_name_the_option_for_layers(tmp_path):
    path = tmp_path / "times.json"
    path.write_bytes(b'[\n  { "startEnqMs" : 0.1, "startComputeMs" : 0.2, "latencyMs" : 0.4 }\n]\n')
    assert "--exportProfile" in refusal(path)


def test_a_folder_name_cannot_steer_the_terminal(tmp_path):
    path = tmp_path / "a\x1b[2Jb.zip"
    path.write_bytes(b"PK\x03\x04" + bytes(30))
    assert "this is a zip archive" in refusal(path)


if PUBLIC.is_dir():

    def test_the_public_session_of_the_visual_profiler_is_named():
        assert "a session of the Visual Profiler" in refusal(PUBLIC / "nbody_openacc.nvvp")
