"""The tables of docs/explanation/truth.md.

``python -m studies.truth.measure --json > FILE`` measures. ``python -m studies.truth.page FILE``
keeps what the page needs in ``tests/data/truth/h200.json`` and writes the tables anew; without
FILE it only writes the tables. Those by set are of ``tests/data/truth/sets.json``, which
``python -m studies.truth.sets --strangers DIR --out tests/data/truth/sets.json`` measures, that of
estimates of ``fixes.json`` beside it (``studies.truth.fixes``), that of lines of ``lines.json``
(``studies.truth.lines``).
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter
from pathlib import Path

from perfml.tables import replacing
from studies.page_tables import markdown, table_on, write_tables
from studies.truth import strangers

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/explanation/truth.md"
DATA = ROOT / "datasets/h200-planted"
KEPT = ROOT / "tests/data/truth/h200.json"
SETS = ROOT / "tests/data/truth/sets.json"
FIRST = ROOT / "tests/data/truth/first_answers.json"
FIXES = ROOT / "tests/data/truth/fixes.json"
ERRORS = Path(__file__).with_name("errors_read.toml")
ADVISED = ROOT / "tests/data/truth/advised.json"
LINES = ROOT / "tests/data/truth/lines.json"
NCU, LESS = "Nsight Compute's rules", "Nsight Compute's, less remarks"
GINI = ("Gini, one tree", "Gini, forest")
NAMES = {
    "causes": "perfml, causes",
    "advice": "perfml, advice",
    "Shapley": "perfml, Shapley (gbr)",
    LESS: "Nsight Compute's rules, less remarks",
}
COMPARED = ("causes", "advice", "Shapley")
"""Methods that are asked why one side is slower than the other."""
QUESTIONS = dict.fromkeys(GINI, "which metrics tell a family's times apart") | dict.fromkeys(
    (NCU, LESS), "what slows down this launch"
)
"""What the other methods are asked. `perfml rank` is asked nothing: a family has four layers."""


def measured():
    return json.loads(KEPT.read_text(encoding="utf-8"))


def planted():
    return json.loads((DATA / "truth.json").read_text(encoding="utf-8"))["families"]


def keep(document):
    """Return what the page needs: without the thousand misses of methods that mostly miss."""
    missed = [
        each
        for each in document["missed"]
        if each["method"] == "causes"
        or (each["part"] == "base" and each["method"] in (*QUESTIONS, "advice"))
    ]
    shapley = Counter(
        each["named"][0] if each["named"] else "nothing"
        for each in document["missed"]
        if each["method"] == "Shapley" and each["part"] == "base"
    )
    kept = ("methods", "between", "mixtures", "kinds", "families", "goals", "left_out")
    return {
        **{name: document[name] for name in kept},
        "missed": missed,
        "shapley_first": dict(shapley.most_common(5)),
    }


def _share(scored, name):
    part = scored[name]
    return f"**{part['share']:.0%}** ({part['low']:.0%} to {part['high']:.0%})"


def scores(part):
    rows = [
        [NAMES[name], scored["cases"], _share(scored, "first"), _share(scored, "three")]
        for name, scored in measured()[part].items()
        if name in COMPARED
    ]
    return markdown(["method", "cases", "cause first", "in the first three"], rows)


def other_questions():
    """Scores of methods that are not asked about two sides, with what they are asked."""
    rows = []
    for name, question in QUESTIONS.items():
        alone, mixed = (measured()[part][name] for part in ("methods", "mixtures"))
        cells = [f"{_share(part, 'first')}, {_share(part, 'three')}" for part in (alone, mixed)]
        rows.append([NAMES.get(name, name), question, alone["cases"], cells[0]])
        rows[-1] += [mixed["cases"], cells[1]]
    header = ["method", "question", "cases", "first, in three", "mixtures", "first, in three"]
    return markdown(header, rows)


def families():
    """What was planted."""
    rows = []
    for each in planted():
        along = ", ".join(
            f"{name} {'rises' if way > 0 else 'falls'}" for name, way in each["along"].items()
        )
        cause = f"`{each['cause']['metrics'][0]}`"
        values = ", ".join(map(str, each["values"]))
        rows.append([f"`{each['family']}`", each["knob"], values, cause, along or "-"])
    header = ["family", "knob", "base and levels", "cause (first metric)", "moves along"]
    return markdown(header, rows)


def by_family():
    """Cases with the cause first, of all, for each family."""
    rows = []
    for family, found in measured()["families"].items():
        cells = [f"{found[name]['first']['hits']}/{found[name]['cases']}" for name in COMPARED]
        for name in QUESTIONS:
            first, three = (found[name][limit]["hits"] for limit in ("first", "three"))
            cells.append("first" if first else "in three" if three else "-")
        rows.append([f"`{family}`", *cells])
    short = ["Gini, tree", "Gini, forest", "ncu", "ncu, less remarks"]
    return markdown(["family", *COMPARED, *short], rows)


def others():
    """What else is named first where the cause is not: Gini, and Nsight Compute's rules."""
    missed = {
        (each["method"], each["case"].removeprefix("all of ").removesuffix("_s0")): each
        for each in measured()["missed"]
        if each["part"] == "base" and each["method"] in (*GINI, NCU, LESS)
    }
    rows = []
    for each in planted():
        cells = []
        for method in (*GINI, NCU, LESS):
            found = missed.get((method, each["family"]))
            if found is None:
                cells.append("the cause")
                continue
            place = f"cause at {found['place']}" if found["place"] else "cause not named"
            cells.append(f"{found['named'][0].removeprefix('ncu ')} ({place})")
        rows.append([f"`{each['family']}`", *cells])
    return markdown(["family", *GINI, "ncu", "ncu, less remarks"], rows)


