"""A profile that is shared tells nothing about whose machine it was measured on."""

import csv
import json
import lzma
import shutil

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.datasets.redact import Redactor, redact_run, redact_table
from perfml.errors import InputError, PerfmlError
from perfml.ingest.profiles import ingest
from perfml.tables import Table, read_table, write_table
from tests.support.command_line import run
from tests.support.tables import make_kernels

USER, HOST, PROJECT = "melanie.q", "kestrel42", "Halcyon"
SECRETS = {
    "user": USER,
    "host": HOST,
    "domain": f"{HOST}.corp.example",
    "home": f"/home/{USER}/src",
    "token": "ghp_x9y8z7secret",
    "folder": "topsecretlab",
    "address": "10.31.7.222",
    "gpu": "GPU-1a2b3c4d-aaaa-bbbb-cccc-1234567890ab",
    "surname": "Okonkwo",
}


def provenance():
    return {
        "created": "2026-11-21T11:09:29+00:00",
        "hostname": f"{HOST}.corp.example",
        "user": USER,
        "cwd": f"/home/{USER}/src/topsecretlab",
        "environ": {"TOKEN": "ghp_x9y8z7secret", "HOME": f"/home/{USER}"},
        "environment": {
            "driver": "580.159.4.1",
            "gpu": "NVIDIA H200",
            "PATH": f"/home/{USER}/src/bin",
            "platform": f"Linux-6.1-{HOST}",
        },
        "sources": [
            {
                "path": "metrics.csv",
                "sha256": "ab" * 32,
                "format": "ncu-csv",
                "tool": "ncu",
                "tool_version": "2025.3.1.0",
                "process": f"/home/{USER}/src/topsecretlab/app",
                "command": f"/opt/topsecretlab/app --token ghp_x9y8z7secret {USER}@{HOST}",
                "undefined": {"gld_efficiency": 3},
            }
        ],
        "runs": [
            {
                "run_id": f"train_{USER}-0011aabbcc",
                "workload": "app",
                "commands": [["ncu", f"/home/{USER}/src/app"]],
                "launcher": ["srun", "-w", HOST],
                "layers": [{"layer": "conv_01", "flops": 5}],
                "timing": {"source": "cupti-activity", "command": ["/opt/topsecretlab/app"]},
            }
        ],
        "warnings": [
            f"on {HOST} ({USER}@10.31.7.222): TOKEN=ghp_x9y8z7secret was seen",
            r"C:\Users\Ada Okonkwo\x\app.exe was left out",
            "device GPU-1a2b3c4d-aaaa-bbbb-cccc-1234567890ab is slow",
        ],
    }


def planted():
    kernels = make_kernels(
        [
            {"run_id": f"train_{USER}-0011aabbcc", "kernel": "gemm", "gld_efficiency": 0.5},
            {"layer": f"/home/{USER}/src/topsecretlab/block_1", "gld_efficiency": 0.25},
            {"layer": f"/scratch/{HOST}/block_1"},
            {"kernel": f"void k<(anonymous)::{HOST}>(float*)", "time_us": 2.5},
        ]
    )
    kernels["Host Name"] = HOST
    kernels["note"] = f"see /home/{USER}/src/notes.txt"
    return Table(kernels, "kernels", provenance())


def everything_in(path):
    """Return a Parquet file's bytes, as it lies and with every column uncompressed."""
    table = pq.read_table(path)
    plain = path.with_suffix(".plain")
    pq.write_table(table, plain, compression="none", use_dictionary=False)
    return (path.read_bytes() + plain.read_bytes()).lower()


def assert_clean(data):
    found = {name for name, secret in SECRETS.items() if secret.lower().encode() in data}
    assert not found


def test_the_planted_table_holds_every_secret_before_it_is_redacted(tmp_path):
    table = planted()
    write_table(table.frame, tmp_path / "t.parquet", kind="kernels", provenance=table.provenance)
    data = everything_in(tmp_path / "t.parquet").replace(b"\\\\", b"\\")
    assert {name for name, secret in SECRETS.items() if secret.lower().encode() in data} == set(
        SECRETS
    )


def test_no_planted_secret_is_left_in_the_bytes_of_a_redacted_table(tmp_path):
    table = planted()
    write_table(table.frame, tmp_path / "t.parquet", kind="kernels", provenance=table.provenance)
    out = tmp_path / "shared.parquet"
    command = ["inspect", str(tmp_path / "t.parquet"), "--redact", "--out", str(out)]
    done = run(*command)
    assert done.exit_code == 0, done.output
    assert_clean(everything_in(out))
    assert_clean(done.output.lower().encode())


