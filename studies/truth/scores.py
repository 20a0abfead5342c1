"""Score explanations against planted causes: the place at which each method names the cause."""

from __future__ import annotations

import argparse
import inspect
import json
import lzma
import math
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from perfml.errors import InputError, PerfmlError
from perfml.util.files import write_text
from studies.truth.labels import causes_of_rules, ids_of, retired_rules

if TYPE_CHECKING:
    from perfml.explain import LayerDiff
    from perfml.explain.compared import Side
    from perfml.explain.model.explainer import Explainer

EFFECT = 1.05
"""A knob that makes a launch less than 5 % slower has no effect to explain; it is no case."""

TRUTH_FILE = "truth.json"


def run_study(
    measure: Callable[..., dict[str, Any]],
    doc: str | None,
    arguments: Sequence[str] | None = None,
) -> int:
    """Run a study of recorded data as a program: measure, then print the document or keep it.

    Parameters
    ----------
    measure
        Returns the document. It takes a folder with labels and reports of strangers, or nothing.
    doc
        Of its module.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--out", type=Path, help="keep what was measured here")
    for name in inspect.signature(measure).parameters:
        parser.add_argument(f"--{name}", type=Path, help="folder with labels.json and the reports")
    given = vars(parser.parse_args(arguments))
    out = given.pop("out")
    hand_over(measure(**given), out)
    return 0


def hand_over(document: dict[str, Any], out: Path | None) -> None:
    """Print a study's document, or write it to a file."""
    text = json.dumps(document, indent=1) + "\n"
    if out is None:
        sys.stdout.write(text)
    else:
        write_text(out, text)


@dataclass(frozen=True)
class Family:
    """What was planted: see ``studies/workloads/planted/families.py``."""

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
        Place of the first planted cause in it, from 1; None if none is among them.
    last
        Place by which all planted causes were named; as `place` where there is one.
    part
        ``base`` (a level against the base, or a whole family), ``between`` (two other levels) or
        ``mixture`` (two families).
    """

    method: str
    family: str
    kind: str
    case: str
    named: tuple[str, ...]
    place: int | None
    last: int | None
    part: str = "base"


@dataclass
class Answers:
    """All answers, and the cases that were left out with the reason."""

    rows: list[Answer] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)


def read_truth(folder: Path, *, held_out: bool = False) -> Truth:
    """Read the planted causes beside a dataset: ``truth.json`` there, or of one of its runs.

    Parameters
    ----------
    folder
        The dataset.
    held_out
        Return the families that are kept aside, and only those; by default all others.

    Raises
    ------
    InputError
        If there is none, or it is no such document.
    """
    found = [folder / TRUTH_FILE, *sorted(folder.glob(f"*/{TRUTH_FILE}"))]
    found += sorted(folder.glob(f"*/*/{TRUTH_FILE}"))
    path = next((each for each in found if each.is_file()), None)
    if path is None:
        what, cure = "no planted causes here", "Record one: studies/data/h200-planted/record.py"
        raise InputError(what, where=str(folder), found=f"no {TRUTH_FILE}", cure=cure)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        families = tuple(
            _family(each)
            for each in document["families"]
            if bool(each.get("held_out", False)) is held_out
        )
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
        frozenset(name for recorded in cause["terms"] for name in ids_of(recorded)),
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
    return max(0.0, middle - half), min(1.0, middle + half)


def ask_pairs(
    layers: pd.DataFrame,
    kernels: pd.DataFrame | None,
    truth: Truth,
    *,
    seed: int,
    shapley: bool,
    between: bool = False,
) -> Answers:
    """Ask what makes each layer slower at a level than at another: the attributions, and advice.

    Parameters
    ----------
    shapley
        Whether to ask the model too; its exact values take longest.
    between
        Ask about every two levels other than the base, instead of each level against the base.
    """
    from perfml.explain import explain, sides_of
    from perfml.explain.model.explainer import Explainer

    answers = Answers()
    homes = {layer: family for family in truth.families for layer in family.layers}
    present = [each for each in truth.levels if each in set(layers["backend"].astype(str))]
    others = [each for each in present if each != truth.baseline]
    pairs = [(truth.baseline, each) for each in others]
    if between:
        pairs = [(a, b) for place, a in enumerate(others) for b in others[place + 1 :]]
    explainer = Explainer(layers, seed=seed) if shapley else None
    part = "between" if between else "base"
    for baseline, level in pairs:
        left, right = sides_of(layers, baseline, level, kernels=kernels)
        both = set(left.layers["layer"]) & set(right.layers["layer"])
        asked = [layer for layer in homes if layer in both]
        for detail in explain(left, right, layers=asked, model=None).details:
            case = f"{detail.layer} at {level}" + (f" against {baseline}" if between else "")
            if detail.time.ratio < EFFECT:
                times = f"{detail.time.ratio:.3f} times the time at {baseline}"
                answers.left_out.append((case, times))
                continue
            named = named_by_explain(detail, right.name)
            if explainer is not None:
                named["Shapley"] = named_by_model(explainer, detail.layer, left, right)
            for method, names in named.items():
                add_answer(answers, method, [homes[detail.layer]], case, names, part)
    return answers


def named_by_explain(detail: LayerDiff, target: str) -> dict[str, list[str]]:
    """Return what the causes, and advice, name in one comparison."""
    mine = detail.advice[detail.advice["side"] == target]
    return {
        "causes": _towards(detail.causes.terms, "term"),
        "advice": list(mine["rules"].explode().drop_duplicates()),
    }


def named_by_model(explainer: Explainer, layer: str, left: Side, right: Side) -> list[str]:
    """Return the metrics by their exact Shapley value."""
    rows = [side.layers[side.layers["layer"] == layer] for side in (left, right)]
    return _towards(explainer.attribute(rows[0], rows[1]).values, "metric")


def _towards(frame: pd.DataFrame, column: str) -> list[str]:
    up = frame[frame["log_ratio"] > 0].sort_values("log_ratio", ascending=False)
    return [str(name) for name in up[column]]


_ACCEPTED: dict[str, Callable[[Family], frozenset[str]]] = {
    "causes": lambda family: family.terms,
    "advice": lambda family: frozenset(causes_of_rules(family.rules)),
    "Nsight Compute's rules": lambda family: family.rules | _named_so(family.rules),
    "Nsight Compute's, less remarks": lambda family: family.rules | _named_so(family.rules),
}
"""What counts as naming a family's cause; other methods name metrics."""


