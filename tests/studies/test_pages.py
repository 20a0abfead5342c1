"""Every table that a study wrote on a page is what its program makes of what was measured."""

import re

import pytest

from benchmarks import counters_page, gate_page
from studies.atlas import page as atlas
from studies.attention import page as attention
from studies.page_tables import table_on
from studies.ranking import page as ranking
from studies.seeds import page as seeds

pytestmark = pytest.mark.page

PROGRAMS = (atlas, attention, counters_page, gate_page, ranking, seeds)
ON_CARD = ("times", "times_fp16", "ranges")
"""Tables of the attention ladder on the card of its recording."""
SLOW = {
    *("steps", "tensor_steps", "version_steps"),
}
"""What `perfml explain` or a search is asked for anew."""


def tables():
    """Yield the program, the page and the name of each table."""
    for program in PROGRAMS:
        what = program.__name__.removeprefix("studies.").removesuffix(".page")
        for name in program.TABLES:
            slow = name in SLOW and what != "seeds"
            yield pytest.param(
                program, name, marks=pytest.mark.slow if slow else (), id=f"{what}-{name}"
            )


def page_of(program, name):
    return attention.CARD if program is attention and name in ON_CARD else program.PAGE


@pytest.mark.parametrize(("program", "name"), list(tables()))
def test_a_table_is_what_was_measured(program, name):
    made = program.TABLES[name]().rstrip("\n")
    module = program.__name__
    assert table_on(page_of(program, name), name) == made, f"write it anew: python -m {module}"


def test_the_page_of_rankings_says_what_the_stored_grid_gives():
    text = ranking.PAGE.read_text(encoding="utf-8")
    behind = ranking.behind()
    average, most = sum(behind) / len(behind), max(behind)
    assert (
        f"over {len(behind)} rows perfml is {average:.1f} points behind, at most {most:.1f}" in text
    )
    missed = average > 5 or most > 10
    assert missed == ("The goal for power is missed" in text)
    above = next(line for line in text.splitlines() if line.startswith("Rows above 10:"))
    named = [float(points) for points in re.findall(r"\(([\d.]+) points\)", above)]
    assert sorted(named) == sorted(round(points, 1) for points in behind if points > 10)
    said, tables = ranking.alarms()
    assert f"{said} of {tables:,} tables without an effect ({100 * said / tables:.1f} %)" in text
