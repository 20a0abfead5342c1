"""Layout decides nothing: no label is cut apart, no finding sorted, no threshold asked there."""

import ast

import pytest

from tests.support.paths import ROOT

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
    "cause_in_words",
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


def test_every_exception_is_still_needed():
    for name, function in EXCEPTIONS:
        (path,) = (each for each in LAID_OUT if each.name == name)
        tree = ast.parse(path.read_text("utf-8"))
        names = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
        assert function in ("*", *names)
