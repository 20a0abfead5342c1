"""Layout decides nothing: no label is cut apart, no finding sorted, no threshold asked there."""

import ast
import re
from string import Formatter

import pytest

from perfml.util.files import read_rows
from tests.support.paths import ROOT
from tools.words import literals

LAID_OUT = (
    *sorted((ROOT / "perfml" / "report" / "sections").glob("*.py")),
    ROOT / "perfml" / "explain" / "brief.py",
    ROOT / "perfml" / "util" / "shown.py",
)
"""What pages, terminals, agents and notebooks show of results."""

CUTS = {
    *("removesuffix", "removeprefix", "partition", "rpartition", "split", "rsplit", "splitlines"),
    *("startswith", "endswith", "strip", "lstrip", "rstrip", "replace", "fullmatch", "findall"),
}
"""Methods of a text that ask what it says, or cut it apart."""
SORTS = {"sort", "sort_values", "nlargest", "nsmallest", "argsort", "sorted"}

EXCEPTIONS = {
    ("provenance.py", "of_runs"): "warnings begin with the id of their run, which is no label",
    ("provenance.py", "_parts"): "keys of provenance documents are read as words",
    ("predicted.py", "_evidence"): "evidence of several kernels names them: predict's own result",
    ("shown.py", "*"): "cuts a screen to its width",
}
"""Functions that may, and why."""


def called(node):
    """Return the name of the function or method that is called."""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def sorts(node):
    name = called(node)
    by = name in ("max", "min") and any(each.arg == "key" for each in node.keywords)
    return name in SORTS or by


def cuts(node):
    # replace of a dataclass is a function, not a method
    return isinstance(node.func, ast.Attribute) and node.func.attr in CUTS


def threshold(node):
    """Return whether a number is asked that decides; how long a text or list is, is layout."""
    sides = [node.left, *node.comparators]
    orders = any(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in node.ops)
    sizes = any(isinstance(side, ast.Call) and called(side) == "len" for side in sides)
    return orders and not sizes and any(map(decides, sides))


def decides(side):
    if isinstance(side, ast.Constant):
        return isinstance(side.value, float) and side.value not in (0.0, 1.0)
    # how many are shown is layout
    shown = isinstance(side, ast.Name) and "MOST" in side.id
    return isinstance(side, ast.Name) and side.id.isupper() and not shown


def offences(path):
    tree = ast.parse(path.read_text("utf-8"))
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
    for function in functions:
        if {(path.name, function.name), (path.name, "*")} & set(EXCEPTIONS):
            continue
        for node in ast.walk(function):
            calls = isinstance(node, ast.Call) and (cuts(node) or sorts(node))
            if calls or (isinstance(node, ast.Compare) and threshold(node)):
                yield f"{path.name}:{node.lineno} in {function.name}: {ast.unparse(node)[:80]}"


@pytest.mark.parametrize("path", LAID_OUT, ids=lambda path: path.name)
def test_what_lays_out_an_answer_cuts_no_label_sorts_no_finding_and_asks_no_threshold(path):
    assert list(offences(path)) == []


SECTIONS = ROOT / "perfml" / "report" / "sections"
REPORT = [*sorted((ROOT / "perfml" / "report").glob("*.py")), *sorted(SECTIONS.glob("*.py"))]
"""What reports compute of their tables, and lay out."""


@pytest.mark.parametrize("path", REPORT, ids=lambda path: path.name)
def test_a_report_decides_no_confidence(path):
    """How sure something is, and from where on it counts, is the answer's to say."""
    tree = ast.parse(path.read_text("utf-8"))
    asked = [node for node in ast.walk(tree) if isinstance(node, ast.Compare) and threshold(node)]
    words = {"high", "medium"}
    chosen = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.IfExp)
        and {getattr(node.body, "value", None), getattr(node.orelse, "value", None)} & words
    ]
    lines = [f"{path.name}:{node.lineno}: {ast.unparse(node)[:80]}" for node in (*asked, *chosen)]
    assert [line for line in lines if not line.startswith(SIZES)] == []


SIZES = ("labels.py", "kernels.py", "write.py", "tables.py", "verbs.py")
"""Where numbers are rounded, a page is kept small, rows of many are drawn, and rows of a roofline
far from every roof are counted."""


WORDED = {
    "factor_text",
    "filled",
    "levels_in_words",
    "sided_causes",
    "symptom_of",
}
"""What words a cause."""


def wording(text):
    """Return the functions that word a cause, of those that a source imports."""
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    return sorted(WORDED & {alias.name for node in imports for alias in node.names})


@pytest.mark.parametrize("path", sorted(SECTIONS.glob("*.py")), ids=lambda path: path.name)
def test_a_section_words_no_cause(path):
    """Causes, what they save and how sure they are stand in the points of an explanation."""
    assert wording(path.read_text("utf-8")) == []


