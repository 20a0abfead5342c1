"""Score explanations against planted causes: the place at which each method names the cause."""

from __future__ import annotations

import json
import lzma
import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import InputError, PerfmlError

EFFECT = 1.05
"""A knob that makes a launch less than 5 % slower has no effect to explain; it is no case."""

TRUTH_FILE = "truth.json"


@dataclass(frozen=True)
class Family:
    """What was planted: see ``collectors/workloads/planted/families.py``."""

    name: str
    kind: str
    layers: tuple[str, ...]
    metrics: frozenset[str]
    terms: frozenset[str]
    rules: frozenset[str]


@dataclass(frozen=True)
class Truth:
    """The families of a dataset, and the names of the knob's levels."""

    baseline: str
    levels: tuple[str, ...]
    families: tuple[Family, ...]


@dataclass(frozen=True)
class Answer:
    """What one method named in one case.

    Attributes
    ----------
    method, family, kind, case
        Who was asked about what.
    named
        What it named, the most important first.
    place
        Place of the cause in it, from 1; None if it is not among them.
    """

    method: str
    family: str
    kind: str
    case: str
    named: tuple[str, ...]
    place: int | None


@dataclass
class Answers:
    """All answers, and the cases that were left out with the reason."""

    rows: list[Answer] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)


def read_truth(folder: Path) -> Truth:
    """Read the planted causes beside a dataset: ``truth.json`` there, or of one of its runs.

    Raises
    ------
    InputError
        If there is none, or it is no such document.
    """
    found = [folder / TRUTH_FILE, *sorted(folder.glob(f"*/{TRUTH_FILE}"))]
    found += sorted(folder.glob(f"*/*/{TRUTH_FILE}"))
    path = next((each for each in found if each.is_file()), None)
    if path is None:
        what, cure = "no planted causes here", "Record one: datasets/h200-planted/record.py"
        raise InputError(what, where=str(folder), found=f"no {TRUTH_FILE}", cure=cure)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        families = tuple(_family(each) for each in document["families"])
        levels = tuple(map(str, document["levels"]))
        return Truth(str(document["baseline"]), levels, families)
    except (ValueError, KeyError, TypeError) as error:
        what = "not a document of planted causes"
        raise InputError(what, where=str(path), found=repr(error)[:200]) from error


def _family(each: dict[str, Any]) -> Family:
    cause = each["cause"]
    return Family(
        each["family"],
        each["kind"],
        tuple(each["layers"]),
        frozenset(cause["metrics"]),
        frozenset(cause["terms"]),
        frozenset(cause["rules"]),
    )


def place_of(named: Sequence[str], accepted: Iterable[str]) -> int | None:
    """Return the place of the first accepted name, from 1.

    A name may be a group, ``a + b``: it counts if it holds an accepted one.

    Examples
    --------
    >>> place_of(["x", "y + z"], {"z"})
    2
    """
    wanted = set(accepted)
    for place, name in enumerate(named, start=1):
        if wanted & set(name.split(" + ")):
            return place
    return None


def wilson(hits: int, cases: int, z: float = 1.959964) -> tuple[float, float]:
    """Return Wilson's interval of a share.

    References
    ----------
    E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    Journal of the American Statistical Association 22 (1927).

    Examples
    --------
    >>> [round(each, 3) for each in wilson(8, 10)]
    [0.49, 0.943]
    """
    if cases == 0:
        return 0.0, 1.0
    share, spread = hits / cases, z * z / cases
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / cases + spread / (4 * cases))
    return middle - half, middle + half


