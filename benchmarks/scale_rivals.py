"""The tables of benchmarks/scale.py, and what an engineer would write to merge them."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "datasets" / "h200-yolov4-tiny" / "kernels.parquet"
ROW_GROUP = 1 << 17
KEY = ("run_id", "iteration", "layer")
FIRST = ("workload", "backend", "precision", "batch", "device", "compute_capability")


def published() -> tuple[str, ...]:
    from perfml.metrics import PUBLISHED

    return PUBLISHED


def versions() -> dict[str, str]:
    names = ("polars", "duckdb", "pyarrow", "pandas", "numpy")
    return {name: importlib.metadata.version(name) for name in names}


def resampled(rows: int) -> Iterator[Any]:
    """Yield one Arrow table a run until there are enough rows: the 19 metrics and all identity."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    from perfml.tables import KERNEL_COLUMNS, KERNEL_OPTIONAL

    held = set(pq.read_schema(RECORDED).names)
    # durations are drawn anew, and starts would not fit them: without one a layer takes its sum
    optional = [name for name in KERNEL_OPTIONAL if name in held - {"start_us"}]
    columns = [*KERNEL_COLUMNS, *optional, *published()]
    numbers = ["time_us", "ncu_time_us", *published()]
    recorded = pd.read_parquet(RECORDED, columns=columns)
    runs = [part.reset_index(drop=True) for _, part in recorded.groupby("run_id", sort=False)]
    values = [part[numbers].to_numpy(dtype=float) for part in runs]
    text = [
        pa.Table.from_pandas(part.drop(columns=["run_id", *numbers]), preserve_index=False)
        for part in runs
    ]
    random = np.random.default_rng(0)
    left, number = rows, 0
    while left:
        run = int(random.integers(len(runs)))
        size = min(left, len(runs[run]))
        scale = 1 + 0.02 * np.clip(random.standard_normal((size, len(numbers))), -3, 3)
        table = text[run].slice(0, size).replace_schema_metadata(None)
        name = f"{runs[run]['run_id'].iloc[0]}-{number:07d}"
        table = table.append_column("run_id", pa.array([name] * size, pa.large_string()))
        for place, column in enumerate(numbers):
            cells = values[run][:size, place] * scale[:, place]
            table = table.append_column(column, pa.array(cells, from_pandas=True))
        yield table.select(columns)
        left -= size
        number += 1


