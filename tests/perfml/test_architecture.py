"""The house as docs/architecture.md draws it: no circle, no arrow upwards, private is private."""

import ast
import re

import pytest

from tests.support.architecture import (
    arrows,
    circle,
    floors,
    imports,
    modules,
    room_of,
    tree_of,
)
from tests.support.walk import stays


def test_every_room_stands_on_a_floor_and_every_floor_names_rooms_that_exist():
    rooms = {room_of(name) for name in modules()}
    assert rooms == set(floors()), "state the floor of a new room in docs/architecture.md"


def test_the_product_has_at_most_24_rooms_on_11_floors():
    assert len([room for room in floors() if room != "studies"]) <= 24
    assert len(set(floors().values())) <= 11


def test_a_room_uses_only_rooms_on_lower_floors():
    floor = floors()
    upwards = [
        f"{name} -> {used}"
        for name, used in arrows()
        if room_of(name) != room_of(used) and floor[room_of(name)] <= floor[room_of(used)]
    ]
    assert upwards == []


INSIDE_EXPLAIN = (
    ("confidence", "speed_of_light", "changed_metrics", "remedies"),
    ("compared", "roofs", "reports", "times", "model"),
    ("launches", "steps"),
    ("limits", "load"),
    ("tree",),
    ("advice", "words"),
    ("results", "details", "compare", "lines", "brief"),
)
"""Folders and modules of `perfml.explain`, the lowest floor first."""


def test_inside_explain_nothing_uses_a_floor_above():
    floor = {name: at for at, names in enumerate(INSIDE_EXPLAIN) for name in names}

    def floor_of(module):
        _, _, below = module.partition("perfml.explain.")
        return floor.get(below, floor.get(below.split(".")[0]))

    inside = [name for name in modules() if name.startswith("perfml.explain.")]
    assert [name for name in inside if floor_of(name) is None] == [], "state their floor"
    upwards = [
        f"{name} -> {used}"
        for name, used in arrows()
        if name in inside and used in inside and floor_of(name) < floor_of(used)
    ]
    assert upwards == []


_TIMES = re.compile(r"(_?(start|end|begin|began|over|until|since)s?|ts)(_(us|ns|ms))?")
"""What a time on the clock is called in the code."""


def _called_on(call):
    """Return whose method is called, or what a function is called of."""
    if isinstance(call.func, ast.Attribute):
        return call.func.value
    return call.args[0] if call.args else call.func


def differences_of_times(tree):
    """Return the lines that subtract a time from a time, whatever holds them."""

    def name(node):
        while isinstance(node, ast.Call | ast.Subscript):
            key = getattr(node, "slice", None)
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                return key.value
            node = node.value if isinstance(node, ast.Subscript) else _called_on(node)
        return getattr(node, "attr", getattr(node, "id", ""))

    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp | ast.AugAssign)
        and isinstance(node.op, ast.Sub)
        and all(
            _TIMES.fullmatch(name(side))
            for side in (
                (node.left, node.right)
                if isinstance(node, ast.BinOp)
                else (node.target, node.value)
            )
        )
    ]


def test_only_the_account_of_time_subtracts_two_times():
    others = {
        name: path
        for name, path in modules().items()
        if name.startswith("perfml.") and room_of(name) != "perfml.account"
    }
    unions = [f"{name} -> {used}" for name, used in arrows() if used == "perfml.account.intervals"]
    assert [arrow for arrow in unions if arrow.split(" ")[0] in others] == []
    found = {name: differences_of_times(tree_of(path)) for name, path in others.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_difference_of_two_times_is_found():
    for text in ("end - start", "span.end - span.start", 'rows["end"] - rows["start"].min()'):
        assert differences_of_times(ast.parse(f"length = {text}")) == [1]
    assert differences_of_times(ast.parse("end -= start")) == [1]
    assert differences_of_times(ast.parse("length = 1 - start + end_us - offset")) == []


def test_no_module_is_imported_by_what_it_imports():
    assert circle(imports()) == []


@pytest.mark.parametrize("room", floors())
def test_no_folder_of_a_room_is_used_by_what_it_uses(room):
    def place(module):
        return module.removeprefix(f"{room}.").split(".")[0]

    within = [name for name in modules() if name.startswith(f"{room}.")]
    graph = {place(name): set() for name in within}
    for name in within:
        used = {place(other) for other in imports()[name] if other in within}
        graph[place(name)] |= used - {place(name)}
    assert circle(graph) == []


def test_a_module_with_an_underscore_is_used_in_its_own_folder_only():
    trespassing = []
    for name, used in arrows():
        parts = used.split(".")
        private = [i for i, part in enumerate(parts) if part.startswith("_") and part[1] != "_"]
        folder = ".".join(parts[: private[0]]) if private else ""
        if not f"{name}.".startswith(f"{folder}." if folder else ""):
            trespassing.append(f"{name} -> {used}")
    assert trespassing == []


def test_product_code_does_not_use_studies_or_tests():
    uses = [
        f"{name} -> {used}"
        for name, used in arrows()
        if not name.startswith("studies") and used.startswith("studies")
    ]
    assert uses == []


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) in (
        ["a", "b", "c", "a"], ["b", "c", "a", "b"], ["c", "a", "b", "c"],
        ["a", "c", "b", "a"], ["c", "b", "a", "c"], ["b", "a", "c", "b"],
    )  # fmt: skip
    assert circle({"a": {"b"}, "b": {"c"}}) == []


def test_the_layers_of_a_report_enter_a_file_at_most_14_times():
    way = stays("perfml.report.build:build_report", "layers")
    assert {"perfml.report.conditions", "perfml.report.labels"} <= set(way)
    assert len(way) <= 14, way


def test_a_profile_enters_a_file_at_most_17_times_on_its_way_through_explain():
    way = stays("perfml.explain.compare:explain", "left")
    assert {"perfml.explain.times", "perfml.explain.compare"} <= set(way)
    assert len(way) <= 17, way


SOURCES = {
    "a": """
from b import half, whole
from c import Box

def first(table, other):
    mine = table[table.x == 1]
    part = half(mine)
    for row in part.rows:
        half(row)
    whole(other)
    kept = Box(other)
    _last(kept)
    return _last(value=part)

def _last(value):
    return value
""",
    "b": "def half(table):\n    return table.head(2)\n\ndef whole(table):\n    return table\n",
    "c": "class Box:\n    pass\n",
}


def test_a_parameter_is_followed_through_calls_parts_and_results_until_an_object_holds_it():
    assert stays("a:first", "table", SOURCES) == ["a", "b", "a"]
    assert stays("a:first", "other", SOURCES) == ["a", "b"]
    to_and_fro = SOURCES["a"].replace("    whole(other)", "    _last(mine)\n    whole(mine)")
    assert stays("a:first", "table", {**SOURCES, "a": to_and_fro}) == ["a", "b", "a", "b", "a"]


def test_there_is_one_way_from_a_name_to_tables():
    readers = {name for name, used in arrows() if used == "perfml.ingest.profiles"}
    outside = {name for name in readers if not name.startswith(("perfml.ingest", "studies"))}
    assert outside == {"perfml.datasets.opening", "perfml.cli.tables"}
