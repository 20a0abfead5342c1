"""Nsight Compute's own rules beside ours: which launches both flag, one alone, or neither."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pandas as pd

from perfml.errors import InputError, PerfmlError
from perfml.explain.advice.findings import applies_to
from perfml.explain.advice.inputs import InputValues
from perfml.explain.advice.rules import Rule, Rules, shipped_rules
from perfml.kernel_names import function_name
from perfml.util.typing import Flags

ASKING = ("optimization", "warning")
"""Kinds of results that ask for something; the others inform."""

_LONGEST = 300
_COUNTS = ("both", "only_perfml", "only_ncu", "neither")


class Agreement(TypedDict):
    """A rule of perfml beside Nsight Compute's own, in launches."""

    rule: str
    launches: int
    both: int
    only_perfml: int
    only_ncu: int
    neither: int
    agree: float
    kappa: float


class NcuOnly(TypedDict):
    """What Nsight Compute's rules found and perfml's did not."""

    launch: int
    kernel: str
    rule: str
    ncu_rule: str
    message: str
    speedup: float


def load_ncu_rules(path: str | Path) -> pd.DataFrame:
    """Return the results of Nsight Compute's own rules in a report or a details page.

    Raises
    ------
    InputError
        If the file is neither, or is damaged.
    """
    from perfml.readers import Source
    from perfml.readers.ncu import csv_page as ncu_csv
    from perfml.readers.ncu import report as ncu_report

    source = Source(Path(path))
    if ncu_report.recognises(source):
        return ncu_report.rules(source)
    if ncu_csv.recognises(source):
        return ncu_csv.rules(source)
    msg = "neither a report nor a details page of Nsight Compute"
    cure = "Export one with: ncu --import FILE.ncu-rep --csv --page details --print-details all"
    raise InputError(msg, where=str(path), cure=cure)


