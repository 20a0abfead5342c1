"""The tables of docs/explanation/truth.md.

``python -m studies.truth.measure --json > FILE`` measures. ``python -m studies.truth.page FILE``
keeps what the page needs in ``tests/data/truth/h200.json`` and writes the tables anew; without
FILE it only writes the tables. Those by set are of ``tests/data/truth/sets.json``, which
``python -m studies.truth.sets --strangers DIR --out tests/data/truth/sets.json`` measures, that of
estimates of ``fixes.json`` beside it (``studies.truth.fixes``), that of lines of ``lines.json``
(``studies.truth.lines``), those of firm answers of ``firm.json`` (``studies.truth.firm``), those of
Nsight Compute's rules on exams of ``exam_rules.json`` (``studies.truth.exam_rules``).
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter
from pathlib import Path

from perfml.explain.certainty import IN_WORDS
from perfml.tables import replacing
from studies.page_tables import markdown, table_on, write_tables
from studies.truth import exam_rules, strangers, unseen

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/explanation/truth.md"
DATA = ROOT / "studies/data/h200-planted"
KEPT = ROOT / "tests/data/truth/h200.json"
SETS = ROOT / "tests/data/truth/sets.json"
FIRST = ROOT / "tests/data/truth/first_answers.json"
FIXES = ROOT / "tests/data/truth/fixes.json"
ERRORS = Path(__file__).with_name("errors_read.toml")
ADVISED = ROOT / "tests/data/truth/advised.json"
LINES = ROOT / "tests/data/truth/lines.json"
FIRM = ROOT / "tests/data/truth/firm.json"
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
    cases = found["cases"] if name in found else 0  # the oldest answers did not count all
    return f"{found[name]} ({found[name] / cases:.0%})" if cases else "-"


SCORES = ("first", "three", "symptom", "wrong", "wrong_and_silent", "said", "right_and_hedged")


def by_set():
    """perfml's causes on every set, with every set of metrics."""
    rows = [
        [name, columns, found["cases"], *(_of(found, score) for score in SCORES)]
        for name, scored in shown_sets().items()
        for columns, found in scored["columns"].items()
    ]
    header = ["set", "metrics", "cases", "cause first", "in three", "symptom first"]
    header += ["wrong", "wrong and confident", "first cause not firm", "right and not firm"]
    return markdown(header, rows)


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
    """Errors of estimates, where a number is said, where only an interval is, and of all."""
    found = measured_fixes()
    rows = []
    for name, scored in {**found["groups"], **found["together"]}.items():
        said = [scored[which]["cases"] for which in ("given", "ranges")]
        cells = [name, scored["cases"]]
        for which, cases in zip(("given", "ranges"), said, strict=True):
            cells += [cases, _errors(scored[which]["errors"])]
            cells.append(_part_held(scored["coverage"][which]))
        rows.append([*cells, scored["cases"] - sum(said), _errors(scored["all"]["errors"])])
    header = ["fixes", "cases", "a number", "its error", "in its interval", "only an interval"]
    header += ["error of its middle", "in it", "nothing", "error of all"]
    return markdown(header, rows)


def ruled():
    """Errors beside those of Nsight Compute's rules, on the rows that it has."""
    found = measured_fixes()
    rows = []
    for name, scored in {**found["groups"], **found["together"]}.items():
        if not scored["all"]["ruled"] or name.endswith("known"):
            continue
        cells = [name]
        for which in ("all", "given"):
            some = scored[which]
            cells += [some["ruled"], _errors(some["ours"]), _errors(some["rules"])]
        rows.append(cells)
    header = ["fixes", "with a rule", "perfml", "Nsight Compute"]
    return markdown([*header, "of these, a number", "perfml", "Nsight Compute"], rows)


def _errors(both):
    return "-" if both[0] is None else f"{both[0]:.0%}, {both[1]:.0%}"


def _part_held(share):
    return "-" if share is None else f"{share:.0%}"


def authors():
    """Errors of an author's numbers, and how often intervals hold that were made of all others'."""
    found = measured_fixes()
    rows = []
    for each in found["authors"]:
        width, scored = each["width"], found["by_author"][each["author"]]
        ends = f"{width['low']:.2f}, {width['high']:.2f}; "
        ends += f"{width['untold_low']:.2f}, {width['untold_high']:.2f}"
        cells = [each["author"], scored["cases"]]
        for which in ("given", "ranges"):
            cells += [scored[which]["cases"], _errors(scored[which]["errors"])]
        held = [_part_held(scored["coverage"][which]) for which in ("given", "ranges", "both")]
        levels = ", ".join(f"{level:.0%}" for level in each["levels"])
        rows.append([*cells, ", ".join(held), _part_held(each["first"]), levels, ends])
    header = ["author left out", "fixes", "numbers", "error", "only intervals"]
    header += ["error of the middle", "held: numbers, intervals, both", "first answers held"]
    return markdown([*header, "levels", "ends"], rows)