GENERAL = ("HighPipeUtilization", "IssueSlotUtilization", "SOLBottleneck")
"""Nsight Compute's remarks on a symptom (idle pipes, idle issue slots, low throughput)."""

_NCU_NAMES = {
    "uncoalesced_load": "ncu UncoalescedGlobalAccess",
    "uncoalesced_store": "ncu UncoalescedGlobalAccess",
}
"""Its rules that say a cause without telling loads from stores, as perfml's rules do."""


def _named_so(rules: frozenset[str]) -> frozenset[str]:
    return frozenset(_NCU_NAMES[rule] for rule in rules if rule in _NCU_NAMES)


def add_answer(
    answers: Answers,
    method: str,
    families: Sequence[Family],
    case: str,
    named: Iterable[str],
    part: str = "base",
) -> None:
    names = tuple(map(str, named))
    accepted = _ACCEPTED.get(method, lambda family: family.metrics)
    places = [place_of(names, accepted(family)) for family in families]
    known = [place for place in places if place is not None]
    last = max(known) if len(known) == len(places) else None
    name = " and ".join(family.name for family in families)
    kind = families[0].kind if len(families) == 1 else "mixture"
    first = min(known, default=None)
    answers.rows.append(Answer(method, name, kind, case, names[:5], first, last, part))


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


GINI = {"Gini, one tree": "dt", "Gini, forest": "rf"}
"""Method -> model. `perfml.modeling.rank` makes no ranking of a family, which has four layers."""


