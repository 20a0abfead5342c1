"""JAX's Chrome trace: what XLA says of each kernel, as recorded on an H100."""

import gzip
import json

import pandas as pd
import pytest

from perfml.errors import InputError
from perfml.readers import read
from tests.support.paths import DATA

RECORDED = DATA / "deployed" / "jax.trace.json.gz"


def kernels_of(document):
    return sorted(
        (e for e in document["traceEvents"] if "hlo_op" in e.get("args", {})),
        key=lambda event: event["ts"],
    )


def test_kernels_are_those_of_the_device_with_their_operations_as_layers():
    with gzip.open(RECORDED) as file:
        events = kernels_of(json.load(file))
    frame = read(RECORDED).frame
    assert len(frame) == len(events) == 12
    assert frame["kernel"].tolist() == [event["name"] for event in events]
    assert frame["time_us"].tolist() == pytest.approx([event["dur"] for event in events])
    # three steps that call one jitted function twice: a product, then what is fused behind it
    assert frame["layer"].tolist() == ["jit(layer)/dot_general", "jit(layer)"] * 6
    assert frame["iteration"].tolist() == [call for call in range(6) for _ in range(2)]
    first = frame.iloc[0]
    assert (first["grid"], first["block"]) == ("(128, 1, 1)", "(64, 1, 1)")
    assert (first["registers_per_thread"], first["shared_memory_per_block"]) == (184, 49152)
    assert first["stream"] == 14


def test_idle_time_before_a_kernel_is_from_the_end_of_the_one_before():
    with gzip.open(RECORDED) as file:
        before, after = kernels_of(json.load(file))[:2]
    gap = after["ts"] - before["ts"] - before["dur"]
    assert read(RECORDED).frame["gap_us"].iloc[1] == pytest.approx(gap, abs=1e-3)


def test_a_trace_of_the_host_alone_says_how_to_record(tmp_path):
    with gzip.open(RECORDED) as file:
        document = json.load(file)
    document["traceEvents"] = [e for e in document["traceEvents"] if e.get("pid") == 701]
    path = tmp_path / "host.trace.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"no kernels of a GPU.*/host:CPU"):
        read(path)


XPLANE = DATA / "deployed" / "jax.xplane.pb"


def test_the_xplane_beside_it_has_the_same_kernels():
    trace, plane = read(RECORDED), read(XPLANE)
    pd.testing.assert_frame_equal(plane.frame, trace.frame, atol=1e-3)
    assert plane.provenance["format"] == "xplane"


def test_the_names_of_an_xplane_are_its_own_not_those_of_operations():
    frame = read(DATA / "deployed" / "jax_cublas.xplane.pb").frame
    assert len(frame) == 18
    assert frame["kernel"].iloc[0].startswith("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize")
    assert frame["layer"].iloc[0] == "jit(mlp)/up/dot_general"
    assert frame["time_us"].iloc[0] == 47.328
    assert (frame["grid"].iloc[0], frame["block"].iloc[0]) == ("(64, 2, 1)", "(384, 1, 1)")


@pytest.mark.parametrize("kept", [200, 5_000, 15_000])
def test_an_xplane_that_is_cut_is_an_error(kept, tmp_path):
    path = tmp_path / "cut.xplane.pb"
    path.write_bytes(XPLANE.read_bytes()[:kept])
    with pytest.raises(InputError, match="the XPlane is cut or damaged"):
        read(path)


def test_an_xplane_of_the_host_alone_says_what_it_has(tmp_path):
    plane = b"\x12\x09/host:CPU"
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(b"\x0a" + bytes([len(plane)]) + plane)
    with pytest.raises(InputError, match=r"no kernels of a GPU.*/host:CPU"):
        read(path)


def field(number, content):
    """Return a field of a protocol buffer: a number below 128, text, or other fields."""
    if isinstance(content, int):
        return bytes([number << 3, content])
    data = content.encode() if isinstance(content, str) else b"".join(content)
    return bytes([number << 3 | 2, len(data)]) + data


def test_kernels_of_tensorflow_without_operations_of_xla_are_those_of_streams(tmp_path):
    def event(kind, start):
        return field(4, [field(1, kind), field(2, start), field(3, 50)])

    names = [
        field(4, [field(1, n), field(2, [field(1, n), field(2, name)])])
        for n, name in ((1, "sgemm"), (2, "MemcpyH2D"))
    ]
    computing = field(3, [field(2, "Stream #13(Compute)"), field(3, 1), event(1, 0), event(1, 100)])
    copying = field(3, [field(2, "Stream #14(MemcpyH2D)"), field(3, 1), event(2, 0)])
    plane = [field(2, "/device:GPU:0"), *names, computing, copying]
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(field(1, [field(2, "/host:CPU")]) + field(1, plane))
    kernels = read(path)
    assert kernels.frame["kernel"].tolist() == ["sgemm", "sgemm"]
    assert kernels.frame["stream"].tolist() == [13, 13]
