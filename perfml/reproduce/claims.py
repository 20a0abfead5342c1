"""The study's claims one by one: a verdict each (`LEGEND`), and the evidence in a sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from perfml.reproduce import published
from perfml.reproduce.published import KEY_METRIC, Source
from perfml.util.json_values import json_object
from perfml.util.words import percent

REPRODUCED = "reproduced"
SPREAD = "within the spread"
NOT_REPRODUCED = "not reproduced"
NOT_TESTABLE = "not testable on this data"
CARRIES = "carries over"
DOES_NOT_CARRY = "does not carry over"
ELSEWHERE = "recorded elsewhere, not computed here"
VERDICTS = (REPRODUCED, SPREAD, NOT_REPRODUCED, NOT_TESTABLE, CARRIES, DOES_NOT_CARRY, ELSEWHERE)

_NO_FILE = "The published file is not at hand: perfml datasets nazir2024, or name it with --data."
USUAL, POSSIBLE = 0.95, 0.05
CHANCE_OF_ORDER = 1 / 6

LEGEND = (
    "reproduced: same count or range, or holds in at least 95 % of the splits. within the spread: "
    "a score between the 2.5 % and 97.5 % quantiles, or true in 5 to 95 % of the splits. "
    "not reproduced: neither. An average is judged by the mean over the splits, an order "
    "of three models by chance (17 %). not testable on this data: the data lacks what the claim is "
    "about. carries over, does not carry over: judged on another GPU or library, which is named. "
    "Whether it held on the study's GPU is not known. recorded elsewhere, not computed here: read "
    "in a public profile, the same whatever data are given."
)


@dataclass(frozen=True)
class Claim:
    """One claim: who made it where, what became of it, and why."""

    claim: str
    verdict: str
    evidence: str
    where: str
    data: str

    to_dict = json_object


def counted(verdict: str, number: int) -> str:
    """Return how many claims have a verdict, as a part of a sentence.

    Examples
    --------
    >>> counted(DOES_NOT_CARRY, 8), counted(CARRIES, 1), counted(REPRODUCED, 2)
    ('8 do not carry over', '1 carries over', '2 reproduced')
    """
    several = {CARRIES: "carry over", DOES_NOT_CARRY: "do not carry over"}
    return f"{number} {verdict if number == 1 else several.get(verdict, verdict)}"


def by_share(share: float) -> str:
    """Return the verdict on a statement that holds in a share of the splits."""
    return REPRODUCED if share >= USUAL else SPREAD if share >= POSSIBLE else NOT_REPRODUCED


class Book:
    """Collects claims about one dataset."""

    def __init__(self, results: dict[str, Any], published_data: bool, name: str) -> None:
        self.results = results
        self.published_data = published_data
        self.name = name
        self.claims: list[Claim] = []

    def add(self, where: str, claim: str, verdict: str, evidence: str) -> None:
        """Add a claim about the data's own numbers."""
        if not self.published_data and verdict != NOT_TESTABLE:
            verdict = NOT_TESTABLE
            evidence = f"On {self.name}, because the published file is missing: {evidence}"
        self.claims.append(Claim(claim, verdict, evidence, where, self.name))


def data_claims(book: Book) -> None:
    """Judge the claims about the file: rows, columns, ranges, constants."""
    data, ranges = book.results["data"], book.results["ranges"]
    rows = data["rows"]
    book.add(
        "2.4.1",
        f"{published.ROWS} samples",
        REPRODUCED if rows == published.ROWS else NOT_REPRODUCED,
        f"The data has {rows} rows"
        + ("; the file has 262 lines, its header included." if data["original"] else "."),
    )
    if not ranges:
        for where, claim in (
            ("Table 2.2", "21 value ranges"),
            ("2.4.2", "three metrics never change"),
            ("2.4.2", "times divided by 1000 lie in [0; 1]"),
        ):
            book.add(where, claim, NOT_TESTABLE, _NO_FILE)
        return
    same = sum(row["match"] for row in ranges)
    wrong = [row["metric"] for row in ranges if not row["match"]]
    book.add(
        "Table 2.2",
        f"{len(ranges)} value ranges",
        REPRODUCED if not wrong else NOT_REPRODUCED,
        f"{same} of {len(ranges)} are identical to two decimals"
        + (f"; different: {', '.join(wrong[:5])}." if wrong else "."),
    )
    constant = {row["metric"] for row in ranges if row["file"] and row["file"][0] == row["file"][1]}
    book.add(
        "2.4.2",
        "three metrics never change",
        REPRODUCED if constant == set(published.CONSTANT) else NOT_REPRODUCED,
        f"Constant columns: {', '.join(sorted(constant)) or 'none'}.",
    )
    low, high = next(row["file"] for row in ranges if row["metric"] == "time")
    book.add(
        "2.4.2",
        "times divided by 1000 lie in [0; 1]",
        REPRODUCED if high <= 1000 else NOT_REPRODUCED,
        f"They lie between {low / 1000:.4g} and {high / 1000:.4g}.",
    )


