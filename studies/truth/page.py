"""The tables of ``RESULTS.md`` beside this file, and the one of docs/explanation/truth.md.

``python -m studies.truth.page`` writes them anew from the stored results in ``tests/data/truth``,
which have a program each (`sets`, `several`, `fixes`, `lines`, `advised`,
`unseen`, `public`). ``outside.toml`` has the counts of a test whose cases are not here,
``development.toml`` those of rules that are gone.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from studies.page_tables import markdown, table_on, write_tables
from studies.truth import public, strangers, unseen
from studies.truth.scores import ASIDE, DEVELOP

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("RESULTS.md")
TRUTH = ROOT / "docs/explanation/truth.md"
OUTSIDE = Path(__file__).with_name("outside.toml")
DEVELOPMENT = Path(__file__).with_name("development.toml")
CONFIDENCE = ROOT / "perfml/explain/tree/confidence.json"
FACTORIAL = ROOT / "tests/data/truth/factorial.json"
FACTORIAL_FIRST = ROOT / "tests/data/truth/factorial_first.json"
SETS = ROOT / "tests/data/truth/sets.json"
FIRST = ROOT / "tests/data/truth/first_answers.json"
FIXES = ROOT / "tests/data/truth/fixes.json"
ADVISED = ROOT / "tests/data/truth/advised.json"
LINES = ROOT / "tests/data/truth/lines.json"


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
    header += ["wrong", "wrong and confident", "confidence below high", "of these right"]
    return markdown(header, rows)


def rivals():
    """All methods on the questions for which Nsight Compute's rules were recorded."""
    rows = [
        [name, method, found["cases"], *(_of(found, score) for score in ("first", "three"))]
        for name, scored in shown_sets().items()
        for method, found in scored["same_questions"].items()
    ]
    return markdown(["set", "method", "cases", "cause first", "in three"], rows)


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


def _errors(both):
    return "-" if both[0] is None else f"{both[0]:.0%}, {both[1]:.0%}"


def _part_held(share):
    return "-" if share is None else f"{share:.0%}"


def measured_advice():
    return json.loads(ADVISED.read_text(encoding="utf-8"))["families"]


def advice_confidence():
    """How often the first finding is right of high, medium or low confidence."""
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
        rows.append([name, *map(_right_of, each["confidence"].values())])
    return markdown(["set", "high", "medium", "low"], rows)


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


def published():
    """Scores on reports from public repositories, a column for every exam."""
    answers = {exam: public.first_answers(exam) for exam in public.asked()}
    return public.table({exam: public.result_of(exam, found) for exam, found in answers.items()})


def _outside_rows(tests):
    return [
        [
            each["set"],
            f"{test['date']} ({test['commit']})",
            f"{each['first']} of {each['pairs']} ({each['first'] / each['pairs']:.0%})",
            _confident_errors(each),
        ]
        for test in tests
        for each in test["parts"]
    ]


POOLED = ["test set", "date (commit)", "true cause first", "wrong and confident"]


def outside():
    """All tests by outside authors."""
    return markdown(POOLED, _outside_rows(outside_tests()))


def pooled():
    """The one table of the documentation: the newest outside test, then exams by their kind."""
    rows = _outside_rows(outside_tests()[:1])
    for title, when, scores in _kinds():
        every = sum(scores, strangers.Score())
        right = f"{every.first} of {every.pairs} ({every.first / every.pairs:.0%})"
        rows.append([title, when, right, f"{every.wrong} of {every.pairs}"])
    return markdown(POOLED, rows)


def outside_tests():
    """Return the tests by outside authors, the newest first."""
    return tomllib.loads(OUTSIDE.read_text(encoding="utf-8"))["tests"]


def _confident_errors(part):
    if "high" not in part:
        return f"{part['wrong']} of {part['pairs']}"
    right, answers = part["high"]
    return f"{answers - right} of {answers} at high confidence"


def _kinds():
    """All exams of a kind, each with the scores of its first answers."""
    for code in dict.fromkeys(exam.code for exam in strangers.EXAMS.values()):
        exams = [exam for exam in strangers.EXAMS.values() if exam.code == code]
        scores = [exam.first_score() for exam in exams]
        days = sorted({exam.asked for exam in exams})
        yield f"{code}, {len(exams)} sets", " to ".join(days), scores
    answers = {exam: public.first_answers(exam) for exam in public.asked()}
    scores = [public.result_of(exam, found).met for exam, found in answers.items()]
    yield f"published reports, {len(scores)} sets", "2026-11-23", scores
    yield "of these the newest two", "2026-11-23", scores[-2:]


def development():
    """What the tree answers to pairs that were read, beside the rules before it."""
    rows = []
    for each in tomllib.loads(DEVELOPMENT.read_text(encoding="utf-8"))["rows"]:
        firsts = [part(each[which][0], each["pairs"]) for which in ("before", "now")]
        wrong = [each[which][1] for which in ("before", "now")]
        rows.append([each["set"], each["pairs"], *firsts, *wrong, each["command"]])
    header = ["set", "pairs", "first before", "first now", "wrong at high confidence before", "now"]
    return markdown([*header, "counted by"], rows)


PARTS = {
    "planted": "planted, a family",
    "develop": "exams, develop, an exam",
    "aside": "exams, aside, an exam",
    "factorial": "kernels with five toggles, a kernel",
}


def held_out():
    """How often an answer is right from a probability on, where no part of it was fitted."""
    document = json.loads(CONFIDENCE.read_text(encoding="utf-8"))
    curves = {f"{PARTS[part]}, held out": curve for part, curve in document["held out"].items()}
    rows = [
        [
            name,
            f"{each['from']:g}",
            each["of"],
            each["answers"],
            part(each["right"], each["answers"]),
        ]
        for name, curve in curves.items()
        for each in curve
        if each["from"] in (0.5, document["high"]) and each["answers"]
    ]
    return markdown(["pairs, and what was held out", "from", "asked", "answers", "right"], rows)


def factorial():
    """Causes of kernels with several: as first answered, and now."""
    rows = []
    for when, path in (("first answers", FACTORIAL_FIRST), ("now", FACTORIAL)):
        document = json.loads(path.read_text(encoding="utf-8"))
        for half in (DEVELOP, ASIDE):
            for which, found in document[half].items():
                cells = [part(found[name], found["pairs"]) for name in ("first", "named")]
                high = part(found["high_right"], found["high"])
                row = [when, half, which, found["pairs"], *cells, found["high"], high]
                rows.append([*row, f"{found['rank']:.2f}"])
    header = ["asked", "half", "pairs", "count", "greatest share first", "a toggle first"]
    return markdown([*header, "high", "high and right", "rank correlation"], rows)


TABLES = {
    "outside": outside,
    "development": development,
    "factorial": factorial,
    "heldout": held_out,
    "firstasked": strangers.unseen_table,
    "published": published,
    "sets": by_set,
    "rivals": rivals,
    "advised": advised,
    "advisedsure": advice_confidence,
    "fixes": fixes,
    "unseen": unseen.table,
    "lines": lines,
}


def table_of(name):
    return table_on(PAGE, name)


def main():
    write_tables(PAGE, TABLES)
    write_tables(TRUTH, {"pooled": pooled})


if __name__ == "__main__":
    main()