def write_kernels(path: Path, rows: int) -> int:
    """Write one file, a row group at a time; return how many layers it has."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer, waiting, layers = None, [], 0
    tables = resampled(rows)
    table = next(tables, None)
    while table is not None or waiting:
        if table is not None:
            waiting.append(table)
            layers += table.group_by(["iteration", "layer"]).aggregate([]).num_rows
            table = next(tables, None)
        if table is None or sum(map(len, waiting)) >= ROW_GROUP:
            whole = pa.concat_tables(waiting)
            if writer is None:
                names = [name for name in whole.schema.names if name not in published()]
                writer = pq.ParquetWriter(
                    path, whole.schema, compression="zstd", use_dictionary=names
                )
            writer.write_table(whole, row_group_size=len(whole))
            waiting = []
    if writer is not None:
        writer.close()
    return layers


def polars_query(source: str, *names: Any) -> Any:
    """Return the lazy query; a metric counts over the kernels that have it."""
    import polars as pl

    time = pl.col("time_us")

    def weighted(metric: str) -> Any:
        value = pl.col(metric)
        known = pl.when(value.is_not_null()).then(time).sum()
        return ((value * time).sum() / known).alias(metric)

    profiled = pl.col("ncu_time_us")
    return (
        pl.scan_parquet(source)
        .filter(pl.col("layer").is_not_null())
        .group_by(KEY)
        .agg(
            *(pl.col(name).first() for name in FIRST),
            pl.len().alias("kernels"),
            *names,
            time.sum(),
            pl.when(profiled.count() > 0).then(profiled.sum()).alias("ncu_time_us"),
            *map(weighted, published()),
        )
    )


def merge_polars(source: str, out: str, names: bool) -> None:
    """Merge with a streaming query, kernel names as text."""
    import polars as pl

    joined = pl.col("kernel").sort_by("kernel_index").str.join("\n").alias("kernel_names")
    polars_query(source, *([joined] if names else [])).sink_parquet(out)


def merge_polars_categorical(source: str, out: str) -> None:
    """Merge with kernel names as categories; each distinct sequence becomes text once.

    Of four ways to do it that were tried at 1e6 rows, this one and lists left as they are took
    least.
    """
    import polars as pl

    names = pl.col("kernel").cast(pl.Categorical).sort_by("kernel_index").alias("names")
    layers = polars_query(source, names).collect(engine="streaming")
    text = pl.col("names").cast(pl.List(pl.String)).list.join("\n").cast(pl.Categorical)
    known = layers.select(pl.col("names").unique()).with_columns(text.alias("kernel_names"))
    layers.join(known, on="names", how="left").drop("names").write_parquet(out)


def merge_duckdb(source: str, out: str, names: bool) -> None:
    """Merge with one statement."""
    import duckdb

    parts = [*KEY, *(f"first({name}) as {name}" for name in FIRST), "count(*) as kernels"]
    if names:
        parts.append("string_agg(kernel, chr(10) order by kernel_index) as kernel_names")
    parts += ["sum(time_us) as time_us", "sum(ncu_time_us) as ncu_time_us"]
    parts += [
        f"sum({name} * time_us) / sum(case when {name} is not null then time_us end) as {name}"
        for name in published()
    ]
    query = (
        f"select {', '.join(parts)} from read_parquet('{source}') "  # noqa: S608
        f"where layer is not null group by {', '.join(KEY)}"
    )
    connection = duckdb.connect()
    connection.execute("set preserve_insertion_order = false")
    connection.execute(f"copy ({query}) to '{out}' (format parquet, compression zstd)")


def differences(left: Path, right: Path) -> float:
    """Return the largest relative difference of two tables of layers; infinite if rows differ."""
    import polars as pl

    sides = [pl.scan_parquet(path) for path in (left, right)]
    sizes = [side.select(pl.len()).collect().item() for side in sides]
    numbers = ["time_us", "ncu_time_us", *published()]
    exact = ["kernels", "kernel_names", *FIRST]
    both = sides[0].join(sides[1], on=KEY, suffix="_other")
    checks = [pl.len().alias("rows")]
    for name in numbers:
        ours, theirs = pl.col(name), pl.col(f"{name}_other")
        known = theirs.is_not_null() & theirs.is_not_nan()
        same = (ours.is_not_null() & ours.is_not_nan()) == known
        error = (ours - theirs).abs() / theirs.abs().clip(1e-300)
        checks += [same.all().alias(f"{name}_known"), error.filter(known).max().alias(name)]
    checks += [pl.col(name).eq_missing(pl.col(f"{name}_other")).all() for name in exact]
    found = both.select(checks).collect(engine="streaming").row(0, named=True)
    if sizes != [found["rows"]] * 2 or not all(found[name] for name in exact):
        return float("inf")
    if not all(found[f"{name}_known"] for name in numbers):
        return float("inf")
    return max(found[name] or 0.0 for name in numbers)


def main(step: str, first: str, second: str = "") -> None:
    """Do one step of the benchmark in this process, and print its result as JSON."""
    result: Any = None
    if step == "kernels":
        result = write_kernels(Path(first), int(second))
    elif step == "differences":
        result = differences(Path(first), Path(second))
    elif step == "polars-categorical":
        merge_polars_categorical(first, second)
    else:
        merge_with = merge_polars if step.startswith("polars") else merge_duckdb
        merge_with(first, second, names=not step.endswith("bare"))
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