def measured_sets():
    return json.loads(SETS.read_text(encoding="utf-8"))


def first_answers():
    """Return what was answered when families kept aside were asked for the first time."""
    return json.loads(FIRST.read_text(encoding="utf-8"))


def shown_sets():
    """Return all sets by what the page calls them: those kept aside as first answered, too."""
    first, shown = first_answers(), {}
    for name, scored in measured_sets().items():
        if name in first:
            shown[f"{name}, first answer"] = first[name]
            name = f"{name}, mended since"
        shown[name] = scored
    return shown


def _of(found, name):
    cases = found["cases"]
    return f"{found[name]} ({found[name] / cases:.0%})" if cases else "-"


SCORES = ("first", "three", "symptom", "wrong", "wrong_and_silent", "said")


def by_set():
    """perfml's causes on every set, with every set of metrics."""
    rows = [
        [name, columns, found["cases"], *(_of(found, score) for score in SCORES)]
        for name, scored in shown_sets().items()
        for columns, found in scored["columns"].items()
    ]
    header = ["set", "metrics", "cases", "cause first", "in three", "symptom first"]
    return markdown([*header, "wrong", "wrong and confident", "says that it lacks evidence"], rows)


def rivals():
    """All methods on the questions for which Nsight Compute's rules were recorded."""
    rows = [
        [name, method, found["cases"], *(_of(found, score) for score in ("first", "three"))]
        for name, scored in shown_sets().items()
        for method, found in scored["same_questions"].items()
    ]
    return markdown(["set", "method", "cases", "cause first", "in three"], rows)


def still_wrong():
    """What is not first with the default metrics, by family."""
    rows = []
    for name, scored in shown_sets().items():
        missed = Counter((each["family"], each["first"]) for each in scored["not_first"])
        for (family, first), cases in missed.items():
            places = {
                each["place"]
                for each in scored["not_first"]
                if (each["family"], each["first"]) == (family, first)
            }
            where = ", ".join(str(place or "not named") for place in sorted(places, key=str))
            rows.append([name, f"`{family}`", cases, f"`{first}`", where])
    return markdown(["set", "family", "cases", "first instead", "place of the cause"], rows)


def measured_fixes():
    return json.loads(FIXES.read_text(encoding="utf-8"))


def fixes():
    """Errors of estimates, beside those of Nsight Compute's on the rows that it has."""
    found = measured_fixes()
    rows = []
    for name, scored in {**found["groups"], **found["together"]}.items():
        cells = [name, scored["cases"], scored["cases"] - scored["given"]["cases"]]
        cells += [_errors(scored[which]["errors"]) for which in ("all", "given")]
        cells.append(_part_held(scored["coverage"]))
        for which in ("all", "given"):
            ruled = scored[which]
            cells.append(f"{ruled['ruled']}: {_errors(ruled['ours'])}; {_errors(ruled['rules'])}")
        rows.append([cell if ruled["ruled"] or at < 6 else "-" for at, cell in enumerate(cells)])
    header = ["fixes", "cases", "no number", "error of all", "error where a number is given"]
    header += ["in the 80 % interval", "all with a rule: perfml; Nsight Compute"]
    return markdown([*header, "of these, with a number: perfml; Nsight Compute"], rows)


