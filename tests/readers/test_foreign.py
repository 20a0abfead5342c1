"""Files that are no profile, or none as they are: each is named for what it is, with what to do."""

from __future__ import annotations

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


def test_text_in_utf_16_is_named_by_its_first_line_with_a_mark_and_known_without(tmp_path):
    path = tmp_path / "own.csv"
    for encoding, mark in (("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")):
        path.write_bytes(mark + "alpha,beta\n1,2\n".encode(encoding))
        assert "'alpha,beta'" in refusal(path)
    path.write_bytes("alpha,beta\n1,2\n".encode("utf-16-le"))
    assert "without a byte order mark" in refusal(path)


def test_times_of_whole_inferences_name_the_option_for_layers(tmp_path):
    path = tmp_path / "times.json"
    path.write_bytes(b'[\n  { "startEnqMs" : 0.1, "startComputeMs" : 0.2, "latencyMs" : 0.4 }\n]\n')
    assert "--exportProfile" in refusal(path)


def test_a_summary_of_the_engine_explorer_names_the_files_with_layers(tmp_path):
    path = tmp_path / "engine.profile.metadata.json"
    path.write_bytes(b'{"performance_summary": {"Throughput": 2829.15}}')
    assert ".profile.json" in refusal(path)


def test_an_archive_is_named_and_its_name_is_quoted(tmp_path):
    path = tmp_path / "my run; rm x\x1b[2J.rar"
    path.write_bytes(b"Rar!" + bytes(30))
    assert "this is a RAR archive" in refusal(path)


@pytest.mark.parametrize(("mode", "name"), [("w", "x.tar"), ("w:gz", "x.tgz"), ("w:xz", "x.xz")])
def test_of_a_tar_archive_no_member_is_taken_for_the_file(mode, name, tmp_path):
    path = tmp_path / name
    with tarfile.open(path, mode) as archive:
        archive.add(DATA / "ncu" / "vectors.csv")
    assert f"tar xf {name}" in refusal(path)


def test_a_zip_archive_names_the_command_that_unpacks_it(tmp_path):
    path = tmp_path / "a b.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(DATA / "ncu" / "vectors.csv")
    assert "unzip 'a b.zip'" in refusal(path)


SPEEDSCOPE = b'{"$schema": "https://www.speedscope.app/file-format-schema.json", "profiles": []}'
SNAPSHOT = b"\x80\x04\x95\x10\x00\x00}\x94(\x8c\x08segments\x94]\x94\x8c\x0dtotal_size"


@pytest.mark.parametrize(
    ("content", "name", "cure"),
    [
        (SNAPSHOT, "memory snapshot", "export_chrome_trace"),
        (b"\x80\x04\x95cos\nsystem\n(S'true'\ntR.", "pickle", "the profiler wrote"),
        (SPEEDSCOPE, "speedscope", "export_chrome_trace"),
        (
            b"-----  ------\n  Name    Self CPU %      Self CPU\n---",
            "key_averages",
            "export_chrome",
        ),
        (b'"Domain","Function","Process_Id","Thread_Id"\n', "API calls", "kernel_trace.csv"),
        (b'{"rocprofiler-sdk-tool": [{}]}', "JSON of rocprofv3", "--output-format csv"),
        (b'{"traceEvents":[{"args":{"BeginNs":"1"}}]}', "rocprof v1", "results.stats.csv"),
        (b"ID;Process ID;Kernel Name\n0;1;gemm\n", "saved again", "--csv --page raw"),
        (b"\xef\xbb\xbfID,Process ID,Name\n,,\n0,7,gemm\n", "saved again", "--csv --page raw"),
        (b"ID,Process ID,Name\n,,\n0.0,1234.0,gemm\n", "saved again", "--csv --page raw"),
    ],
)
def test_files_of_other_tools_are_named_with_the_cure_of_their_own_tool(
    content, name, cure, tmp_path
):
    path = tmp_path / "file"
    path.write_bytes(content)
    text = refusal(path)
    assert name in text
    assert cure in text


REFUSED = {
    "csc746_report1.nsys-rep": "nsys export --type sqlite",
    "dd2360_ncu_failed.txt": "LaunchFailed",
    "mobilenet.qat.onnx.engine.profile.metadata.json": "engine explorer",
    "nbody_openacc.nvvp": "a session of the Visual Profiler",
    "thor_print_summary_per_kernel_excerpt.csv": "a summary over launches",
    "titanxp_bfs_no_kernels_profiled.txt": "holds no kernels",
}
"""Public files that hold no measurements of kernels, and what is said of each."""


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="public profiles may be read, not committed")
@pytest.mark.slow
def test_every_public_file_is_read_or_named_for_what_it_is():
    files = [path for path in sorted(PUBLIC.rglob("*")) if path.is_file()]
    for path in files:
        if path.name in REFUSED:
            assert REFUSED[path.name] in refusal(path)
        elif path.name != "README.md":
            assert len(read(path).frame), path.name
    assert {path.name for path in files} >= set(REFUSED)


def test_a_pointer_of_git_lfs_names_the_command_that_brings_the_file(tmp_path):
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    assert "git lfs pull --include a.ncu-rep" in refusal(path)


def test_a_table_with_columns_of_ones_own_is_sent_to_python(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("op,Memory [%],Duration (ms)\n1,40.5,2.5\n")
    assert "perfml rank FILE --target COLUMN" in refusal(path)
