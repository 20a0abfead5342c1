"""Is perfml right on reports that strangers published? Their causes were labelled by us, blindly.

Run: ``python -m studies.truth.public [--exam first|second|third|fourth] [DIR] [--out FILE]``;
without DIR the first answers are scored, which needs no reports. DIR holds them as
``NAME.ncu-rep``, by the names of ``tests/data/truth/public_labels.json`` (``public2_`` to
``public4_``), which says of each where it is from: ``git show COMMIT:PATH > DIR/NAME.ncu-rep`` in
a clone. No licence to hand them on is stated, so they are not here. ``--out`` keeps the answers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from studies.page_tables import markdown
from studies.truth.strangers import Score, score

TRUTH = Path(__file__).resolve().parents[2] / "tests/data/truth"
EXAMS = {"first": "public", "second": "public2", "third": "public3", "fourth": "public4"}
"""How the files of an exam begin."""
SAID = 1e-3
"""Terms below this part of the difference are no answer."""


@dataclass(frozen=True)
class Result:
    """Counts over all pairs.

    Attributes
    ----------
    met
        Of the steps whose counters were recorded, and of equal pairs.
    symptoms
        Steps of these that name the cause, its unit or the wait for it first.
    unmet, named, misled
        Steps without the counters; that name what is missing; that claim something else.
    """

    met: Score
    symptoms: int
    unmet: int
    named: int
    misled: int


def labels(exam: str) -> dict[str, Any]:
    """Return the labels of an exam: files, steps and equal pairs."""
    return _read(exam, "labels")


def first_answers(exam: str) -> dict[str, Any]:
    """Return what was answered at first, by pair."""
    found: dict[str, Any] = _read(exam, "first")["answers"]
    return found


def asked() -> list[str]:
    """Return the exams that have first answers: labels are landed before anything is asked."""
    return [exam for exam in EXAMS if _path_of(exam, "first").exists()]


def _read(exam: str, what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_path_of(exam, what).read_text(encoding="utf-8"))
    return found


def _path_of(exam: str, what: str) -> Path:
    return TRUTH / f"{EXAMS[exam]}_{what}.json"


def digest(document: Mapping[str, Any]) -> str:
    """Return the sha256 of labels as they are frozen: the same for every spelling of the file."""
    frozen = {part: document[part] for part in ("files", "steps", "equal")}
    spelled = json.dumps(frozen, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(spelled.encode()).hexdigest()


def ask(exam: str, folder: Path) -> dict[str, Any]:
    """Ask the command line about every pair, as its users do."""
    document = labels(exam)
    steps = {name: _answer(folder, pair) for name, pair in document["steps"].items()}
    return steps | {name: _compared(folder, pair)[0] for name, pair in document["equal"].items()}


def _answer(folder: Path, pair: Mapping[str, Any]) -> dict[str, Any]:
    answer, detail, text = _compared(folder, pair)
    whole = detail["time"]["log_ratio"]
    causes = detail["causes"] or {"terms": [], "untold": None, "high": None}
    parts = [(each, each["log_ratio"] / whole) for each in causes["terms"]]
    parts = sorted((each for each in parts if each[1] > SAID), key=lambda each: -each[1])
    answer["terms"] = [
        {"term": each["term"], "residual": each["residual"], "part": round(part, 3)}
        for each, part in parts[:4]
    ]
    untold = causes["untold"]
    answer["doubt"] = untold["reason"] if untold else detail["unseen"] or None
    answer["high"] = causes["high"]
    answer["what_to_do_term"] = detail["fix"] and detail["fix"]["term"]
    slow = pair["after" if pair["ratio"] > 1 else "before"]
    findings = json.loads(_perfml("advise", _path(folder, slow))[0])["findings"]
    answer["advice"] = [{"rules": each["rules"]} for each in findings[:3]]
    if "missing" in pair:
        answer["missing_named"] = bool(re.search(pair["missing"], text))
    return answer


def _compared(folder: Path, pair: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return the verdict, all that was said of the one layer, and it as text with the warnings."""
    sides = [_path(folder, pair[which]) for which in ("before", "after")]
    out, warnings = _perfml("explain", *sides, "--model", "none")
    detail = json.loads(out)["details"][0]
    answer = {"verdict": detail["time"]["verdict"], "ratio": round(detail["time"]["ratio"], 4)}
    return answer, detail, out + warnings


def _path(folder: Path, side: str) -> str:
    name, _, launch = side.partition("@")
    return f"{folder / name}.ncu-rep@{launch}"


def _perfml(*arguments: str) -> tuple[str, str]:
    command = [sys.executable, "-m", "perfml", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout, done.stderr


def _spelled(answers: Mapping[str, Any]) -> str:
    """Return a file of answers, a line for each pair."""
    git = ["git", "rev-parse", "--short=7", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True, cwd=TRUTH).stdout
    today = datetime.now(UTC).date().isoformat()
    lines = (f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items())
    head = f'{{\n"commit": "{commit.strip()}",\n"asked": "{today}",\n"answers": {{\n'
    return head + ",\n".join(lines) + "\n}\n}\n"


def result_of(exam: str, answers: Mapping[str, Any]) -> Result:
    """Count what is right, by the rules of the exams: no symptom counts as a cause."""
    document = labels(exam)
    met = sum((score(answers[name], None) for name in document["equal"]), Score())
    symptoms = unmet = named = misled = 0
    for name, pair in document["steps"].items():
        accepted = dict.fromkeys(("terms", "action_terms"), pair["strict"])
        found = score(answers[name], accepted | {"rules": pair["rules"]})
        if "absent" in pair:
            unmet += 1
            named += answers[name]["missing_named"]
            misled += found.wrong
        else:
            met += found
            near = {*pair["strict"], *pair["symptoms"]}
            symptoms += any(each["term"] in near for each in answers[name]["terms"][:1])
    return Result(met, symptoms, unmet, named, misled)


def table(results: Mapping[str, Result]) -> str:
    """Return the counts for people, a column for every exam."""
    columns = [_counts(result) for result in results.values()]
    rows = [(name, *(column[name] for column in columns)) for name in columns[0]]
    return markdown(["", *results], rows)


def _counts(result: Result) -> dict[str, str]:
    met = result.met
    return {
        "cause first": f"{met.first} of {met.pairs}",
        "cause in three": f"{met.three} of {met.pairs}",
        "cause or a symptom of it first": f"{result.symptoms} of {met.pairs}",
        "wrong, a symptom too, and confident": f"{met.wrong} of {met.pairs}",
        "what to do is right": f"{met.action} of {met.pairs}",
        "advice first": f"{met.advised} of {met.pairs}",
        "advice named": f"{met.named} of {met.pairs}",
        "equal told": f"{met.told} of {met.equal}",
        "counters absent: says which are missing": f"{result.named} of {result.unmet}",
        "counters absent: something else, and confident": f"{result.misled} of {result.unmet}",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the scores of the first answers, or of today's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="the reports, to ask anew")
    parser.add_argument("--exam", choices=EXAMS, default="first")
    parser.add_argument("--out", type=Path, help="write the answers here, with commit and date")
    given = parser.parse_args(arguments)
    exam = given.exam
    if given.folder is None and exam not in asked():
        sys.exit(f"The {exam} exam has no first answers yet: name the folder of its reports.")
    answers = first_answers(exam) if given.folder is None else ask(exam, given.folder)
    if given.out is not None:
        given.out.write_text(_spelled(answers), encoding="utf-8")
    print(table({exam: result_of(exam, answers)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