def regression_claims(book: Book) -> None:
    """Judge table 2.5: the MAPE values, their order, the lists."""
    models = book.results["regression"]
    lookup = book.results["lookup_gld_mape"]
    for name, told in published.REGRESSION.items():
        entry = models[name]
        random = entry["random"]
        mean, below = random["mean"], random["share_below_0.01"]
        verdict = REPRODUCED if mean < published.MAPE_BELOW else by_share(min(below, 0.9))
        tail = (
            f" The mean has a heavy tail: single splits reach {random['max']:.3g}."
            if random["max"] > 10 * random["median"]
            else ""
        )
        beside = f" A lookup table of {KEY_METRIC} alone: {lookup:.4f}." if lookup else ""
        book.add(
            "2.4.2",
            f"{told.title}: average test MAPE below 0.01",
            verdict,
            f"Mean {mean:.4f}, median {random['median']:.4f} over {random['splits']} random "
            f"splits; below 0.01 in {percent(below)} of them.{tail}{beside}{_unseen(entry)}",
        )
    for name, told in published.REGRESSION.items():
        random, percentile = models[name]["random"], models[name]["percentile_of_published"]
        inside = random["q025"] <= told.score <= random["q975"]
        place = (
            "" if percentile is None else f"; the published value is at percentile {percentile:.0f}"
        )
        book.add(
            "Table 2.5",
            f"{told.title}: test MAPE {told.score}",
            SPREAD if inside else NOT_REPRODUCED,
            f"95 % of {random['splits']} splits give {random['q025']:.4f} to {random['q975']:.4f} "
            f"(median {random['median']:.4f}){place}.{_unseen(models[name])}",
        )
    orders = book.results["order_shares"]
    share = orders.get("lmt < gbr < dt", 0.0)
    usual, often = next(iter(orders.items()))
    verdict = (
        REPRODUCED if share >= USUAL else SPREAD if share >= CHANCE_OF_ORDER else NOT_REPRODUCED
    )
    book.add(
        "Table 2.5",
        "MAPE order: linear model tree < gradient boosting < decision tree",
        verdict,
        f"In {percent(share)} of the splits (one of six orders by chance: 17 %); most often "
        f"{usual} ({percent(often)}).",
    )
    for name, told in published.REGRESSION.items():
        _list_claim(book, "Table 2.5", told.title, models[name])


def _unseen(entry: dict[str, Any], digits: int = 2) -> str:
    """Say what a model does on a layer that was held out, over layers and model seeds."""
    unseen = entry["leave_one_layer_out"]
    if not unseen:
        return ""
    return f" With a layer held out: {unseen['min']:.{digits}f} to {unseen['max']:.{digits}f}."


def _list_claim(book: Book, where: str, title: str, entry: dict[str, Any]) -> None:
    share, as_set = entry["published_top3_share"], entry["published_top3_set_share"]
    wanted = entry["published_top3"]
    usual = ", ".join(f"{row['metric']} {row['probability']:.2f}" for row in entry["top3"][:4])
    book.add(
        where,
        f"{title}: most important {', '.join(wanted)}",
        by_share(share),
        f"This order in {percent(share)} of the splits, this set in {percent(as_set)}; "
        f"probability of a place among the first three: {usual}.",
    )


def classification_claims(book: Book) -> None:
    """Judge table 2.6: accuracies and lists."""
    models = book.results["classification"]
    for name, told in published.CLASSIFICATION.items():
        random = models[name]["random"]
        book.add(
            "Table 2.6",
            f"{told.title}: test accuracy 100 %",
            by_share(random["share_perfect"]),
            f"Perfect in {percent(random['share_perfect'])} of {random['splits']} random splits, "
            f"lowest {random['min']:.3f}.{_unseen(models[name])}",
        )
    for name, told in published.CLASSIFICATION.items():
        title = told.title + (" (scikit-learn's default C = 1)" if name == "lr" else "")
        _list_claim(book, "Table 2.6", title, models[name])
        if name == "lr":
            _list_claim(book, "Table 2.6", f"{told.title} with C = 0.1", models["lr:0.1"])
            last = book.claims[-1]
            perfect = percent(models["lr:0.1"]["random"]["share_perfect"])
            also = (
                f" With this C accuracy is 1 in {perfect} of the splits. It was found by a "
                "search; which one the study used is not stated."
            )
            book.claims[-1] = replace(last, evidence=last.evidence + also)


