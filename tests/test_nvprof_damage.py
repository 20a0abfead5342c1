"""Damaged output of nvprof, text and CSV: a table or an error of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfml.errors import PerfmlError
from perfml.readers import nvprof_csv, nvprof_text
from perfml.readers._source import Source

DATA = Path(__file__).parent / "data" / "nvprof"
READERS = {nvprof_text: "*.txt", nvprof_csv: "*.csv"}


@st.composite
def damaged(draw: st.DrawFn, pattern: str) -> bytes:
    content = bytearray(draw(st.sampled_from(sorted(DATA.glob(pattern)))).read_bytes())
    if draw(st.booleans()):
        del content[draw(st.integers(1, len(content) - 1)) :]
    for _ in range(draw(st.integers(0, 4))):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.NAME)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_damage_gives_a_table_or_an_error_of_ours(tmp_path_factory, reader, data):
    path = tmp_path_factory.getbasetemp() / f"damaged-{reader.NAME}"
    path.write_bytes(data.draw(damaged(READERS[reader])))
    lines = 0
    try:
        rows = len(reader.read(Source(path)).frame)
    except PerfmlError as error:
        lines = len(str(error).splitlines())
    assert (rows > 0) if not lines else (lines <= 2)
