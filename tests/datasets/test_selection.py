"""What a user names becomes tables, whatever it is; and which of its launches are meant."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given as tried_with
from hypothesis import strategies as st

import perfml
from perfml.datasets import Input, Inputs, Selection, read_input, read_inputs
from perfml.datasets.choosing import layer_names
from perfml.errors import InputError, PerfmlError
from perfml.explain.load import load_sides
from perfml.ingest.merge.groups import kernels_as_layers
from perfml.ingest.merge.rule import merge
from perfml.ingest.profiles import ingest
from perfml.kernel_names import setup_note
from perfml.tables import write_table
from tests.support.tables import make_kernels

RANDOM = "void at::native::distribution_elementwise_grid_stride_kernel<float, 4>(long)"


@pytest.fixture(scope="module")
def report(recorded):
    return recorded / "ncu" / "vectors.csv"


def table(folder, rows, name="k.parquet"):
    """Write a Kernels table without ranges; return its path."""
    path = folder / name
    kernels = make_kernels([{"layer": pd.NA, **row} for row in rows])
    write_table(kernels, path, kind="kernels", provenance={})
    return path


def test_a_profile_its_folder_and_its_tables_are_the_same(report, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / report.name).write_bytes(report.read_bytes())
    found = ingest([report])
    write_table(found.frame, tmp_path / "k.parquet", kind="kernels", provenance=found.provenance)
    layers = read_input(report).layers
    assert len(layers) == 6
    for other in (tmp_path / "folder", tmp_path / "k.parquet"):
        pd.testing.assert_frame_equal(read_input(other).layers, layers, check_like=True)
    write_table(layers, tmp_path / "l.parquet", kind="layers", provenance={})
    pd.testing.assert_frame_equal(read_input(tmp_path / "l.parquet").layers, layers)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "k.parquet", "l.parquet"]


def test_launches_in_parts_are_merged_where_no_layers_lie_beside(report, tmp_path):
    kernels = ingest([report]).frame
    halves = [kernels.assign(run_id=side, backend=side) for side in ("before", "after")]
    both = pd.concat(halves, ignore_index=True)
    for part, half in enumerate(halves):
        write_table(half, tmp_path / f"kernels-{part:02d}.parquet", kind="kernels", provenance={})
    (tmp_path / "before.csv.xz").write_bytes(b"the recording that the parts were read from")
    layers = read_input(tmp_path).layers
    pd.testing.assert_frame_equal(layers, merge(both), check_dtype=False)


def test_a_folder_of_launches_gives_their_layers_whatever_raw_files_lie_beside(report, tmp_path):
    found = ingest([report])
    kernels = found.frame[found.frame["layer"].notna()]
    few = kernels.head(3).reset_index(drop=True)
    write_table(few, tmp_path / "kernels.parquet", kind="kernels", provenance=found.provenance)
    (tmp_path / report.name).write_bytes(report.read_bytes())
    given = read_input(tmp_path)
    pd.testing.assert_frame_equal(given.launches, few)
    pd.testing.assert_frame_equal(given.layers, merge(few))


def test_a_place_counts_from_0(report):
    fourth = read_input(f"{report}@3").launches
    assert fourth["kernel"].str.startswith("void reduce").tolist() == [True]
    with pytest.raises(PerfmlError, match=r"no launch @7 \(found: 7 launches, @0 to @6\)"):
        read_input(f"{report}@7")


def test_a_file_that_is_called_so_is_read_whole(report, tmp_path):
    path = tmp_path / "vectors@3"
    path.write_bytes(report.read_bytes())
    assert len(read_input(path).launches) == 7


def test_a_kernel_is_chosen_by_a_part_of_its_name_or_a_pattern(report):
    for pattern, launches in (
        ("reduce", 2),
        ("red", 2),
        ("^(scale|add)", 5),
        ("scale", 3),
        ("^scale$", 3),
    ):
        chosen = read_input(report, kernel=pattern).launches
        assert len(chosen) == launches, pattern
    with pytest.raises(PerfmlError, match=r"'gemm' \(found: scale, add, reduce\)"):
        read_input(report, kernel="gemm")


def test_a_kernel_that_is_called_so_goes_before_those_whose_name_has_it(tmp_path):
    path = table(tmp_path, [{"kernel": "gemm(int)"}, {"kernel": "gemm_reduce(int)"}])
    chosen = read_input(path, kernel="gemm").launches
    assert chosen["kernel"].tolist() == ["gemm(int)"]


def test_a_pattern_that_is_none_says_so(report):
    with pytest.raises(PerfmlError, match="nor a regular expression"):
        read_input(report, kernel="(gemm")


def test_launches_are_skipped_among_those_of_the_kernel(tmp_path):
    rows = [{"kernel": name, "time_us": time} for name, time in (("a", 1), ("b", 9), ("b", 2))]
    chosen = read_input(table(tmp_path, rows), kernel="b", skip=1).launches
    assert chosen["time_us"].tolist() == [2]
    with pytest.raises(PerfmlError, match="--skip 3 leaves no launch"):
        read_input(table(tmp_path, rows), skip=3)


def test_of_a_layer_s_repeat_that_is_cut_nothing_is_kept(tmp_path):
    rows = [
        {"iteration": repeat, "kernel": name, "time_us": 1.0}
        for repeat in (0, 1)
        for name in ("im2col", "gemm")
    ]
    path = tmp_path / "k.parquet"
    write_table(make_kernels(rows), path, kind="kernels", provenance={})
    layers = read_input(path, skip=1).layers
    assert layers[["iteration", "time_us"]].to_numpy().tolist() == [[1, 2.0]]


def test_merged_layers_have_no_launches_to_choose_from(report, tmp_path):
    write_table(read_input(report).layers, tmp_path / "l.parquet", kind="layers", provenance={})
    with pytest.raises(PerfmlError, match="only merged layers are known"):
        read_input(f"{tmp_path / 'l.parquet'}@0")


def test_a_report_without_durations_names_the_section_that_has_them(report, tmp_path):
    import csv

    rows = list(csv.reader(report.read_text().splitlines()))
    kept = [place for place, name in enumerate(rows[0]) if "gpu__time_duration" not in name]
    path = tmp_path / "x.csv"
    with path.open("w", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows(
            [row[place] for place in kept] for row in rows
        )
    with pytest.raises(InputError, match="--section SpeedOfLight"):
        _ = read_input(path).layers


def test_what_no_reader_knows_is_not_taken_for_a_published_csv(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("one,two\n1,2\n")
    with pytest.raises(InputError, match="not a profile in a format that perfml reads"):
        read_input(path)
    path.write_text("type,time\ncublas,2\n")
    with pytest.raises(InputError, match="not the published schema"):
        read_input(path)


def test_a_workload_that_only_a_file_s_name_tells_is_a_guess(report, tmp_path):
    assert read_input(report).without_guess().layers["workload"].unique().tolist() == ["unknown"]
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.csv").write_bytes(report.read_bytes())
    (run / "run.json").write_text(json.dumps({"run_id": "a", "workload": "vectors"}))
    assert read_input(run).without_guess().layers["workload"].unique().tolist() == ["vectors"]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("a", True), ("b", True), ("unknown", "unknown")),
        (("a", True), ("a", False), ("a", "a")),
        (("a", True), ("b", False), ("b", "b")),
        (("a", False), ("b", False), ("a", "b")),
    ],
)
def test_workloads_differ_only_where_more_than_file_names_says_so(first, second, expected):
    def side(name, guessed):
        source = {"workload_from": "file name"} if guessed else {}
        return Input(name, make_kernels([{"workload": name}]), None, {"sources": [source]})

    pair = Inputs(Selection(("x", "y")), (side(*first), side(*second))).comparable
    assert tuple(each.launches["workload"].iloc[0] for each in pair.tables) == expected


def test_a_profile_of_what_makes_inputs_says_so():
    note = setup_note([RANDOM] * 13 + ["gemm"])
    assert note.startswith("13 of these 14 launches are PyTorch's random-number kernel")
    assert "(gemm)" in note
    assert setup_note([RANDOM] * 14).endswith("the one you want was probably not profiled")
    assert setup_note([RANDOM, "gemm", "relu"]) is None


@tried_with(
    st.lists(
        st.tuples(
            st.sampled_from(["gemm<1>(int)", "gemm<2>(int)", "ns::relu(float*)"]),
            st.sampled_from(["(1, 1, 1)", "(2, 1, 1)"]),
            st.floats(0.5, 9.0),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_every_launch_is_a_repeat_of_its_kernel_and_shape(launches):
    kernels = make_kernels(
        [
            {"layer": pd.NA, "kernel": kernel, "grid": grid, "time_us": time}
            for kernel, grid, time in launches
        ]
    )
    found = kernels_as_layers(kernels)
    assert found["time_us"].tolist() == kernels["time_us"].tolist()
    assert not found[["layer", "iteration"]].duplicated().any()
    units = found.groupby("layer", sort=False)[["kernel", "grid"]].nunique()
    assert (units == 1).all(axis=None)
    assert found["layer"].nunique() == len({(kernel, grid) for kernel, grid, _ in launches})


def test_launches_without_a_time_are_left_out_where_each_kernel_is_a_layer(tmp_path):
    rows = [{"kernel": name, "time_us": time} for name, time in (("a", 2.0), ("b", float("nan")))]
    paths = [table(tmp_path, rows), table(tmp_path, rows[:1], "other.parquet")]
    inputs = read_inputs(Selection(tuple(map(str, paths))))
    found, other = inputs.tables
    assert found.left_out == "k.parquet: 1 launch without a duration is left out."
    assert found.left_out in inputs.notes(in_layers=True)
    assert found.in_layers.layers["layer"].tolist() == ["a"]
    assert other.left_out == ""
    sides = load_sides(inputs)
    for side in (sides.baseline, sides.target):
        assert side.layers["layer"].tolist() == ["a"]
    assert found.left_out in sides.alignment.said


def test_python_takes_a_selection_where_it_takes_a_name(report):
    chosen = Selection((str(report),), kernel="scale", skip=1)
    assert perfml.read(chosen)["kernel"].nunique() == 1
    assert set(perfml.load_dataset(chosen)["layer"]) == {"update/scale"}
    assert set(perfml.advise(chosen).table["layer"]) == {"update/scale"}
    patterns = Selection((str(report),), layers=("up.*",))
    assert set(perfml.load_dataset(patterns)["layer"]) == {"update", "update/scale"}
    with pytest.raises(PerfmlError, match="a selection of one input"):
        perfml.read(Selection(("a.csv", "b.csv")))


def test_a_file_that_is_named_twice_is_read_once_and_said_once(report, monkeypatch):
    from perfml.datasets import opening

    opened = []
    monkeypatch.setattr(
        opening,
        "_opened",
        lambda name, given, real=opening._opened: opened.append(name) or real(name, given),
    )
    inputs = read_inputs(Selection((f"{report}@2", f"{report}@3")))
    assert opened == [str(report)]
    assert [len(each.launches) for each in inputs.tables] == [1, 1]
    assert inputs.tables[1].warnings == ()
    assert not [note for note in inputs.notes() if "both sides" in note]
    twice = read_inputs(Selection((str(report), str(report))))
    assert "both sides are vectors.csv: nothing can differ" in twice.notes()


@pytest.mark.parametrize(
    ("names", "more", "called"),
    [
        (("runs/a.ncu-rep", "runs/b.csv.xz"), {}, ["a", "b"]),
        (("a.csv@2", "a.csv@3"), {}, ["a@2", "a@3"]),
        (("a.csv", "a.ncu-rep"), {}, ["a.csv", "a.ncu-rep"]),
        (("old/a.csv", "new/a.csv"), {}, ["old/a.csv", "new/a.csv"]),
        (("a.csv",), {"kernel": "f", "kernel_b": "g"}, ["a f", "a g"]),
        (("runs/xq-67275ce697", "runs/xq-0123456789"), {}, ["xq-67275ce697", "xq-0123456789"]),
        (("before/", "after/"), {}, ["before", "after"]),
        ((".", "after/"), {}, [Path.cwd().name, "after"]),
        (("a.csv", "a.csv"), {}, ["a", "a (again)"]),
    ],
)
def test_sides_are_called_what_the_user_called_them(names, more, called):
    assert Inputs(Selection(names, **more), ()).names == called


def test_launches_of_another_table_stand_behind_layers(report, tmp_path):
    found = ingest([report])
    layers = merge(found.frame)
    write_table(found.frame, tmp_path / "k.parquet", kind="kernels", provenance={})
    write_table(layers, tmp_path / "l.parquet", kind="layers", provenance={})
    where = ("layer=update/scale",)
    selection = Selection((str(tmp_path / "l.parquet"),), where, launches=tmp_path / "k.parquet")
    chosen = read_inputs(selection).first
    assert set(chosen.layers["layer"]) == set(chosen.kernels["layer"]) == {"update/scale"}
    with pytest.raises(PerfmlError, match="two inputs bring their own launches"):
        read_inputs(replace(selection, names=selection.names * 2))


def test_a_layer_map_names_layers_of_a_profile_and_of_no_table(recorded, tmp_path):
    path = tmp_path / "map.toml"
    path.write_text('[[layer]]\nname = "all"\nkernels = ["*"]\n')
    trace = recorded / "nvprof" / "trace.csv"
    assert set(read_input(trace, layer_map=path).layers["layer"]) == {"all"}
    made = table(tmp_path, [{"kernel": "a"}])
    with pytest.raises(InputError, match="a layer map gives layers to profiles"):
        read_input(made, layer_map=path)


def test_layers_are_meant_by_name_before_pattern():
    known = ["conv.1", "conv.10", "convX1", "pool"]
    assert layer_names(known, ["conv.1"]) == ["conv.1"]
    assert layer_names(known, ["conv.*", "pool"]) == ["conv.1", "conv.10", "convX1", "pool"]
    for wrong in ("conv", "(pool"):
        with pytest.raises(PerfmlError, match="no layer is called"):
            layer_names(known, [wrong])


def test_launches_without_ranges_meet_merged_layers_by_kernel(tmp_path):
    path = table(tmp_path, [{"kernel": name, "time_us": 2.0} for name in ("a", "b")])
    write_table(read_input(path).layers, tmp_path / "l.parquet", kind="layers", provenance={})
    sides = load_sides(read_inputs(Selection((str(path), str(tmp_path / "l.parquet")))))
    assert sides.alignment is None
    assert sides.baseline.names == sides.target.names == {"a", "b"}
