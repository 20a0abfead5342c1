"""What stands in for metrics is said in one line, whatever the number of files."""

import csv
import lzma

import pytest

from tests.support.command_line import run
from tests.support.paths import DATA

LEFT_OUT = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
STANDS_IN = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"


@pytest.fixture
def files(tmp_path):
    """Write two exports of a few launches without the counter of DRAM utilization."""
    text = lzma.decompress((DATA / "ncu/both_forms.csv.xz").read_bytes()).decode()
    rows = list(csv.reader(text.splitlines()))
    keep = [place for place, name in enumerate(rows[0]) if name != LEFT_OUT]
    pages = [tmp_path / f"net{number}.csv" for number in range(2)]
    for number, page in enumerate(pages):
        with page.open("w", newline="") as stream:
            writer = csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n")
            writer.writerows([row[place] for place in keep] for row in rows[: 4 + number])
    return pages


def test_it_is_one_line_over_all_files_and_v_lists_the_formulas(files, tmp_path):
    def said(*more: str, out: str) -> list[str]:
        words = ["ingest", *files, *more, "--out", tmp_path / out]
        done = run(*words)
        assert done.exit_code == 0, done.output
        return [line for line in done.stderr.splitlines() if "dram_utilization" in line]

    (line,) = said(out="first.parquet")
    assert line.startswith("warning: 1 of the published study's 19 metrics")
    assert STANDS_IN not in line
    warning, formula = said("-v", out="second.parquet")
    assert warning == line
    assert formula == f"dram_utilization is taken as {STANDS_IN}"
