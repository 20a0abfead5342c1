"""JAX's Chrome trace: what XLA says of each kernel, as recorded on an H100."""

import gzip
import json

import pytest

from perfml.account.account import Account
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


def test_kernels_of_tensorflow_without_operations_of_xla_are_those_of_streams(tmp_path):
    def event(name, stream, start):
        return {"ph": "X", "pid": 1, "tid": stream, "ts": start, "dur": 5, "name": name, "args": {}}

    def named(kind, name, **place):
        return {"ph": "M", "name": kind, "args": {"name": name}, **place}

    events = [
        named("process_name", "/host:CPU", pid=701),
        named("process_name", "/device:GPU:0", pid=1),
        named("thread_name", "Stream #13(Compute)", pid=1, tid=2),
        named("thread_name", "Stream #14(MemcpyH2D)", pid=1, tid=3),
        *(event("sgemm", 2, start) for start in (0, 10)),
        event("MemcpyH2D", 3, 0),
    ]
    path = tmp_path / "a.trace.json"
    path.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}))
    kernels = read(path)
    assert kernels.frame["kernel"].tolist() == ["sgemm", "sgemm"]
    assert kernels.frame["stream"].tolist() == [13, 13]


def field(number, content):
    """Return a field of a protocol buffer: a number below 128, text, or other fields."""
    if isinstance(content, int):
        return bytes([number << 3, content])
    data = content.encode() if isinstance(content, str) else b"".join(content)
    return bytes([number << 3 | 2, len(data)]) + data


def plane():
    """Return two kernels and a copy of 50 ns each, without operations of XLA."""

    def event(kind, start):
        return field(4, [field(1, kind), field(2, start), b"\x18\xd0\x86\x03"])

    names = [
        field(4, [field(1, n), field(2, [field(1, n), field(2, name)])])
        for n, name in ((1, "sgemm"), (2, "MemcpyH2D"))
    ]
    computing = field(3, [field(2, "Stream #13(Compute)"), field(3, 1), event(1, 0)])
    later = field(3, [field(2, "Stream #13(Compute)"), field(3, 101), event(1, 0)])
    copying = field(3, [field(2, "Stream #14(MemcpyH2D)"), field(3, 61), event(2, 0)])
    device = [field(2, "/device:GPU:0"), *names, computing, later, copying]
    parts = b"".join(device)
    size = bytes([len(parts) & 0x7F | 0x80, len(parts) >> 7])
    return field(1, [field(2, "/host:CPU")]) + b"\x0a" + size + parts


def test_an_xplane_without_operations_of_xla_has_kernels_copies_and_a_clock(tmp_path):
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(plane())
    kernels = read(path)
    assert kernels.frame["kernel"].tolist() == ["sgemm", "sgemm"]
    assert kernels.frame["time_us"].tolist() == pytest.approx([0.05, 0.05])
    assert kernels.frame["stream"].tolist() == [13, 13]
    own = Account.from_dict(kernels.provenance["step"]).devices[0].recorded
    told = (own.wall_us, own.computing_us, own.copying_us, own.both_us)
    assert told == pytest.approx((0.15, 0.09, 0.04, 0.01))


def test_an_xplane_that_is_cut_or_of_the_host_alone_is_an_error(tmp_path):
    path = tmp_path / "a.xplane.pb"
    for kept in range(40, len(plane()), 7):
        path.write_bytes(plane()[:kept])
        with pytest.raises(InputError, match="cut or damaged"):
            read(path)
    path.write_bytes(field(1, [field(2, "/host:CPU")]))
    with pytest.raises(InputError, match=r"no kernels of a GPU.*/host:CPU"):
        read(path)
