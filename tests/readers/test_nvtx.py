"""Range names out of the cells of an ncu export."""

from hypothesis import given
from hypothesis import strategies as st

from perfml.readers.ncu.nvtx import _SEPARATOR, _name
from tests.support.ncu_pages import push_pop

ENTRY = st.text(alphabet='ab:"_ 0', max_size=6).map(lambda name: f"d:{name}" + ":none" * 6)


def entry_by_entry(cell):
    first, last = cell.find('"'), cell.rfind('"')
    if first < 0 or last <= first:
        return ()
    return tuple(_name(entry) for entry in _SEPARATOR.split(cell[first + 1 : last]))


@given(st.lists(ENTRY, max_size=4), st.sampled_from(['"  "', '" "', '"   "']))
def test_shared_parts_of_cells_do_not_change_what_is_read(entries, between):
    cell = f'7  "{between.join(entries)}" ' if entries else ""
    assert push_pop(cell) == entry_by_entry(cell)


@given(st.text(alphabet='a:" ', max_size=14))
def test_damaged_cells_are_read_the_same_way(cell):
    assert push_pop(cell) == entry_by_entry(cell)