def _errors(both):
    return "-" if both[0] is None else f"{both[0]:.0%}, {both[1]:.0%}"


def _part_held(share):
    return "-" if share is None else f"{share:.0%}"


def authors():
    """How often intervals hold on an author's kernels that were made of all others'."""
    rows = []
    for each in measured_fixes()["authors"]:
        width = each["width"]
        ends = f"{width['low']:.2f}, {width['high']:.2f}"
        shape = f"{width['untold']:g}, {width['saved']:g}"
        shares = [_part_held(each[name]) for name in ("share", "first")]
        rows.append([each["author"], each["rows"], each["families"], *shares])
        rows[-1] += [shape, f"{each['level']:.0%}", ends]
    header = [
        "author left out",
        "numbers",
        "families",
        "in the 80 % interval",
        "first answers in it",
    ]
    return markdown([*header, "untold, saved", "level", "ends"], rows)


def unseen():
    """How often intervals hold on the exam that no width was made of."""
    rows = [[half, *each.values()] for half, each in measured_fixes()["unseen"].items()]
    return markdown(["half", "pairs", "with a number", "in the 80 % interval"], rows)


def unsaid():
    """Why `explain` gives no number, and what the error would have been."""
    rows = [
        [
            each["step"],
            each["cases"],
            "-" if each["median"] is None else _errors((each["median"], each["mean"])),
            each["largest"],
        ]
        for each in measured_fixes()["steps"]
    ]
    return markdown(["the step", "steps", "error", "of the 20 largest errors"], rows)


def worst():
    """The largest errors of each author where a number is given, and what reading them showed."""
    reasons = tomllib.loads(ERRORS.read_text(encoding="utf-8"))
    rows = []
    for author, found in measured_fixes()["worst"].items():
        for each in found:
            name = each["family"].removeprefix(f"{author}: ")
            why = reasons.get(author, {}).get(each["family"], "not read")
            rows.append([author, name, f"`{each['term']}`", f"{each['ratio']:.2f}", why])
    return markdown(["author", "step", "cause", "estimate over measured", "why"], rows)


def measured_advice():
    return json.loads(ADVISED.read_text(encoding="utf-8"))


def part(hits, cases):
    """Return hits with their share of the cases."""
    return f"{hits} ({hits / cases:.0%})"


def advised():
    """What advice says of the newer families, from the slow launch alone."""
    rows = [
        [
            name,
            each["cases"],
            part(each["first"], each["cases"]),
            part(each["named"], each["cases"]),
            f"{each['alarms']} of {each['bases']}",
            ", ".join(f"`{family}`" for family in each["missed"]),
        ]
        for name, each in measured_advice().items()
    ]
    header = ["families", "slow cases", "first", "named", "named at the base", "not always first"]
    return markdown(header, rows)


def measured_lines():
    return json.loads(LINES.read_text(encoding="utf-8"))


def lines():
    """Which line is named for the planted cause of each family."""
    rows = []
    for each in measured_lines()["rows"]:
        place = f"`{each['place']}`" if each["place"] else "none"
        called = f"`{each['called_at']}`" if each["called_at"] else "-"
        share = "-" if each["share"] is None else f"{each['share']:.0%}"
        right = "yes" if each["right"] else "no"
        rows.append([f"`{each['family']}`", f"`{each['term']}`", place, called, share, right])
    header = ["family", "cause", "line named", "called at", "of the cause", "the planted one"]
    return markdown(header, rows)


TABLES = {
    "strangers": strangers.EXAMS["first"].table,
    "strangers2": strangers.EXAMS["second"].table,
    "strangers3": strangers.EXAMS["third"].table,
    "torchpairs": strangers.EXAMS["torch"].table,
    "lines": lines,
    "advised": advised,
    "fixes": fixes,
    "authors": authors,
    "unsaid": unsaid,
    "unseen": unseen,
    "worst": worst,
    "sets": by_set,
    "rivals": rivals,
    "stillwrong": still_wrong,
    "families": families,
    "base": lambda: scores("methods"),
    "between": lambda: scores("between"),
    "mixtures": lambda: scores("mixtures"),
    "otherquestions": other_questions,
    "byfamily": by_family,
    "others": others,
}


def table_of(name):
    return table_on(PAGE, name)


def main():
    if len(sys.argv) > 1:
        found = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
        with replacing(KEPT) as place:
            place.write_text(json.dumps(keep(found), indent=1) + "\n", encoding="utf-8")
    write_tables(PAGE, TABLES)


if __name__ == "__main__":
    main()