def test_metadata_of_a_foreign_table_does_not_travel(tmp_path):
    table = planted()
    write_table(table.frame, tmp_path / "t.parquet", kind="kernels", provenance={})
    arrow = pq.read_table(tmp_path / "t.parquet")
    fields = [each.with_metadata({b"origin": HOST.encode()}) for each in arrow.schema]
    metadata = {**arrow.schema.metadata, b"writer": f"/home/{USER}/src".encode()}
    pq.write_table(
        arrow.cast(pa.schema(fields, metadata=metadata)).replace_schema_metadata(metadata),
        tmp_path / "t.parquet",
    )
    out = tmp_path / "shared.parquet"
    command = ["inspect", str(tmp_path / "t.parquet"), "--redact", "--hide", HOST]
    assert run(*command, "--out", str(out)).exit_code == 0
    assert_clean(everything_in(out))


def test_what_the_analysis_needs_is_kept():
    table, dropped = redact_table(planted())
    frame = table.frame
    assert frame["gld_efficiency"].tolist()[:2] == [0.5, 0.25]
    assert frame["time_us"].tolist() == [1.0, 1.0, 1.0, 2.5]
    assert frame["device"].unique().tolist() == ["GPU"]
    assert frame["layer"].nunique() == 3, "layers that differed by their folder still differ"
    (source,) = table.provenance["sources"]
    assert (source["sha256"], source["tool_version"]) == ("ab" * 32, "2025.3.1.0")
    assert table.provenance["environment"] == {"driver": "580.159.4.1", "gpu": "NVIDIA H200"}
    assert table.provenance["runs"][0]["layers"] == [{"layer": "conv_01", "flops": 5}]
    assert {"command", "commands", "cwd", "environ", "launcher", "process"} <= set(dropped)


def test_run_ids_of_the_table_and_of_the_provenance_still_match():
    table, _ = redact_table(planted())
    assert table.provenance["runs"][0]["run_id"] in set(table.frame["run_id"])


def test_a_real_recording_only_loses_what_tells_of_the_machine(root):
    table = read_table(root / "datasets" / "h200-yolov4-tiny" / "kernels.parquet")
    shared, _ = redact_table(table)
    text = ["kernel", "layer", "device", "backend", "workload"]
    pd.testing.assert_frame_equal(shared.frame[text], table.frame[text])
    assert "commands" in table.provenance["runs"][0]
    assert "commands" not in shared.provenance["runs"][0]
    assert shared.provenance["runs"][0]["layers"] == table.provenance["runs"][0]["layers"]


def test_a_key_that_perfml_does_not_know_is_left_out():
    table = Table(make_kernels([{}]), "kernels", {"telemetry": "x", "driver": "1"})
    shared, dropped = redact_table(table)
    assert shared.provenance == {"driver": "1", "redacted": True}
    assert dropped == ("telemetry",)


def test_the_name_of_this_machine_and_user_go(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "ospreybox.lan")
    monkeypatch.setattr("getpass.getuser", lambda: "juniper")
    table = Table(make_kernels([{"layer": "juniper_on_ospreybox"}]), "kernels", {})
    shared, _ = redact_table(table)
    assert shared.frame["layer"].tolist() == ["<user>_on_<host>"]