def ask_pairs(
    layers: pd.DataFrame, kernels: pd.DataFrame | None, truth: Truth, *, seed: int, shapley: bool
) -> Answers:
    """Ask what makes each layer slower at a level than at the base: physical, Shapley, advice."""
    from perfml.explain import explain, sides_of
    from perfml.explain.model import Explainer

    answers = Answers()
    homes = {layer: family for family in truth.families for layer in family.layers}
    backends = set(layers["backend"].astype(str))
    explainer = Explainer(layers, seed=seed) if shapley else None
    for level in truth.levels:
        if level == truth.baseline or level not in backends:
            continue
        left, right = sides_of(layers, truth.baseline, level, kernels=kernels)
        both = set(left.layers["layer"]) & set(right.layers["layer"])
        asked = [layer for layer in homes if layer in both]
        for detail in explain(left, right, layers=asked, model=None).details:
            family, case = homes[detail.layer], f"{detail.layer} at {level}"
            if detail.time.ratio < EFFECT:
                answers.left_out.append((case, f"{detail.time.ratio:.3f} times the base's time"))
                continue
            terms = detail.physical.terms
            towards = terms[terms["log_ratio"] > 0].sort_values("log_ratio", ascending=False)
            accepted = family.terms | family.metrics
            _add(answers, "physical", family, case, towards["term"], accepted)
            causes = detail.causes.terms
            up = causes[causes["log_ratio"] > 0].sort_values("log_ratio", ascending=False)
            _add(answers, "causes", family, case, up["cause"], accepted)
            mine = detail.advice[detail.advice["side"] == right.name]
            _add(answers, "advice", family, case, mine["rule"].drop_duplicates(), family.rules)
            if explainer is not None:
                rows = [side.layers[side.layers["layer"] == detail.layer] for side in (left, right)]
                values = explainer.attribute(rows[0], rows[1]).values
                up = values[values["log_ratio"] > 0].sort_values("log_ratio", ascending=False)
                _add(answers, "Shapley", family, case, up["metric"], family.metrics)
    return answers


def _add(
    answers: Answers,
    method: str,
    family: Family,
    case: str,
    named: Iterable[str],
    accepted: Iterable[str],
) -> None:
    names = tuple(map(str, named))
    found = place_of(names, accepted)
    answers.rows.append(Answer(method, family.name, family.kind, case, names[:5], found))


def named_by_gini(layers: pd.DataFrame, model: str, seed: int) -> list[str]:
    """Return the metrics by impurity importance, as the study does: one fit on the times.

    Parameters
    ----------
    model
        ``dt`` (a decision tree) or ``rf`` (a random forest).
    """
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.tree import DecisionTreeRegressor

    from perfml.modeling.features import build_design

    design = build_design(layers, "published")
    made = {"dt": DecisionTreeRegressor, "rf": RandomForestRegressor}[model](random_state=seed)
    # the study's tables have no empty cells; here a kernel without shared memory has no efficiency
    values = np.where(np.isnan(design.values), -1.0, design.values)
    made.fit(values, layers["time_us"].to_numpy(dtype=float))
    weight = made.feature_importances_
    return [design.names[i] for i in np.argsort(-weight, kind="stable") if weight[i] > 0]


def named_by_ranking(layers: pd.DataFrame, resamples: int, seed: int) -> list[str]:
    """Return perfml's groups of metrics, the best mean rank first."""
    from perfml.modeling import rank

    found = rank(layers, resamples=resamples, seed=seed, methods=("builtin", "permutation"))
    return [name.replace(", ", " + ") for name in found.summary["members"]]


RANKERS: dict[str, Callable[[pd.DataFrame, int, int], list[str]]] = {
    "ranking": named_by_ranking,
    "Gini, one tree": lambda layers, resamples, seed: named_by_gini(layers, "dt", seed),
    "Gini, forest": lambda layers, resamples, seed: named_by_gini(layers, "rf", seed),
}


