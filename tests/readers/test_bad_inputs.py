"""Damaged and foreign files: a right table, or one clear error; never a traceback or a hang."""

import functools
import gzip
import json
import lzma
import os
import re
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from perfml.errors import InputError, PerfmlError
from perfml.ingest.layer_map import read_layer_map
from perfml.ingest.profiles import ingest
from perfml.readers import Source, read
from perfml.readers.demangle import demangle, demangled
from perfml.tables import metric_columns
from tests.support.bad_inputs import BAD, Base, bases
from tests.support.command_line import run
from tests.support.nvprof_profile import Profile, fill
from tests.support.processes import PATIENCE_S

EXPECTED = json.loads((BAD / "expected.json").read_text(encoding="utf-8"))
FOLDERS = sorted({name.partition("/")[0] for name in EXPECTED})
BASES = {base.name: base for base in bases()}
HARMLESS = ("whole", "utf-8-bom", "utf-16-le", "utf-16-be", "windows-lines")


def one_message(error: PerfmlError) -> None:
    text = str(error)
    assert 1 <= len(text.splitlines()) <= 2
    assert text.replace("\n", "").isprintable()
    assert error.what
    assert error.where
    assert error.cure


def verdict(path: Path) -> int | str:
    try:
        return len(read(path).frame)
    except PerfmlError as error:
        one_message(error)
        line = str(error.where).removeprefix(str(path)).lstrip(":")
        return f"{line}: {error.what}" if line else error.what


# The corpus


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_damaged_file_gives_the_launches_or_the_error_it_should(folder):
    names = [name for name in EXPECTED if name.startswith(f"{folder}/")]
    found = {name: verdict(BAD / name) for name in names}
    assert found == {name: EXPECTED[name] for name in names}


@functools.cache
def numbers(path: Path) -> pd.DataFrame:
    frame = read(path).frame
    return frame[["kernel", "time_us", *metric_columns(frame)]]


@pytest.mark.parametrize("name", sorted(BASES))
def test_encodings_and_line_ends_change_no_number(name):
    base = BASES[name]
    whole = numbers(BAD / name / f"whole{base.suffix}")
    for harmless in HARMLESS:
        found = numbers(BAD / name / f"{harmless}{base.suffix}")
        pd.testing.assert_frame_equal(found, whole, check_exact=True)


@pytest.mark.parametrize("name", sorted(BASES))
def test_a_file_cut_after_a_row_has_the_rows_before_it(name):
    base = BASES[name]
    whole = numbers(BAD / name / f"whole{base.suffix}")
    cut = [
        each
        for each, expected in EXPECTED.items()
        if each.startswith(f"{name}/cut-") and isinstance(expected, int)
    ]
    assert cut
    for each in cut:
        found = numbers(BAD / each)
        assert found["kernel"].tolist() == whole["kernel"].tolist()[: len(found)]
        times = whole["time_us"].to_numpy()[: len(found)]
        np.testing.assert_array_equal(found["time_us"].to_numpy(), times)


def test_columns_in_another_order_give_the_same_numbers():
    whole = numbers(BAD / "ncu-raw/whole.csv")
    found = numbers(BAD / "ncu-raw/two-columns-in-another-order.csv")
    pd.testing.assert_frame_equal(found, whole)


@pytest.mark.parametrize("name", sorted(set(BASES) - {"nvprof-metrics-csv", "nvprof-metrics"}))
def test_no_time_is_infinite_or_negative_whatever_the_file_says(name):
    for kind in ("negative", "infinite", "too-large", "not-a-number"):
        path = BAD / name / f"{kind}-value{BASES[name].suffix}"
        if isinstance(EXPECTED[f"{name}/{path.name}"], str):
            continue
        kernels = read(path)
        times = kernels.frame["time_us"]
        assert times.isna().sum() == 1
        assert (times.dropna() > 0).all()
        assert any("no duration" in text for text in kernels.warnings)


# Names


def renamed(base: Base, word: bytes) -> bytes:
    return base.data.replace(base.kernel, base.kernel + word, 1)


@pytest.mark.parametrize("name", sorted(BASES))
def test_a_kernel_name_of_ten_thousand_characters_is_kept_whole(name, tmp_path):
    base = BASES[name]
    path = tmp_path / f"long{base.suffix}"
    path.write_bytes(renamed(base, b"x" * 10_000))
    assert read(path).frame["kernel"].str.len().max() > 10_000