def test_a_user_without_a_name_is_no_error(monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("getpass.getuser", nobody)
    redact_table(Table(make_kernels([{}]), "kernels", {}))


def test_a_host_called_like_the_gpu_does_not_hide_the_gpu(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "h200")
    table = Table(make_kernels([{"device": "NVIDIA H200"}]), "kernels", {})
    assert redact_table(table)[0].frame["device"].tolist() == ["NVIDIA H200"]


def test_further_words_are_hidden_and_short_ones_refused():
    table = Table(make_kernels([{"layer": "Halcyon_enc"}]), "kernels", {"workload": "halcyon"})
    shared, _ = redact_table(table, hide=[PROJECT])
    assert shared.frame["layer"].tolist() == ["<hidden>_enc"]
    assert shared.provenance["workload"] == "<hidden>"
    with pytest.raises(PerfmlError, match="at least 3 letters"):
        redact_table(table, hide=["ab"])


def test_kernel_and_layer_names_without_secrets_stay_as_they_are():
    strike = Redactor({"melanie": "<user>"})
    for text in (
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x64_nn_align4>(Params)",
        "model/block_1/conv#2",
        "void at::native::im2col_kernel<float>(long, float const*, int)",
        "triton_poi_fused_add/leaky",
        "a / b",
    ):
        assert strike.text(text) == text


@given(
    user=st.from_regex(r"[a-z]{5,10}[0-9]", fullmatch=True),
    folder=st.from_regex(r"[A-Za-z][\w-]{2,9}", fullmatch=True),
    prefix=st.sampled_from(["", "cannot open ", "file://", "see: "]),
)
def test_no_folder_and_no_user_of_any_home_path_survives(user, folder, prefix):
    text = f"{prefix}/home/{user}/{folder}/x.cu"
    table = Table(make_kernels([{"layer": f"by_{user}"}]), "kernels", {"warnings": [text]})
    shared, _ = redact_table(table)
    assert user not in json.dumps(shared.provenance)
    assert f"/{folder}/" not in json.dumps(shared.provenance)
    assert user not in shared.frame["layer"].iloc[0]


@pytest.fixture
def run_folder(recorded, tmp_path):
    folder = tmp_path / f"app-{USER}-00"
    shutil.copytree(recorded / "fake_tools" / "yolov4-tiny", folder)
    manifest = json.loads((folder / "run.json").read_text())
    manifest |= {"run_id": f"app-{USER}-00", "commands": [[f"/home/{USER}/src/app"]]}
    manifest |= {"environ": provenance()["environ"], "host": HOST}
    (folder / "run.json").write_text(json.dumps(manifest))
    for name in ("log.txt", "metrics.ncu-rep"):
        (folder / name).write_bytes(f"{HOST} {USER} ghp_x9y8z7secret".encode())
    packed = folder / "metrics.csv.xz"
    rows = list(csv.reader(lzma.decompress(packed.read_bytes()).decode().splitlines()))
    packed.unlink()
    place = rows[0].index("Host Name")
    for row in rows[2:]:
        row[place], row[rows[0].index("Process Name")] = "10.31.7.222", f"{HOST}-app"
    with (folder / "metrics.csv").open("w", newline="") as file:
        file.write(f"==PROF== Connected to process 7 (/home/{USER}/src/app)\n")
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return folder


def test_a_redacted_run_folder_holds_no_secret_and_reads_the_same(run_folder, tmp_path):
    out = tmp_path / "shared"
    written, left = redact_run(run_folder, out)
    assert sorted(path.name for path in written) == ["metrics.csv", "run.json", "timing.csv"]
    assert left == ["log.txt", "metrics.ncu-rep"]
    for path in written:
        assert_clean(path.read_bytes().lower())
    before, after = ingest([run_folder]).frame, ingest([out]).frame
    pd.testing.assert_frame_equal(before.drop(columns="run_id"), after.drop(columns="run_id"))


def test_links_of_a_run_folder_stay_behind(run_folder, tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("iteration,layer,kernel,time_us\n0,secret,secret,1\n")
    (run_folder / "timing_2.csv").symlink_to(secret)
    written, left = redact_run(run_folder, tmp_path / "shared")
    assert "timing_2.csv" in left
    assert "timing_2.csv" not in {path.name for path in written}
    (run_folder / "run.json").rename(tmp_path / "run.json")
    (run_folder / "run.json").symlink_to(tmp_path / "run.json")
    with pytest.raises(InputError, match="a link leads to a file"):
        redact_run(run_folder, tmp_path / "again")


def test_a_run_measured_by_cupti_keeps_its_facts_copies_and_sizes(recorded, tmp_path):
    """Its table of counters begins with lines of facts, its times have rows of copies."""
    folder, out = tmp_path / "odd", tmp_path / "shared"
    shutil.copytree(recorded / "moves" / "odd", folder)
    packed = folder / "metrics.csv.xz"
    text = lzma.decompress(packed.read_bytes()).decode()
    packed.unlink()
    (folder / "metrics.csv").write_text(text.replace("# driver", f"# user: {USER}\n# driver"))
    redact_run(folder, out, hide=[USER])
    facts = (out / "metrics.csv").read_text()
    assert USER not in facts
    assert "# device: NVIDIA H200\n" in facts
    before, after = ingest([folder]).frame, ingest([out]).frame
    assert after["product_k"].max() == 4096
    assert after["filled_bytes"].sum() > 0
    pd.testing.assert_frame_equal(before.drop(columns="run_id"), after.drop(columns="run_id"))


def test_a_run_folder_needs_a_place_for_the_copy(run_folder):
    done = run("inspect", str(run_folder), "--redact")
    assert done.exit_code == 1
    assert "--out FOLDER" in done.output


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    done = run("inspect", str(tmp_path / "empty"), "--redact", "--out", str(tmp_path / "o"))
    assert done.exit_code == 1
    assert "no run.json" in done.output
    assert not (tmp_path / "o").exists()


def test_out_without_redact_is_refused(tmp_path):
    table = planted()
    write_table(table.frame, tmp_path / "t.parquet", kind="kernels", provenance={})
    done = run("inspect", str(tmp_path / "t.parquet"), "--out", "x.parquet")
    assert done.exit_code == 1
    assert "belong to --redact" in done.output