def ask_tables(
    layers: pd.DataFrame, truth: Truth, *, resamples: int, mixtures: int, seed: int
) -> Answers:
    """Ask which metrics explain the times of a family's layers, and of mixtures of two families.

    In a mixture the first place counts if it is one of the two causes, and the place of the cause
    is 1 or, where only later places hold both, that of the later one.
    """
    answers = Answers()
    for family in truth.families:
        rows = layers[layers["layer"].isin(family.layers)]
        if rows.empty:
            continue
        times = rows.groupby("backend")["time_us"].median()
        if truth.baseline not in times or times.max() / times[truth.baseline] < EFFECT:
            answers.left_out.append((f"all of {family.name}", "no level is slower than the base"))
            continue
        for method in RANKERS:
            names = _asked(answers, method, rows, f"all of {family.name}", resamples, seed)
            _add(answers, method, family, f"all of {family.name}", names, family.metrics)
    present = [each for each in truth.families if layers["layer"].isin(each.layers).any()]
    pairs = [(a, b) for place, a in enumerate(present) for b in present[place + 1 :]]
    order = np.random.default_rng(seed).permutation(len(pairs))[:mixtures]
    for first, second in (pairs[place] for place in sorted(order)):
        if first.metrics & second.metrics:
            continue
        rows = layers[layers["layer"].isin([*first.layers, *second.layers])]
        case = f"{first.name} and {second.name}"
        for method in RANKERS:
            names = _asked(answers, method, rows, case, resamples, seed)
            places = [place_of(names, family.metrics) for family in (first, second)]
            found = mixture_place(places)
            answers.rows.append(
                Answer(f"{method}, mixtures", case, "mixture", case, names[:5], found)
            )
    return answers


def _asked(
    answers: Answers, method: str, rows: pd.DataFrame, case: str, resamples: int, seed: int
) -> tuple[str, ...]:
    """Return what a method names; one that cannot answer names nothing, and that is noted."""
    try:
        return tuple(RANKERS[method](rows, resamples, seed))
    except PerfmlError as error:
        answers.left_out.append((f"{method}: {case} (counted as a miss)", str(error)))
        return ()


def mixture_place(places: Sequence[int | None]) -> int | None:
    """Return 1 if a cause is first, and else the place by which all of them were named.

    Examples
    --------
    >>> mixture_place([1, None]), mixture_place([2, 3]), mixture_place([2, None])
    (1, 3, None)
    """
    if 1 in places:
        return 1
    known = [place for place in places if place is not None]
    return max(known) if len(known) == len(places) else None


def ask_ncu(folder: Path, truth: Truth) -> Answers:
    """Ask Nsight Compute's own rules, where ``rules_raw`` and ``rules_details`` were recorded."""
    from perfml.explain import load_ncu_rules
    from perfml.ingest import ingest

    answers = Answers()
    packed = [sorted(folder.rglob(f"rules_{page}.csv.xz")) for page in ("raw", "details")]
    if not all(packed):
        answers.left_out.append(("Nsight Compute's rules", "not recorded"))
        return answers
    with tempfile.TemporaryDirectory() as place:
        texts = []
        for found in packed:
            texts.append(Path(place) / found[0].name.removesuffix(".xz"))
            texts[-1].write_bytes(lzma.decompress(found[0].read_bytes()))
        kernels, results = ingest([texts[0]]).frame, load_ncu_rules(texts[1])
    for family in truth.families:
        launches = np.flatnonzero(kernels["layer"].isin(family.layers).to_numpy(dtype=bool))
        for layer, same in kernels.iloc[launches].groupby("layer", sort=False):
            named = named_by_ncu(results[results["launch"].isin(same.index)])
            _add(answers, "Nsight Compute's rules", family, str(layer), named, family.rules)
    return answers


def named_by_ncu(results: pd.DataFrame) -> list[str]:
    """Return what Nsight Compute's rules ask for, the largest estimated speedup first.

    A result is called by the name of perfml's rule that means the same, or by its own.
    """
    from perfml.explain._rules import load_rules
    from perfml.explain.ncu_agreement import ASKING

    book = load_rules(None)
    asking = results[results["kind"].isin(ASKING)]
    order = asking["speedup"].astype(float).fillna(-1.0).sort_values(ascending=False, kind="stable")
    named: list[str] = []
    for row in asking.loc[order.index].to_dict(orient="records"):
        same = [
            rule.id
            for rule in book
            for each in rule.ncu
            if each.rule == row["rule"]
            and (each.message is None or each.message.search(str(row["message"])))
        ]
        named.append(" + ".join(dict.fromkeys(same)) or f"ncu {row['rule']}")
    return list(dict.fromkeys(named))