def test_a_name_in_a_message_can_neither_fill_nor_steer_the_terminal(tmp_path):
    base = BASES["ncu-raw"]
    data = renamed(base, b"\x1b[2J" + b"x" * 10_000).replace(b"5.280000", b"-5.280000")
    path = tmp_path / "long.csv"
    path.write_bytes(data)
    with pytest.raises(InputError, match="negative duration") as error:
        read(path)
    one_message(error.value)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("number", ["9" * 20, "9" * 5000])
def test_a_range_with_an_endless_number_is_a_layer(number, tmp_path):
    data = BASES["ncu-raw"].data.replace(b"step_0", f"step_{number}".encode())
    path = tmp_path / "endless.csv"
    path.write_bytes(data)
    frame = read(path).frame
    assert set(frame["iteration"]) == {0}
    assert f"step_{number}/update" in set(frame["layer"].dropna())


def test_a_mangled_name_that_stands_for_gigabytes_is_left_as_it_is():
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    bomb = "_Z1f1AIiiE" + "".join(f"S_IS{each}_S{each}_E" for each in digits[1:24])
    began = time.process_time()
    found = demangled([bomb, "_Z3fooPKf", "gemm"])
    assert time.process_time() - began < 30
    assert found == {bomb: None, "_Z3fooPKf": "foo(float const*)", "gemm": "gemm"}
    many = "_Z1f1AIiiE" + "S0_" * 20
    assert demangle(many) == "f(A<int, int>" + ", A<int, int>" * 20 + ")"


# Things that are no plain file