ROOMS = [path for room in ("explain", "report") for path in (ROOT / "perfml" / room).rglob("*.py")]
SEVERAL = 4  # words from which on a text is a sentence: less is a head, a title or a label
PROSE = re.compile(r"[(\"']?[A-Za-z][a-z'-]*[.,;:)?]*")
SILENT = {"Annotated", "Document", "Option", "Argument", "row_of", "filterwarnings", "cannot_write"}
"""What describes types and options, and what is no text for people."""

LEFT = """
explain/advice/finding=5 explain/advice/findings=2 explain/advice/first_fix=1
explain/advice/hazards=3 explain/advice/measured=5 explain/advice/network=2
explain/advice/settings=1 explain/advice/table=3 explain/advice/unexplained=13 explain/brief=2
explain/compare=2 explain/compared=3 explain/confidence=1 explain/lines=16 explain/load=11
explain/results=2 explain/roofs/peaks=6 explain/speed_of_light=6 explain/times=1
explain/tree/causes=6 explain/tree/layer=2 explain/tree/one_side=3 report/build=2
report/figures/all_models=4 report/figures/comparisons=9 report/figures/metrics=5
report/figures/models=6 report/figures/registry=3 report/figures/times=3 report/kernels=2
report/labels=5 report/pairs=2 report/render/markdown=1 report/render/text=2
report/sections/advice=7 report/sections/clock=14 report/sections/comparison=24
report/sections/explanation=10 report/sections/layer_detail=22 report/sections/limits=12
report/sections/models=13 report/sections/predicted=12 report/sections/provenance=5
report/sections/times=11 report/tables=2 report/verbs=13 report/write=4
"""
"""Sentences that still stand in a module, with how many: these numbers may only shrink."""


def is_silent(node):
    """Return whether what stands in a node is no sentence of a result: an error, a type, help."""
    if isinstance(node, ast.Raise):
        return True
    if isinstance(node, ast.Assign):
        return getattr(node.targets[0], "id", "") == "msg"
    if isinstance(node, ast.Subscript):
        return getattr(node.value, "id", "") in SILENT
    return isinstance(node, ast.Call) and (called(node).endswith("Error") or called(node) in SILENT)


def sentences(path):
    """Return the sentences of a module outside docstrings, errors, types and help."""
    tree = ast.parse(path.read_text("utf-8"))
    silent = [node for node in ast.walk(tree) if is_silent(node)]
    lines = {line for node in silent for line in range(node.lineno, node.end_lineno + 1)}
    return [
        text
        for line, text in literals(path)
        if line not in lines and sum(map(bool, map(PROSE.fullmatch, text.split()))) >= SEVERAL
    ]


def test_a_sentence_stands_in_a_table():
    """Results hold ids and numbers; their words are rows of ``words.toml``."""
    rooms = ROOT / "perfml"
    names = {path.relative_to(rooms).with_suffix("").as_posix(): path for path in ROOMS}
    counts = {name: len(sentences(path)) for name, path in names.items()}
    assert sorted(f"{name}={n}" for name, n in counts.items() if n) == LEFT.split()


TABLES = {room: read_rows(f"perfml.{room}", "words.toml") for room in ("explain", "report")}


def rows_of_tables():
    """Yield every row of the tables by its name, and how often the program asks for it."""
    sources = [path.read_text("utf-8") for path in (ROOT / "perfml").rglob("*.py")]
    asked = re.findall(r'"((?:explain|report)\.[^"\n]+)"', "\n".join(sources))
    # a name that is made of parts asks for all rows that it may be
    forms = [re.sub(r"\\\{.*\\\}", r"\\w+", re.escape(name)) for name in asked]
    for room, tables in TABLES.items():
        for table, rows in tables.items():
            for row, text in rows.items():
                name = f"{room}.{table}.{row}"
                yield name, text, sum(bool(re.fullmatch(form, name)) for form in forms)


def test_every_row_of_the_tables_is_said_and_its_fields_have_names():
    for name, text, asked in rows_of_tables():
        assert asked, name
        assert text.count("[[") == text.count("]]"), name
        assert "" not in [field for _, field, _, _ in Formatter().parse(text)], name


def test_what_layout_must_not_do_is_seen(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text(
        "from perfml.util.words import factor_text\n"
        "def shown(found, label):\n"
        "    first = sorted(found)[0]\n"
        "    return first if label.startswith('work') and first.part >= 0.02 else None\n"
    )
    assert len(list(offences(bad))) == 3
    assert wording(bad.read_text("utf-8")) == ["factor_text"]


def test_a_sentence_outside_the_tables_is_seen(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text(
        '"""A docstring of five words."""\n'
        "def shown(us):\n"
        "    msg = 'there is nothing of it here'\n"
        "    if us < 0:\n"
        "        raise ValueError(msg)\n"
        "    return f'it takes {us} in all of them', 'two words', 'a.b c_d e-f'\n"
    )
    assert sentences(bad) == ["it takes x in all of them"]


def test_every_exception_is_still_needed():
    for name, function in EXCEPTIONS:
        (path,) = (each for each in LAID_OUT if each.name == name)
        tree = ast.parse(path.read_text("utf-8"))
        names = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
        assert function in ("*", *names)
