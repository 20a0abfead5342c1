"""What the shell completes: datasets and tables, and the layers and backends inside them.

Completion runs at every press of the tab key. It reads one column of a table with pyarrow, or
a dataset's small text files, never pandas; whatever goes wrong, it offers nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

_SUFFIXES = (".parquet", ".csv", ".xz", ".gz", ".ncu-rep", ".sqlite", ".nvvp", ".json", ".txt")
_MOST = 200


def datasets(incomplete: str) -> list[str]:
    """Offer the datasets' names, and the folders and tables that begin so."""
    try:
        return _matching([*_names(), *_paths(incomplete)], incomplete)
    except (OSError, ValueError):
        return []


def layers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the layers of the dataset that was typed before."""
    return _values(ctx, "layer", incomplete)


def backends(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the backends of the dataset that was typed before."""
    return _values(ctx, "backend", incomplete)


def conditions(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer what ``--where`` takes: columns, then the values of a column."""
    column, equals, value = incomplete.partition("=")
    if not equals:
        return [f"{name}=" for name in CONDITIONS if name.startswith(column)]
    return [f"{column}={found}" for found in _values(ctx, column, value)]


CONDITIONS = ("backend", "batch", "precision", "layer", "workload", "device", "run_id")
"""Columns that tell rows apart."""


def models(incomplete: str) -> list[str]:
    """Offer the models; after a comma, one more."""
    head, comma, last = incomplete.rpartition(",")
    taken = set(head.split(",")) if head else set()
    names = [name for name in MODELS if name not in taken and name.startswith(last)]
    return [f"{head}{comma}{name}" for name in names]


MODELS = ("dt", "gbr", "lmt", "lr", "rf")
"""The published models; the registry's other ones need libraries that completion must not load."""


def _names() -> list[str]:
    # the registry alone: no pandas
    from perfml.datasets.registry import DATASETS

    return list(DATASETS)


def _paths(incomplete: str) -> Iterator[str]:
    folder, _, start = incomplete.rpartition("/")
    base = Path(folder or ("/" if incomplete.startswith("/") else "."))
    head = incomplete[: len(incomplete) - len(start)]
    for path in sorted(base.iterdir())[: 10 * _MOST]:
        if path.name.startswith(".") and not start.startswith("."):
            continue
        if path.is_dir():
            yield f"{head}{path.name}/"
        elif path.suffix in _SUFFIXES:
            yield f"{head}{path.name}"


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    found = dict.fromkeys(name for name in names if name.startswith(incomplete))
    return list(found)[:_MOST]


def _values(ctx: typer.Context, column: str, incomplete: str) -> list[str]:
    try:
        found: list[str] = []
        for dataset in _given(ctx):
            found += _column(dataset, column)
        return _matching(found, incomplete)
    except Exception:
        return []


def _given(ctx: typer.Context) -> list[str]:
    """Return the datasets typed so far; before an option has its value, they are loose words."""
    from perfml.datasets.registry import is_dataset

    value: Any = ctx.params.get("dataset")
    typed = [str(each) for each in value] if isinstance(value, (list, tuple)) else [str(value)]
    return [each for each in [*typed, *ctx.args] if is_dataset(each) or Path(each).exists()]


def _column(dataset: str, column: str) -> list[str]:
    path = Path(dataset)
    from perfml.datasets.registry import fetch, is_dataset, layers_meant

    if not path.exists() and is_dataset(dataset):
        path = fetch(dataset)
    tables = [path]
    if path.is_dir():
        # layers that lie there, or the launches that they are merged from
        tables = sorted(path.glob("*layers*.parquet"))[:1] or sorted(path.glob("*kernels*.parquet"))
        if not tables:
            return _loose(path, column)
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    columns = [pq.ParquetFile(table).read(columns=[column]).column(column) for table in tables]
    values = [value for each in columns for value in pc.unique(each).to_pylist()]
    names = dict.fromkeys(str(value) for value in values if value is not None)
    if column == "layer" and (about := layers_meant(path.name)):
        return [name for name in names if re.fullmatch(about, name)]
    return list(names)


def _loose(folder: Path, column: str) -> list[str]:
    """Return the layers that a folder of raw profiles describes; its backends take a full read."""
    described = folder / "layers.json"
    if column != "layer" or not described.is_file():
        return []
    document = json.loads(described.read_text(encoding="utf-8"))
    rows = document.get("layers", []) if isinstance(document, dict) else document
    return list(dict.fromkeys(str(row.get("layer", row.get("name", ""))) for row in rows))
