"""Damaged output of nvprof, text and CSV: a table or an error of ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.errors import PerfmlError
from perfml.readers.nvprof import csv_log as nvprof_csv
from perfml.readers.nvprof import text_log as nvprof_text
from perfml.readers.source import Source
from tests.support.examples import examples
from tests.support.paths import ROOT

DATA = ROOT / "tests" / "data" / "nvprof"
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
@examples(150)
def test_damage_gives_a_table_or_an_error_of_ours(tmp_path_factory, reader, data):
    path = tmp_path_factory.getbasetemp() / f"damaged-{reader.NAME}"
    path.write_bytes(data.draw(damaged(READERS[reader])))
    lines = 0
    try:
        rows = len(reader.read(Source(path)).frame)
    except PerfmlError as error:
        lines = len(str(error).splitlines())
    assert (rows > 0) if not lines else (lines <= 2)