def in_time(*commands: list[str]) -> tuple[list[tuple[int, str]], int]:
    """Run perfml in one process; return exit statuses, what was said, and its size in MiB."""
    script = (
        "import gc, json, sys\nfrom typer.testing import CliRunner\nfrom perfml.cli import app\n"
        "answers = []\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    ended = CliRunner().invoke(app, words)\n"
        "    answers.append((ended.exit_code, ended.stderr))\n"
        "    del ended\n"
        "    gc.collect()\n"
        # ru_maxrss would start from the size of the process that started this one
        "lines = open('/proc/self/status').read().splitlines()\n"
        "most = [int(line.split()[1]) // 1024 for line in lines if 'VmHWM' in line][0]\n"
        "print(json.dumps([answers, most]))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "Traceback" not in ended.stderr
    answers, most = json.loads(ended.stdout)
    return answers, most


@pytest.mark.process
def test_folders_and_pipes_are_refused_at_once(tmp_path):
    (tmp_path / "empty").mkdir()
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    refused = {tmp_path / "empty": "no profile in this folder", pipe: "special file"}
    out = str(tmp_path / "k.parquet")
    answers, _ = in_time(*(["ingest", str(path), "--out", out] for path in refused))
    for says, (code, said) in zip(refused.values(), answers, strict=True):
        assert code == 1
        assert says in said
        assert len(said.splitlines()) <= 2
    with pytest.raises(InputError, match="no profile in this folder"):
        ingest([tmp_path])  # the pipe in it is passed over
    for place in ("run.json", "map.toml"):
        os.mkfifo(tmp_path / place)
    with pytest.raises(InputError, match="no profile"):
        ingest([tmp_path])
    with pytest.raises(InputError, match="special file"):
        read_layer_map(tmp_path / "map.toml")
    (tmp_path / "profile.csv").write_bytes(BASES["ncu-raw"].data)
    with pytest.raises(InputError, match="special file"):
        ingest([tmp_path])


HEADS = {
    "ncu": BASES["ncu-raw"].data,
    "nvprof": BASES["nvprof-trace"].data,
    "timing": BASES["timing"].data,
    "sqlite": b"SQLite format 3\x00" + bytes(84),
    "nothing": b"",
}


def bomb(path, head, packer):
    """Write a packed file of half a gibibyte; of twice as much, twice as much is unpacked."""
    pack = gzip.compress if packer == "gzip" else functools.partial(lzma.compress, preset=0)
    block = pack(bytes(8 << 20))
    path.write_bytes(pack(head) + 64 * block)


@pytest.mark.slow
@pytest.mark.process
def test_a_bomb_is_refused_before_it_goes_off(tmp_path):
    heads = [("ncu", "xz"), *((head, "gzip") for head in sorted(HEADS))]
    commands = []
    for head, packer in heads:
        path = tmp_path / f"{head}.{packer}"
        bomb(path, HEADS[head], packer)
        commands.append(["ingest", str(path), "--out", str(tmp_path / "k.parquet")])
    answers, most = in_time(*commands)
    assert most < 600
    for (head, packer), (code, said) in zip(heads, answers, strict=True):
        assert code == 1, (head, packer)
        assert ("times its size" in said) == (head != "nothing"), said
        assert len(said.splitlines()) == 2


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "growing.csv"
    for base in BASES.values():
        path.write_bytes(base.data)
        source = Source(path)
        assert source.head
        reading = Source._errors

        def growing(self, reading=reading):
            with path.open("ab") as out:
                out.write(b"more\n")
            return reading(self)

        monkeypatch.setattr(Source, "_errors", growing)
        with pytest.raises(InputError, match="changed while it was read"):
            _ = source.data
        monkeypatch.setattr(Source, "_errors", reading)


def test_a_machine_without_the_memory_gets_a_message(tmp_path, monkeypatch):
    path = tmp_path / "large.csv"
    path.write_bytes(BASES["ncu-raw"].data)

    def exhausted(*_):
        raise MemoryError

    monkeypatch.setattr("perfml.readers.ncu.csv_page.read", exhausted)
    with pytest.raises(InputError, match="more memory than there is") as error:
        read(path)
    one_message(error.value)


# Databases and tables


@pytest.mark.long
def test_a_database_without_one_of_its_tables_or_columns_says_which(tmp_path):
    def profile():
        found = Profile(tmp_path / "run.nvprof")
        fill(found)
        return found

    with closing(profile().connection) as connection:
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
        tables = {
            table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for (table,) in connection.execute(query).fetchall()
        }
    results: dict[str, int | str] = {}
    for table, columns in tables.items():
        for column in ("", *columns):
            (tmp_path / "run.nvprof").unlink()
            damaged = profile()
            with closing(damaged.connection) as connection:
                change = f"RENAME COLUMN {column} TO other" if column else "RENAME TO other"
                connection.execute(f"ALTER TABLE {table} {change}")
                connection.commit()
            results[f"{table}.{column}"] = verdict(damaged.path)
    errors = {name: what for name, what in results.items() if isinstance(what, str)}
    assert errors["StringTable."] == "not a profile in a format that perfml reads"
    kernels = "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"
    assert errors[f"{kernels}.gridX"] == f"the table {kernels} lacks the columns gridX"
    for name, what in errors.items():
        table, _, column = name.partition(".")
        assert not column or what == f"the table {table} lacks the columns {column}"
    assert {count for count in results.values() if isinstance(count, int)} == {8}


def test_a_database_cell_of_absurd_size_is_refused(tmp_path):
    found = Profile(tmp_path / "run.nvprof")
    fill(found)
    found.connection.execute("UPDATE StringTable SET value = zeroblob(40000000) WHERE _id_ = 3")
    with pytest.raises(InputError, match="cannot be read") as error:
        found.read()
    one_message(error.value)


@pytest.mark.slow
def test_a_foreign_or_damaged_parquet_file_is_one_error_in_every_verb(tmp_path):
    path = tmp_path / "table.parquet"
    schemas = {
        "foreign": pa.table({"song": ["a"], "seconds": [1.5]}),
        "nested": pa.table({"kernel": [[{"a": 1}]], "time_us": [{"b": 2}]}),
        "words": pa.table({"kernel": ["k"], "time_us": ["fast"], "layer": [None]}),
        "empty": pa.table({}),
        "provenance": pa.table({"a": [1]}).replace_schema_metadata({b"perfml": b"[" * 100_000}),
    }
    for table in schemas.values():
        pq.write_table(table, path)
        for verb in ("merge", "inspect", "advise", "train", "ingest"):
            arguments = [verb, str(path)]
            if verb in ("merge", "ingest"):
                arguments += ["--out", str(tmp_path / "out.parquet")]
            ended = run(*arguments)
            assert ended.exit_code == 1, (verb, ended.stderr)
            assert "internal error" not in ended.stderr
            assert re.match(r"error: .+\n.+\n$", ended.stderr), ended.stderr
            assert not (tmp_path / "out.parquet").exists()
