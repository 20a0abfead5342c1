"""The questions of the benchmark: two launches, why one is slower, and the right answer.

Planted ones come from a dataset of this repository; those of strangers from a folder that is not
a part of it: public reports, with labels that were frozen before perfml was asked.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from perfml.datasets import find
from perfml.errors import InputError
from perfml.explain import load_tables, make_side, sides_of
from perfml.explain.compared import Side, same_device
from perfml.explain.launches import Launches, LaunchReader
from perfml.explain.times import compare_times
from perfml.explain.tree.causes import TERMS
from perfml.metrics import load_catalogue
from studies.truth.labels import retired_rules, with_closer
from studies.truth.rules import Remark, planted_remarks, report_remarks
from studies.truth.scores import EFFECT, Family, half_of, read_truth

JUDGEMENTS = Path(__file__).with_name("judgements.toml")
EXAM_DATASETS = {
    "first": "h200-strangers",
    "second": "h200-strangers2",
    "third": "h200-strangers3",
    "fourth": "h200-strangers4",
    "fifth": "h200-strangers5",
    "sixth": "h100-strangers6",
    "torch": "h200-torch-pairs",
    "torch2": "h200-torch-pairs2",
    "torch3": "h200-torch-pairs3",
    "torch4": "h100-torch-pairs4",
}
"""Exam -> where it is recorded."""
DIFFERENCE = 0.01
"""Pairs of strangers that are closer than this must be told to be no difference."""


@dataclass(frozen=True)
class Accepted:
    """What counts as naming a cause.

    Attributes
    ----------
    terms, symptoms
        Ids of perfml's terms that say the cause, and that say its unit or the wait for it.
    metrics
        Patterns of metrics.
    rules
        Patterns of ``RULE: message`` of Nsight Compute.
    """

    terms: frozenset[str]
    symptoms: frozenset[str]
    metrics: tuple[str, ...]
    rules: tuple[str, ...]


NOTHING = Accepted(frozenset(), frozenset(), (), ())
"""Of questions whose answer nobody labelled."""


@dataclass(frozen=True)
class Question:
    """Why does a layer take longer, or shorter, than before?

    Attributes
    ----------
    case, family
        Its name, and whose it is.
    before, after
        The launches of both sides.
    comparable
        Whether both ran on one kind of device.
    accepted
        The answer.
    remarks
        What Nsight Compute's rules say of the slower side; None where they were not recorded.
    """

    case: str
    family: str
    before: Launches
    after: Launches
    comparable: bool
    accepted: Accepted
    remarks: tuple[Remark, ...] | None = None

    def cut(self, columns: Iterable[str] | None) -> Question:
        """Return the question with some counters only."""
        if columns is None:
            return self
        kept = {*columns, "ncu_time_us", "kernels"}
        return replace(self, before=_cut(self.before, kept), after=_cut(self.after, kept))


def _cut(side: Launches, kept: set[str]) -> Launches:
    assert side.launches is not None
    launches = tuple(
        replace(one, counters={name: one[name] for name in one.counters if name in kept})
        for one in side.launches
    )
    return replace(side, launches=launches)


@cache
def judgements() -> dict[str, Any]:
    """Return the table of judgements."""
    return tomllib.loads(JUDGEMENTS.read_text(encoding="utf-8"))


def columns_of(metric_set: str) -> tuple[str, ...]:
    """Return the metrics that a profile of a set holds."""
    return load_catalogue().computable([metric_set])


def planted_questions(
    folder: Path, *, held_out: bool = False, newer: bool = False
) -> list[Question]:
    """Return every level of every layer against the base, where it is slower by `EFFECT`.

    Parameters
    ----------
    folder
        The dataset.
    held_out
        Of the families that are kept aside, and those only.
    newer
        Leave out the families of the older dataset.
    """
    layers, kernels = load_tables(folder)
    truth = read_truth(folder, held_out=held_out)
    remarks = planted_remarks(folder)
    earlier = find("h200-planted")
    assert earlier is not None
    older = {family.name for family in read_truth(earlier).families}
    families = [each for each in truth.families if not newer or each.name not in older]
    found = []
    for level in truth.levels[1:]:
        left, right = sides_of(layers, truth.baseline, level, kernels=kernels)
        sides = {layer: pair for layer, *pair in layer_sides(left, right)}
        for family in families:
            for layer in filter(sides.__contains__, family.layers):
                before, after = sides[layer]
                if total_us(after) / total_us(before) < EFFECT:
                    continue
                said = remarks.get(layer) if level == truth.levels[-1] else None
                case, same = f"{layer} at {level}", same_device(left, right)
                answer = _accepted(family)
                found.append(Question(case, family.name, before, after, same, answer, said))
    return found


def total_us(side: Launches) -> float:
    """Return the time of all launches of a side, in microseconds."""
    return sum(one.time_us for one in side.launches or ())


def layer_sides(before: Side, after: Side) -> Iterator[tuple[str, Launches, Launches]]:
    """Return every layer with its launches on both sides, where both have some."""
    readers = [LaunchReader(side) for side in (before, after)]
    there = set(after.layers["layer"])
    for layer in before.layers["layer"].drop_duplicates().dropna():
        if layer not in there:
            continue
        times = [side.rows(layer)["time_us"].to_numpy(dtype=float) for side in (before, after)]
        ratio = compare_times(times[0], times[1])
        one = readers[0].read(layer, ratio.baseline_us)
        two = readers[1].read(layer, ratio.target_us)
        if one.launches and two.launches:
            yield str(layer), one, two


def exam_questions(name: str) -> list[Question]:
    """Return the pairs of an exam (`studies.truth.strangers`) that differ."""
    folder = find(name)
    assert folder is not None
    labels = json.loads((folder / "accepted.json").read_text(encoding="utf-8"))["cases"]
    layers, kernels = load_tables(folder)
    before, after = sides_of(layers, "before", "after", kernels=kernels)
    return [
        Question(
            layer, layer, one, two, True,
            Accepted(with_closer(labels[layer]["terms"]), frozenset(), (), ()),
        )
        for layer, one, two in layer_sides(before, after)
        if layer in labels
    ]  # fmt: skip


def exam_half(half: str) -> list[Question]:
    """Return the pairs that count of all exams in a half; their family is the exam."""
    found = []
    for name, dataset in EXAM_DATASETS.items():
        folder = find(dataset)
        assert folder is not None
        decision = json.loads((folder / "decision.json").read_text(encoding="utf-8"))
        found += [
            replace(question, family=name)
            for question in exam_questions(dataset)
            if half_of(question.case) == half and question.case not in decision["left_out"]
        ]
    return found


def _accepted(family: Family) -> Accepted:
    known = judgements()["terms"]
    mine = [known[term] for term in family.terms if term in known]
    symptoms = {name for each in mine for name in each["symptoms"]} - family.terms
    metrics = [f"^{name}$" for name in family.metrics]
    metrics += [name for each in mine for name in each["metrics"]]
    rules = ncu_patterns(family.terms, family.rules)
    return Accepted(family.terms, frozenset(symptoms), tuple(metrics), rules)


def ncu_patterns(terms: Iterable[str], rules: Iterable[str]) -> tuple[str, ...]:
    """Return patterns of ``RULE: message`` of Nsight Compute that say what a label says.

    Parameters
    ----------
    terms
        Ids of perfml's terms that are right; `judgements` says what means them.
    rules
        Ids of perfml's rules that are right; ``retired_rules.toml`` says what means them.
    """
    known = judgements()["terms"]
    found = [name for term in terms if term in known for name in known[term]["ncu"]]
    known_rules = retired_rules()
    for rule in dict.fromkeys(sorted(set(rules))):
        for each in known_rules.get(rule, {}).get("ncu", ()):
            message = f".*(?:{each['message']})" if "message" in each else ""
            found.append(f"^{each['rule']}: {message}")
    return tuple(found)


def stranger_questions(folder: Path) -> tuple[list[Question], list[Question]]:
    """Return the steps of strangers, and pairs that do not differ.

    Raises
    ------
    InputError
        If the labels are not the frozen ones, or say words that the table does not know.
    """
    labels = read_labels(folder)
    tables: dict[str, Any] = {}
    steps = [_step(folder, each, tables) for each in labels["steps"]]
    return steps, [_step(folder, each, tables) for each in labels["no_difference"]]


def read_labels(folder: Path) -> dict[str, Any]:
    """Return the labels of a folder, whose card says their digest."""
    from perfml.util.files import sha256_of_file

    path = folder / "labels.json"
    if not path.is_file():
        what, cure = "no labels of strangers here", "Name the folder that holds labels.json."
        raise InputError(what, where=str(folder), found="no labels.json", cure=cure)
    digest = sha256_of_file(path)
    if digest not in (folder / "README.md").read_text(encoding="utf-8"):
        what, cure = "these are not the frozen labels", "Restore labels.json."
        raise InputError(what, where=str(path), found=digest, cure=cure)
    labels: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return labels


def label_terms(words: Sequence[str], known: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return the ids of terms that words of the labels mean.

    Raises
    ------
    InputError
        If a word is not in the table.
    """
    found: set[str] = set()
    for word in words:
        if word.startswith("re:"):
            found |= {
                term.id
                for term in TERMS.values()
                if re.search(word[3:], term.label, re.IGNORECASE)
                and not term.id.startswith("stall_")
            }
        elif word in known:
            found |= set(known[word])
        else:
            what, cure = "a label that the table does not know", "Add it to judgements.toml."
            raise InputError(what, where=str(JUDGEMENTS), found=word, cure=cure)
    return frozenset(found)


def _step(folder: Path, step: Mapping[str, Any], tables: dict[str, Any]) -> Question:
    from perfml.ingest.profiles import ingest

    sides = []
    for which in ("before", "after"):
        name = step[which]["file"]
        if name not in tables:
            tables[name] = ingest([folder / name]).frame
        sides.append(make_side(which, tables[name].iloc[step[which]["launches"]]))
    ((_, before, after),) = layer_sides(sides[0], sides[1])
    same = same_device(sides[0], sides[1])
    asked = Question(step["id"], step["author"], before, after, same, NOTHING)
    if "strict" not in step:
        return asked
    words = judgements()["labels"]
    strict = label_terms(step["strict"], words)
    symptoms = label_terms(step["lenient"], words) - strict
    known = judgements()["terms"]
    metrics = [name for term in strict if term in known for name in known[term]["metrics"]]
    accepted = Accepted(strict, symptoms, tuple(metrics), tuple(step["ncu"]))
    slower = step["before" if step["ratio"] < 1 else "after"]
    remarks = report_remarks(folder / slower["file"], slower["launches"][0])
    return replace(asked, accepted=accepted, remarks=remarks)