def unknowns():
    """Errors on strangers' kernels by what no counter tells of the fix."""
    rows = []
    for each in measured_fixes()["unknowns"]:
        said = each["unknown"] or "nothing: counters tell what stays, and a number is said"
        ratios = f"{each['low']:.2f} to {each['high']:.2f}"
        held = _part_held(each["coverage"])
        rows.append([said, each["cases"], _errors(each["errors"]), ratios, held])
    header = ["what no counter tells", "fixes", "error", "estimate over measured"]
    return markdown([*header, "in the interval"], rows)


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
    return json.loads(ADVISED.read_text(encoding="utf-8"))["families"]


def advice_certainty():
    """How often the first finding is right where it is firm, likely or open."""
    document = json.loads(ADVISED.read_text(encoding="utf-8"))
    rows, sums = [], {False: {}, True: {}}
    for name, halves in document["exams"].items():
        for half, found in halves.items():
            unread = half == "aside" and name not in strangers.READ
            title = f"{name}, {half}" + (" (unread)" if unread else "")
            rows.append([title, *map(_right_of, found.values())])
            for word, counted in found.items():
                so_far = sums[unread].get(word, (0, 0))
                sums[unread][word] = [a + b for a, b in zip(so_far, counted, strict=True)]
    for unread, name in ((False, "all that was read"), (True, "all that was not")):
        rows.append([f"**{name}**", *map(_right_of, sums[unread].values())])
    for name, each in document["families"].items():
        rows.append([name, *map(_right_of, each["certainty"].values())])
    return markdown(["set", *IN_WORDS], rows)


def _right_of(counted):
    right, wrong = counted
    return (
        part(right, right + wrong).replace(" (", f" of {right + wrong} (") if any(counted) else "-"
    )


def part(hits, cases):
    """Return hits with their share of the cases."""
    return f"{hits} ({hits / cases:.0%})".replace("%", " %")


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


def measured_firm():
    return json.loads(FIRM.read_text(encoding="utf-8"))


def firm():
    """First answers that are firm, right and wrong, author by author."""
    found = measured_firm()["authors"]
    sums = {
        which: {part: sum(each[which][part] for each in found.values()) for part in _FIRM_PARTS}
        for which in _FIRM
    }
    whole = {"pairs": sum(each["pairs"] for each in found.values()), **sums}
    rows = []
    for name, each in {**found, "all": whole}.items():
        row = [name, each["pairs"]]
        for which in _FIRM:
            row.append(f"{each[which]['right']}, {each[which]['wrong']}")
            row.append(f"{each[which]['wrong'] / each['pairs']:.1%}")
        rows.append(row)
    header = ["exam, first answer", "pairs", "confident as answered: right, wrong", "wrong"]
    header += ["firm by the rules: right, wrong", "wrong"]
    header += ["firm by rules and limits of the others: right, wrong", "wrong"]
    return markdown(header, rows)


_FIRM = ("before", "firm", "left out")
_FIRM_PARTS = ("right", "wrong")


def firm_curve():
    """How many first answers are firm, right and wrong, by how large a rival may be."""
    rows, exams = [], [*measured_firm()["authors"]]
    for each in measured_firm()["curve"]:
        limit = "any" if each["rival"] > 1 else f"{each['rival']:.2g}"
        cells = [f"{each[name]['right']}, {each[name]['wrong']}" for name in exams]
        right, wrong = (sum(each[name][part] for name in exams) for part in _FIRM_PARTS)
        rows.append([limit, *cells, f"{right}, {wrong}"])
    return markdown(["a rival is smaller than", *exams, "all"], rows)


def firm_rules():
    """What each rule makes of the first answers."""
    found = measured_firm()["reasons"]
    rows = [[f"`{name}`", each["wrong"], each["right"]] for name, each in found.items()]
    return markdown(["rule", "wrong answers hedged", "right answers hedged"], rows)


def firm_today():
    """How today's answers to every recorded set are, firm and not."""
    rows = [
        [name, each["cases"], each["first"], each["hedged"], each["wrong"]]
        for name, each in measured_firm()["today"].items()
    ]
    return markdown(["set", "cases", "right", "right and not firm", "wrong and firm"], rows)


TABLES = {
    "firstasked": strangers.unseen_table,
    "firm": firm,
    "firmcurve": firm_curve,
    "firmrules": firm_rules,
    "firmtoday": firm_today,
    "strangers": strangers.EXAMS["first"].table,
    "strangers2": strangers.EXAMS["second"].table,
    "strangers3": strangers.EXAMS["third"].table,
    "strangers4": strangers.EXAMS["fourth"].table,
    "strangers5": strangers.EXAMS["fifth"].table,
    "strangers6": strangers.EXAMS["sixth"].table,
    "torchpairs": strangers.EXAMS["torch"].table,
    "torchpairs2": strangers.EXAMS["torch2"].table,
    "torchpairs3": strangers.EXAMS["torch3"].table,
    "torchpairs4": strangers.EXAMS["torch4"].table,
    "examrules": exam_rules.table,
    "lines": lines,
    "advised": advised,
    "advisedsure": advice_certainty,
    "fixes": fixes,
    "authors": authors,
    "unsaid": unsaid,
    "unknowns": unknowns,
    "unseen": unseen.table,
    "ruled": ruled,
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
