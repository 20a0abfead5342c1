"""`perfml.rank` and `perfml.evaluate` take a path, launches or layers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import pandas as pd

from perfml.datasets.frames import load_dataset, read
from perfml.datasets.selection import Source
from perfml.ingest.merge.rule import merge
from perfml.modeling.own_data import as_pandas
from perfml.modeling.ranking import rank as ranking
from perfml.modeling.scoring import evaluate as scoring

Options = ParamSpec("Options")
Answer = TypeVar("Answer")


def _opened(
    function: Callable[Concatenate[Any, Options], Answer],
) -> Callable[Concatenate[Any, Options], Answer]:
    """Let a function of a Layers table take a path or a Kernels table as well."""

    @functools.wraps(function)
    def asked(X: Any, *given: Options.args, **options: Options.kwargs) -> Answer:
        X = as_pandas(X)
        own = bool(given) or options.get("y") is not None
        return function(_launches(X) if own else _layers(X), *given, **options)

    return cast("Callable[Concatenate[Any, Options], Answer]", asked)


def _launches(X: Any) -> Any:
    return read(X) if isinstance(X, Source) else X


def _layers(X: Any) -> Any:
    """Return the layers of a path or of a Kernels table; anything else as it is."""
    if isinstance(X, Source):
        return load_dataset(X)
    launches = isinstance(X, pd.DataFrame) and {"kernel", "run_id", "time_us"} <= set(X.columns)
    return merge(X) if launches else X


rank = _opened(ranking.rank)
evaluate = _opened(scoring.evaluate)