def ask_tables(layers: pd.DataFrame, truth: Truth, *, mixtures: int, seed: int) -> Answers:
    """Ask which metrics explain the times of a family's layers, and of those of two families."""
    answers = Answers()
    for family in truth.families:
        rows = layers[layers["layer"].isin(family.layers)]
        if rows.empty:
            continue
        times = rows.groupby("backend")["time_us"].median()
        if truth.baseline not in times or times.max() / times[truth.baseline] < EFFECT:
            answers.left_out.append((f"all of {family.name}", "no level is slower than the base"))
            continue
        for method in GINI:
            names = _asked(answers, method, rows, f"all of {family.name}", seed)
            add_answer(answers, method, [family], f"all of {family.name}", names)
    pairs = disjoint_pairs(truth, layers)
    order = np.random.default_rng(seed).permutation(len(pairs))[:mixtures]
    for first, second in (pairs[place] for place in sorted(order)):
        rows = layers[layers["layer"].isin([*first.layers, *second.layers])]
        case = f"all of {first.name} and {second.name}"
        for method in GINI:
            names = _asked(answers, method, rows, case, seed)
            add_answer(answers, method, [first, second], case, names, "mixture")
    return answers


def disjoint_pairs(truth: Truth, layers: pd.DataFrame) -> list[tuple[Family, Family]]:
    """Return every two recorded families whose causes have no metric in common."""
    known = set(layers["layer"])
    present = [each for each in truth.families if known & set(each.layers)]
    return [
        (a, b)
        for place, a in enumerate(present)
        for b in present[place + 1 :]
        if not a.metrics & b.metrics
    ]


def _asked(
    answers: Answers, method: str, rows: pd.DataFrame, case: str, seed: int
) -> tuple[str, ...]:
    """Return what a method names; one that cannot answer names nothing, and that is noted."""
    try:
        return tuple(named_by_gini(rows, GINI[method], seed))
    except PerfmlError as error:
        answers.left_out.append((f"{method}: {case} (counted as a miss)", str(error)))
        return ()


def ask_ncu(folder: Path, truth: Truth) -> Answers:
    """Ask Nsight Compute's own rules, where ``rules_raw`` and ``rules_details`` were recorded.

    They judge launches, not pairs of them: the slow ones that were recorded. In a mixture of two
    launches the estimated speedups are weighted by the launches' shares of the time.
    """
    from perfml.ingest.profiles import ingest
    from studies.truth.ncu_agreement import load_ncu_rules

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
    times = kernels["time_us"].to_numpy(dtype=float)
    results = results.assign(us=times[results["launch"].to_numpy()])

    def ask(families: Sequence[Family], layers: Sequence[str], part: str) -> None:
        launches = kernels.index[kernels["layer"].isin(layers)]
        mine = results[results["launch"].isin(launches)]
        # the most favourable reading of a remark on a symptom is to pass over it, as a reader may
        less = mine[~mine["rule"].isin(GENERAL) | mine["speedup"].isna()]
        for method, asked in zip(list(_ACCEPTED)[-2:], (mine, less), strict=True):
            add_answer(answers, method, families, " and ".join(layers), named_by_ncu(asked), part)

    layers = dict.fromkeys(kernels["layer"].dropna().astype(str))
    for family in truth.families:
        for layer in layers:
            if layer in family.layers:
                ask([family], [layer], "base")
    for first, second in disjoint_pairs(truth, kernels):
        both = [[x for x in layers if x in each.layers] for each in (first, second)]
        for pair in zip(*both, strict=False):
            ask([first, second], pair, "mixture")
    return answers


def named_by_ncu(results: pd.DataFrame) -> list[str]:
    """Return what Nsight Compute's rules ask for, the largest estimated speedup first.

    A result is called by the name of perfml's rule that means the same, or by its own. Where there
    is a column ``us``, the time of the launch, the speedup is taken of that.
    """
    from studies.truth.ncu_agreement import ASKING

    asking = results[results["kind"].isin(ASKING)]
    saved = asking["speedup"].astype(float) * asking.get("us", 1.0)
    order = saved.fillna(-1.0).sort_values(ascending=False, kind="stable")
    named: list[str] = []
    for row in asking.loc[order.index].to_dict(orient="records"):
        same = [
            name
            for name, rule in retired_rules().items()
            for each in rule.get("ncu", ())
            if each["rule"] == row["rule"]
            and re.search(each.get("message", ""), str(row["message"]), re.IGNORECASE)
        ]
        named.append(" + ".join(dict.fromkeys(same)) or f"ncu {row['rule']}")
    return list(dict.fromkeys(named))