def importance_claims(book: Book) -> None:
    """Judge the conclusions drawn from the lists."""
    regressors = book.results["key_metric"]["regression"]
    if not regressors:
        book.add(
            "2.4.2",
            f"{KEY_METRIC} is one of the most important metrics",
            NOT_TESTABLE,
            f"{KEY_METRIC} is no feature of this data.",
        )
        return
    alone = KEY_METRIC in book.results["data"]["identifying_metrics"]
    told = ", ".join(f"{name} {percent(each['top3'])}" for name, each in regressors.items())
    caution = (
        " Its values alone tell all conditions apart, so this shows recognition of a condition, "
        "not a cause of its time."
        if alone
        else ""
    )
    book.add(
        "2.4.2",
        f"Regression: {KEY_METRIC} is one of the most important metrics",
        by_share(min(regressor["top3"] for regressor in regressors.values())),
        f"Among the first three of each model in (share of splits): {told}.{caution}",
    )
    classifiers = book.results["key_metric"]["classification"]
    pair = min(classifiers[name]["first"] for name in ("dt", "lr"))
    first = ", ".join(f"{name} {percent(each['first'])}" for name, each in classifiers.items())
    book.add(
        "2.4.2",
        f"Classification: {KEY_METRIC} is first in two of three models (DT and LR)",
        by_share(pair),
        f"First in (share of splits): {first}.",
    )


SECOND_METRIC = "ldst_fu_utilization"


def second_metric_claim(book: Book) -> None:
    """Judge the conclusion that names a second metric beside the key metric."""
    claim = f"{KEY_METRIC} and {SECOND_METRIC} provide the most information"
    if SECOND_METRIC not in book.results["data"]["features"]:
        book.add("4", claim, NOT_TESTABLE, f"{SECOND_METRIC} is no feature of this data.")
        return
    shares = {
        f"{title} {name}": next(
            (row["probability"] for row in entry["top3"] if row["metric"] == SECOND_METRIC), 0.0
        )
        for title, task, told in (
            ("regression", "regression", published.REGRESSION),
            ("classification", "classification", published.CLASSIFICATION),
        )
        for name, entry in book.results[task].items()
        if name in told
    }
    told = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
    book.add(
        "4",
        claim,
        by_share(min(shares.values())),
        f"{SECOND_METRIC} among the first three of each model in (share of splits): {told}.",
    )


def generalisation_claims(book: Book) -> None:
    """Judge what the scores are taken to support: conclusions beyond the measured layers."""
    claim = "The scores carry over to layers not in training (chapter 4 builds on them)"
    models = book.results["regression"]
    unseen = {
        name: models[name]["leave_one_layer_out"]
        for name in published.REGRESSION
        if models[name]["leave_one_layer_out"]
    }
    if not unseen:
        book.add("4", claim, NOT_TESTABLE, "The data does not say which layer a row belongs to.")
        return
    told = ", ".join(
        f"{name} {each['min']:.2f} to {each['max']:.2f}" for name, each in unseen.items()
    )
    mean = book.results["baselines"]["regression"]["training-mean"]["leave_one_layer_out"]
    worst = min(each["min"] for each in unseen.values())
    layers = len(book.results["data"]["layers"])
    limit = (
        f" With {layers} layers this can refute generalisation, not measure it."
        if layers < 5
        else ""
    )
    book.add(
        "4",
        claim,
        NOT_REPRODUCED if worst >= 2 * published.MAPE_BELOW else SPREAD,
        f"MAPE with one layer held out, over layers and model seeds: {told}. Predicting the mean "
        f"of the training rows: {mean['min']:.2f} to {mean['max']:.2f}.{limit}",
    )


def judge(results: dict[str, Any], source: Source) -> list[Claim]:
    """Judge every claim that is about the analysed data.

    `results` is the document so far. What was published is testable on data of its schema only.
    """
    book = Book(results, source.published, source.name)
    data_claims(book)
    regression_claims(book)
    classification_claims(book)
    importance_claims(book)
    second_metric_claim(book)
    generalisation_claims(book)
    return [*book.claims, library_order(source)]


LIBRARIES = ("trt", "cudnn", "cublas")
"""The published order, fastest first, as the file names them."""


def library_order(source: Source) -> Claim:
    """Judge the order of the three libraries in the two layers that the published file has."""
    claim = "TensorRT is fastest, cuDNN in the middle, cuBLAS slowest: in layers 3 and 20"
    layers = source.layers
    means = layers.groupby(["layer", "backend"], observed=True)["time_us"].mean()
    wanted = ("conv_03", "conv_20")
    known = all((layer, name) in means.index for layer in wanted for name in LIBRARIES)
    if not source.published or not known:
        evidence = "The data does not hold the three libraries in both layers under known names."
        return Claim(claim, NOT_TESTABLE, evidence, "Figure 2-4", source.name)
    times = {layer: [float(means.loc[(layer, name)]) for name in LIBRARIES] for layer in wanted}
    right = all(list(values) == sorted(values) for values in times.values())
    told = "; ".join(
        f"layer {int(layer[-2:])}: " + " < ".join(f"{value:.0f}" for value in values)
        if values == sorted(values)
        else f"layer {int(layer[-2:])}: " + ", ".join(f"{value:.0f}" for value in values)
        for layer, values in times.items()
    )
    note = (
        " For layer 20 the published TensorRT program computes 85 % of the outputs (no padding)."
        if source.original
        else ""
    )
    return Claim(
        claim,
        REPRODUCED if right else NOT_REPRODUCED,
        f"Mean times in µs (TensorRT, cuDNN, cuBLAS), {told}.{note}",
        "Figure 2-4",
        source.name,
    )
