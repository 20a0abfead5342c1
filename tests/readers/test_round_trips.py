"""What an export was written from is what is read back, whatever the numbers and names."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.readers import ReadOptions, read
from tests.support.examples import examples
from tests.support.exports import (
    CPP,
    TIME_UNITS,
    distinct,
    expected,
    launches,
    ncu_raw,
    nvprof_metrics,
    nvprof_metrics_csv,
    nvprof_sqlite,
    nvprof_summary,
    nvprof_time,
    nvprof_trace,
    nvprof_trace_csv,
)

FEW = examples(40)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("exports") / "export"


def check_launches(frame, drawn):
    assert frame["kernel"].tolist() == [each.kernel for each in drawn]
    assert frame["grid"].tolist() == ["({}, {}, {})".format(*each.grid) for each in drawn]
    assert frame["block"].tolist() == ["({}, {}, {})".format(*each.block) for each in drawn]


@given(launches(), st.sampled_from(["ns", "us", "ms"]), st.booleans())
@FEW
def test_ncus_raw_page(path, drawn, unit, german):
    path.write_text(ncu_raw(drawn, unit, german=german), encoding="utf-8")
    frame = read(path, ReadOptions(locale="de" if german else "en")).frame
    check_launches(frame, drawn)
    times = [each.nanoseconds / 1e3 for each in drawn]
    np.testing.assert_allclose(frame["time_us"], times, rtol=1e-12)
    occupancy = [each.hundredths / 10_000 for each in drawn]
    np.testing.assert_allclose(frame["achieved_occupancy"], occupancy, rtol=1e-12)
    np.testing.assert_array_equal(frame["threads"], [float(each.registers) for each in drawn])
    shared = [float(each.shared_bytes) for each in drawn]
    np.testing.assert_allclose(frame["dram_read_bytes"], shared, rtol=1e-12)
    layers = [each.layer for each in drawn]
    assert [name.split("#")[0] for name in frame["layer"].fillna("")] == layers


@given(launches())
@FEW
def test_nvprofs_trace(path, drawn):
    path.write_text(nvprof_trace(drawn), encoding="utf-8")
    frame = read(path).frame
    check_launches(frame, drawn)
    times = [nvprof_time(each.nanoseconds)[1] for each in drawn]
    np.testing.assert_allclose(frame["time_us"], times, rtol=1e-12)
    exact = [each.nanoseconds / 1e3 for each in drawn]
    np.testing.assert_allclose(frame["time_us"], exact, rtol=1e-4)
    assert frame["registers_per_thread"].tolist() == [each.registers for each in drawn]
    assert frame["shared_memory_per_block"].tolist() == [each.shared_bytes for each in drawn]


@given(launches(), st.sampled_from(sorted(TIME_UNITS)))
@FEW
def test_nvprofs_trace_as_csv(path, drawn, unit):
    path.write_text(nvprof_trace_csv(drawn, unit), encoding="utf-8")
    frame = read(path).frame
    check_launches(frame, drawn)
    np.testing.assert_allclose(
        frame["time_us"], [each.nanoseconds / 1e3 for each in drawn], rtol=1e-12
    )
    assert frame["registers_per_thread"].tolist() == [each.registers for each in drawn]
    assert frame["shared_memory_per_block"].tolist() == [each.shared_bytes for each in drawn]


@given(launches().map(distinct))
@FEW
def test_nvprofs_summary(path, drawn):
    path.write_text(nvprof_summary(drawn), encoding="utf-8")
    frame = read(path).frame
    assert frame["kernel"].tolist() == [each.kernel for each in drawn]
    assert frame["launches"].tolist() == [each.launches for each in drawn]
    times = [nvprof_time(each.nanoseconds)[1] for each in drawn]
    np.testing.assert_allclose(frame["time_us"], times, rtol=1e-12)


@pytest.mark.parametrize("write", [nvprof_metrics, nvprof_metrics_csv])
@given(drawn=launches().map(distinct))
@FEW
def test_nvprofs_metrics(path, write, drawn):
    path.write_text(write(drawn), encoding="utf-8")
    frame = read(path).frame
    assert frame["kernel"].tolist() == [each.kernel for each in drawn]
    assert frame["launches"].tolist() == [each.launches for each in drawn]
    assert frame["time_us"].isna().all()
    for name, values in expected(drawn).items():
        np.testing.assert_allclose(frame[name], values, rtol=1e-12, err_msg=name)


@given(launches(CPP))
@examples(15)
def test_nvprofs_database(path, drawn):
    path.unlink(missing_ok=True)
    nvprof_sqlite(drawn, path)
    frame = read(path).frame
    check_launches(frame, drawn)
    times = [each.nanoseconds / 1e3 for each in drawn]
    np.testing.assert_allclose(frame["time_us"], times, rtol=1e-12)
    assert frame["registers_per_thread"].tolist() == [each.registers for each in drawn]
    layers = [each.layer for each in drawn]
    assert [name.split("#")[0] for name in frame["layer"].fillna("")] == layers
    assert set(frame["iteration"]) == {0}
