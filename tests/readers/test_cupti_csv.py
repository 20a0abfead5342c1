"""The table of counters that perfml takes itself, recorded on an H100 (``repeats.cu``)."""

import pytest

from perfml.errors import InputError
from perfml.readers import Source, read
from perfml.readers.cupti_csv import recognises


@pytest.fixture
def table(recorded):
    return recorded / "cupti" / "h100_repeats.csv"


def test_the_recorded_table_is_read(table):
    kernels = read(table)
    frame = kernels.frame
    assert frame["kernel"].str.split("(").str[0].tolist() == ["scale", "add", "reduce", "reduce"]
    assert frame["layer"].tolist() == ["update", "update", "reduce", "reduce"]
    assert frame["device"].unique().tolist() == ["NVIDIA H100 80GB HBM3"]
    assert frame["time_source"].unique().tolist() == ["cupti"]
    assert frame["gld_efficiency"].tolist() == [1.0] * 4
    # 2**20 threads, a load each of 32 lanes
    assert frame["global_load_requests"].tolist()[:2] == [2**20 / 32, 2 * 2**20 / 32]
    assert frame["shared_memory_per_block"].tolist() == [0, 0, 1024, 2048]
    assert frame["waves_per_sm"].iloc[0] == pytest.approx(4096 / (8 * 132))
    assert kernels.warnings == ()


def test_its_provenance_says_how_it_was_measured(table):
    provenance = read(table).provenance
    assert provenance["format"] == "cupti-csv"
    assert (provenance["tool"], provenance["tool_version"]) == ("CUPTI range profiler", "130001")
    assert provenance["caches"] == "as the program left them"
    assert (provenance["replay"], provenance["chip"]) == ("iterations", "GH100")


def test_other_tables_are_not_taken_for_it(recorded, table, sweep):
    assert recognises(Source(table))
    assert not recognises(Source(sweep / "yolov4tiny_cudnn_fp32_b1_timing.csv.xz"))


def changed(tmp_path, table, before, after):
    path = tmp_path / "metrics.csv"
    text = table.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    return path


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('"(4096, 1, 1)"', "4096", "grid needs a shape"),
        (",launch__thread_count,", ",threads,", "no column launch__thread_count"),
        ("set,launch,", "set,set,", "comes twice"),
        ("\n0,1,0,", "\n0,1,0,0,", "does not have the"),
        ("1048576,", "many,", "launch__thread_count needs a number"),
        ("scale(float*, float, int)", " ", "no kernel name"),
        ('"(4096, 1, 1)"', '"(4096, 1, 1)', "cannot be read|does not have"),
    ],
)
def test_damage_is_one_message_with_its_line(tmp_path, table, before, after, says):
    with pytest.raises(InputError, match=says) as error:
        read(changed(tmp_path, table, before, after))
    assert "metrics.csv" in str(error.value)


def test_a_cut_table_and_an_empty_one_are_refused(tmp_path, table):
    path = tmp_path / "metrics.csv"
    path.write_text(table.read_text()[:-20])
    with pytest.raises(InputError, match="last line is cut"):
        read(path)
    lines = table.read_text().splitlines(keepends=True)
    header = next(line for line in lines if line.startswith("set,"))
    path.write_text("# perfml counters 1\n" + header)
    with pytest.raises(InputError, match="no launch"):
        read(path)
