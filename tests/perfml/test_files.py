"""Results appear whole or not at all, and what a killed process leaves is taken away."""

import os
import signal
import subprocess
import sys

import pytest

from perfml.errors import InputError
from perfml.util.files import replacing, temporary_folder, write_text

WRITER = """
import sys, time
from perfml.util.files import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print(temporary.name, flush=True)
    time.sleep(600)
"""


@pytest.mark.process
@pytest.mark.parametrize("killed", [True, False])
def test_the_next_run_removes_what_a_killed_one_left_and_nothing_that_is_being_written(
    tmp_path, killed
):
    out, other = tmp_path / "out.html", tmp_path / "other.html"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, out], stdout=subprocess.PIPE, text=True
    ) as writer:
        left = tmp_path / writer.stdout.readline().strip()
        if killed:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        assert left.is_file()
        os.utime(left, (0, 0))
        write_text(other, "of another name")
        assert left.is_file()
        write_text(out, "whole")
        assert left.is_file() is not killed
        writer.kill()
    assert out.read_text() == "whole"


def test_a_block_that_fails_leaves_the_older_file_alone(tmp_path):
    out = tmp_path / "out.txt"
    write_text(out, "older")

    def fail():
        with replacing(out) as temporary:
            temporary.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]
    assert out.read_text() == "older"


def test_a_temporary_folder_goes_with_its_block_and_a_place_that_is_missing_is_one_error(tmp_path):
    with temporary_folder("try", tmp_path) as folder:
        (folder / "a").write_text("x")
        assert folder.parent == tmp_path
    assert list(tmp_path.iterdir()) == []
    with (
        pytest.raises(InputError, match="cannot write here"),
        temporary_folder("a", tmp_path / "b"),
    ):
        pass