def compare_with_ncu(
    kernels: pd.DataFrame, results: pd.DataFrame, *, min_speedup: float = 0.0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compare perfml's rules with Nsight Compute's, launch by launch.

    Parameters
    ----------
    kernels, results, min_speedup
        As of `ncu_flags`.

    Returns
    -------
    tuple of DataFrame
        As of `measure_agreement`.
    """
    book = shipped_rules()
    flags = ncu_flags(kernels, results, book, min_speedup=min_speedup)
    inputs = InputValues(kernels, None)
    ours = {rule.id: _holds_for(rule, inputs) for rule in book if rule.scope == "kernel"}
    return measure_agreement(kernels, ours, flags, results, book)


def _holds_for(rule: Rule, inputs: InputValues) -> tuple[Flags, Flags]:
    """Return whether a rule holds for each launch, and whether that could be told."""
    values, _ = inputs.of(rule.compared)
    met, told = rule.holds(lambda name: values[name], len(inputs.frame))
    applies = applies_to(rule, inputs.frame)
    return met & applies, told & applies


def ncu_flags(
    kernels: pd.DataFrame, results: pd.DataFrame, book: Rules, *, min_speedup: float = 0.0
) -> dict[str, Flags]:
    """Return, for each of our rules that has a counterpart, whether it flags each launch.

    Parameters
    ----------
    kernels
        Kernels table of one file, in the file's order.
    results
        What the reader's ``rules`` returned of the same file.
    book
        Our rules; their ``ncu`` says which of Nsight Compute's rules mean the same.
    min_speedup
        Results with a smaller estimated speedup (per cent) do not count; one without an estimate
        does.

    Returns
    -------
    dict
        Rule to whether each launch is flagged. A rule whose counterpart reports on no launch of
        the file is left out: its section was not recorded, or it has nothing to say here.

    Raises
    ------
    PerfmlError
        If the results are of other launches.
    """
    _same_launches(kernels, results)
    flags: dict[str, Flags] = {}
    names = results["rule"].astype("string").fillna("")
    messages = results["message"].astype("string").fillna("").tolist()
    asking = results["kind"].isin(ASKING).to_numpy(dtype=bool, copy=True)
    asking &= ~(results["speedup"].astype(float) < min_speedup).to_numpy(dtype=bool)
    places = results["launch"].to_numpy(dtype=int)
    for rule in book:
        if not any((names == each.rule).any() for each in rule.ncu):
            continue
        hit = np.zeros(len(results), dtype=bool)
        for each in rule.ncu:
            same = (names == each.rule).to_numpy(dtype=bool)
            pattern = each.message
            if pattern is not None:
                same = same & np.array([pattern.search(text) is not None for text in messages])
            hit |= same
        flag = np.zeros(len(kernels), dtype=bool)
        flag[places[hit & asking]] = True
        flags[rule.id] = flag
    return flags


def _same_launches(kernels: pd.DataFrame, results: pd.DataFrame) -> None:
    if results.empty:
        msg = "the file holds no results of Nsight Compute's rules"
        raise PerfmlError(msg, cure="Profile with --set full, or with the sections of the rules.")
    last = int(results["launch"].max())
    if last >= len(kernels):
        msg = "the results of the rules are of other launches than the table"
        raise PerfmlError(
            msg,
            found=f"launch {last} of a table with {len(kernels)}",
            cure="Give the table that was ingested from the same file.",
        )
    first = results.drop_duplicates("launch")
    theirs = [_function(name) for name in first["kernel"]]
    ours = [_function(name) for name in kernels["kernel"].iloc[first["launch"].to_numpy(dtype=int)]]
    for left, right in zip(theirs, ours, strict=True):
        if left and right and left != right:
            msg = "the results of the rules are of other launches than the table"
            raise PerfmlError(
                msg,
                found=f"{left} where the table has {right}",
                cure="Give the table that was ingested from the same file, in its order.",
            )


def _function(name: object) -> str:
    return function_name(str(name)) or str(name)


def measure_agreement(
    kernels: pd.DataFrame,
    ours: dict[str, tuple[Flags, Flags]],
    theirs: dict[str, Flags],
    results: pd.DataFrame,
    book: Rules,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compare launch by launch.

    Parameters
    ----------
    kernels
        Kernels table.
    ours
        Rule to whether it holds for each launch, and whether that could be told.
    theirs
        From `ncu_flags`.
    results
        Nsight Compute's results, for what it says alone.
    book
        Our rules.

    Returns
    -------
    tuple of DataFrame
        ``rule, launches, both, only_perfml, only_ncu, neither, agree, kappa`` (Cohen's kappa,
        missing where one side says the same of all launches and so does the other); and what
        Nsight Compute says alone: ``launch, kernel, rule, ncu_rule, message, speedup``.
    """
    rows, alone = [], []
    for rule in book:
        if rule.id not in theirs or rule.id not in ours:
            continue
        met, told = ours[rule.id]
        rows.append((rule.id, *compare_flags(met[told], theirs[rule.id][told]).row()))
        only = np.flatnonzero(told & ~met & theirs[rule.id])
        alone += _alone(kernels, results, rule.id, [each.rule for each in rule.ncu], only)
    columns = list(Agreement.__annotations__), list(NcuOnly.__annotations__)
    return pd.DataFrame(rows, columns=columns[0]), pd.DataFrame(alone, columns=columns[1])


@dataclass(frozen=True)
class FlagAgreement:
    """How two sides that flag launches agree.

    Attributes
    ----------
    launches
        All of them.
    both, only_perfml, only_ncu, neither
        Who flagged how many.
    """

    launches: int
    both: int
    only_perfml: int
    only_ncu: int
    neither: int

    @property
    def agree(self) -> float:
        """Share of the launches of which both say the same; NaN without launches."""
        return (self.both + self.neither) / self.launches if self.launches else math.nan

    @property
    def kappa(self) -> float:
        """Cohen's kappa, the agreement beyond chance; NaN where chance alone gives it."""
        if not self.launches:
            return math.nan
        left = (self.both + self.only_perfml) / self.launches
        right = (self.both + self.only_ncu) / self.launches
        chance = left * right + (1 - left) * (1 - right)
        # rounded: a side that says the same of all launches agrees by chance alone, which is 0
        beyond = math.nan if chance >= 1 else (self.agree - chance) / (1 - chance)
        return round(beyond, 12) + 0.0

    def row(self) -> tuple[float, ...]:
        """Return it in the order of `Agreement`, but for the rule."""
        return (*astuple(self), self.agree, self.kappa)


def compare_flags(perfml: Flags, ncu: Flags) -> FlagAgreement:
    """Return how the flags of two sides agree, launch by launch.

    References
    ----------
    J. Cohen, "A coefficient of agreement for nominal scales" (1960).

    Examples
    --------
    >>> import numpy as np
    >>> compare_flags(np.array([True, True, False, False]), np.array([True, False, False, False]))
    FlagAgreement(launches=4, both=1, only_perfml=1, only_ncu=0, neither=2)
    """
    flags = (perfml & ncu, perfml & ~ncu, ~perfml & ncu, ~perfml & ~ncu)
    return FlagAgreement(len(perfml), *(int(each.sum()) for each in flags))


def _alone(
    kernels: pd.DataFrame, results: pd.DataFrame, rule: str, names: list[str], places: Any
) -> list[tuple[Any, ...]]:
    said = results[results["launch"].isin(places) & results["rule"].isin(names)]
    said = said[said["kind"].isin(ASKING)]
    return [
        (
            int(row["launch"]),
            str(kernels["kernel"].iloc[int(row["launch"])])[:_LONGEST],
            rule,
            row["rule"],
            str(row["message"])[:_LONGEST],
            row["speedup"],
        )
        for row in said.to_dict(orient="records")
    ]
