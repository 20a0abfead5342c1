"""What an engineer would write instead, for each row of the table.

`plain_*` reads chosen columns and sums, trusting the file. `same_*` does what perfml does for its
answer: the units under the header, thousands separators, ranges taken apart into iteration and
layer, the range's name off the kernel's, launches outside layers left out, ids that must rise,
names joined in launch order. It still leaves out the check of every row, the locale, repeated
layers, the formulas of the 19 metrics and the provenance, so a ratio against it is a floor.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl

NVTX = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
TIME = "gpu__time_duration.sum"
COUNT = "launch__thread_count"
RANGES = r'"[^:"]*:iter_(\d+):[^"]*"\s+"[^:"]*:([^:"]+):'
SCALE = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
"""Microseconds a unit; the other metrics of the set are fractions and counts."""


def header_of(path: Path) -> tuple[list[str], dict[str, str]]:
    """Return the columns of an export, and their units."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        header, units = next(rows), next(rows)
    return header, dict(zip(header, units, strict=True))


def plain_pandas(path: Path, metrics: list[str]) -> Any:
    columns = ["Kernel Name", NVTX, *metrics]
    table = pd.read_csv(path, skiprows=[1], usecols=columns, thousands=",")
    weight = table[TIME]
    total = weight.groupby(table[NVTX], sort=False).sum()
    product = table[metrics].mul(weight, axis=0)
    return product.groupby(table[NVTX], sort=False).sum().div(total, axis=0)


def plain_polars(path: Path, metrics: list[str]) -> Any:
    types = {name: pl.Float64 for name in metrics if name != COUNT} | {COUNT: pl.String}
    columns = ["Kernel Name", NVTX, *metrics]
    table = pl.read_csv(path, skip_rows_after_header=1, columns=columns, schema_overrides=types)
    table = table.with_columns(pl.col(COUNT).str.replace_all(",", "").cast(pl.Float64))
    products = [(pl.col(name) * pl.col(TIME)).alias(f"{name}*") for name in metrics]
    sums = [pl.col(f"{name}*").sum() / pl.col(TIME).sum() for name in metrics]
    return table.with_columns(products).group_by(NVTX, maintain_order=True).agg(sums)


def plain_duckdb(path: Path, metrics: list[str]) -> Any:
    sums = ", ".join(
        f'sum({_number(name)} * "{TIME}") / sum("{TIME}") as "{name}"' for name in metrics
    )
    query = f'select "{NVTX}", {sums} from {_source(path, metrics)} group by "{NVTX}"'  # noqa: S608
    return duckdb.sql(query).fetchnumpy()


def _number(name: str) -> str:
    return f"cast(replace(\"{name}\", ',', '') as double)" if name == COUNT else f'"{name}"'


def _source(path: Path, metrics: list[str]) -> str:
    header, _ = header_of(path)
    numbers = set(metrics) - {COUNT}
    types = {name: "DOUBLE" if name in numbers else "VARCHAR" for name in header}
    return f"read_csv('{path}', header=false, skip=2, quote='\"', escape='\"', columns={types})"


def same_pandas(path: Path, metrics: list[str]) -> pd.DataFrame:
    _, units = header_of(path)
    columns = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "CC", NVTX, *metrics]
    table = pd.read_csv(path, skiprows=[1], usecols=columns, thousands=",")
    if (table.groupby("Process ID")["ID"].diff() <= 0).any() or table[TIME].isna().any():
        raise ValueError(path)
    table[TIME] *= SCALE[units[TIME]]
    table[["iteration", "layer"]] = table[NVTX].str.extract(RANGES)
    table = table[table["layer"].notna()]
    names = [
        kernel.removeprefix(f"{layer}/")
        for kernel, layer in zip(table["Kernel Name"], table["layer"], strict=True)
    ]
    table = table.assign(kernel=names)
    grouped = (
        table[metrics]
        .mul(table[TIME], axis=0)
        .assign(time_us=table[TIME])
        .groupby([table["iteration"], table["layer"]], sort=False)
        .sum()
    )
    merged = grouped[metrics].div(grouped["time_us"], axis=0)
    merged["time_us"] = grouped["time_us"]
    merged["kernel_names"] = table.groupby(["iteration", "layer"], sort=False)["kernel"].agg(
        "\n".join
    )
    return merged.reset_index()


def same_polars(path: Path, metrics: list[str]) -> pd.DataFrame:
    _, units = header_of(path)
    types = {name: pl.Float64 for name in metrics if name != COUNT} | {COUNT: pl.String}
    columns = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "CC", NVTX, *metrics]
    table = pl.read_csv(path, skip_rows_after_header=1, columns=columns, schema_overrides=types)
    if (table["ID"].diff() <= 0).any() or table[TIME].null_count():
        raise ValueError(path)
    table = table.with_columns(
        pl.col(COUNT).str.replace_all(",", "").cast(pl.Float64),
        pl.col(TIME) * SCALE[units[TIME]],
        pl.col(NVTX).str.extract(RANGES, 1).cast(pl.Int64).alias("iteration"),
        pl.col(NVTX).str.extract(RANGES, 2).alias("layer"),
    ).filter(pl.col("layer").is_not_null())
    products = [(pl.col(name) * pl.col(TIME)).alias(f"{name}*") for name in metrics]
    kernel = pl.col("Kernel Name").str.strip_prefix(pl.col("layer") + "/").alias("kernel")
    total = pl.col(TIME).sum()
    found = (
        table.with_columns(*products, kernel)
        .group_by("iteration", "layer", maintain_order=True)
        .agg(
            *[(pl.col(f"{name}*").sum() / total).alias(name) for name in metrics],
            total.alias("time_us"),
            pl.col("kernel").str.join("\n").alias("kernel_names"),
        )
    )
    return found.to_pandas()


def same_duckdb(path: Path, metrics: list[str]) -> pd.DataFrame:
    _, units = header_of(path)
    scale = SCALE[units[TIME]]
    sums = ", ".join(f'sum({_number(name)} * t) / sum(t) as "{name}"' for name in metrics)
    pattern = RANGES.replace("'", "''")
    query = f"""
        with launches as (
            select *, "{TIME}" * {scale} as t, cast("ID" as bigint) as number,
                regexp_extract("{NVTX}", '{pattern}', 1) as iteration,
                regexp_extract("{NVTX}", '{pattern}', 2) as layer
            from {_source(path, metrics)}
        )
        select cast(iteration as bigint) as iteration, layer, {sums}, sum(t) as time_us,
            string_agg(case when starts_with("Kernel Name", layer || '/')
                then substr("Kernel Name", length(layer) + 2) else "Kernel Name" end,
                chr(10) order by number) as kernel_names
        from launches where layer <> '' group by iteration, layer order by min(number)
    """  # noqa: S608
    return duckdb.sql(query).df()


def same_csv(path: Path, metrics: list[str]) -> pd.DataFrame:
    header, units = header_of(path)
    scale, pattern = SCALE[units[TIME]], re.compile(RANGES)
    nvtx, time = header.index(NVTX), header.index(TIME)
    number, kernel = header.index("ID"), header.index("Kernel Name")
    places = [header.index(name) for name in metrics]
    sums: dict[tuple[int, str], list[float]] = {}
    names: dict[tuple[int, str], list[str]] = {}
    last = -1
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        next(rows), next(rows)
        for row in rows:
            if int(row[number]) <= last or len(row) != len(header):
                raise ValueError(row)
            last = int(row[number])
            match = pattern.search(row[nvtx])
            if match is None:
                continue
            key = (int(match.group(1)), match.group(2))
            weight = float(row[time].replace(",", "")) * scale
            values = [float(row[place].replace(",", "")) * weight for place in places]
            held = sums.get(key)
            name = row[kernel].removeprefix(f"{key[1]}/")
            if held is None:
                sums[key], names[key] = [*values, weight], [name]
            else:
                for place, value in enumerate(values):
                    held[place] += value
                held[-1] += weight
                names[key].append(name)
    return pd.DataFrame(
        [
            [*key, *(value / held[-1] for value in held[:-1]), held[-1], "\n".join(names[key])]
            for key, held in sums.items()
        ],
        columns=["iteration", "layer", *metrics, "time_us", "kernel_names"],
    )


# The merge alone, on a table in memory.

KEYS = ["run_id", "iteration", "layer"]


def merge_apply(kernels: pd.DataFrame, metrics: list[str]) -> Any:
    inside = kernels[kernels["layer"].notna()]
    return inside.groupby(KEYS, sort=False).apply(
        lambda part: pd.Series(
            {name: np.average(part[name], weights=part["time_us"]) for name in metrics}
            | {"time_us": part["time_us"].sum(), "kernel_names": "\n".join(part["kernel"])}
        ),
        include_groups=False,
    )


def merge_pandas(kernels: pd.DataFrame, metrics: list[str]) -> Any:
    inside = kernels[kernels["layer"].notna()]
    weight = inside["time_us"]
    if not (weight > 0).all():
        raise ValueError(weight)
    products = inside[metrics].mul(weight, axis=0)
    # a launch without a metric must not weigh in it
    weights = inside[metrics].notna().mul(weight, axis=0)
    keys = [inside[name] for name in KEYS]
    merged = products.groupby(keys, sort=False).sum() / weights.groupby(keys, sort=False).sum()
    merged["time_us"] = weight.groupby(keys, sort=False).sum()
    merged["kernel_names"] = inside["kernel"].groupby(keys, sort=False).agg("\n".join)
    return merged


def merge_polars(kernels: pl.DataFrame, metrics: list[str]) -> Any:
    time = pl.col("time_us")
    products = [(pl.col(name) * time).alias(f"{name}*") for name in metrics]
    weights = [pl.when(pl.col(name).is_not_null()).then(time).alias(f"{name}/") for name in metrics]
    return (
        kernels.filter(pl.col("layer").is_not_null())
        .with_columns(products + weights)
        .group_by(KEYS, maintain_order=True)
        .agg(
            *[(pl.col(f"{n}*").sum() / pl.col(f"{n}/").sum()).alias(n) for n in metrics],
            time.sum(),
            pl.col("kernel").str.join("\n").alias("kernel_names"),
        )
    )


def merge_duckdb(kernels: Any, metrics: list[str]) -> Any:
    sums = ", ".join(
        f'sum("{name}" * time_us) / sum(case when "{name}" is not null then time_us end) '
        f'as "{name}"'
        for name in metrics
    )
    query = (
        f"select run_id, iteration, layer, {sums}, sum(time_us) as time_us, "  # noqa: S608
        "string_agg(kernel, chr(10) order by kernel_index) as kernel_names "
        "from kernels where layer is not null group by run_id, iteration, layer"
    )
    return duckdb.sql(query).arrow()


def plain_report(path: Path, metrics: list[str]) -> Any:
    """Loop over NVIDIA's reader, taking what it gives."""
    import ncu_report

    report = ncu_report.load_report(str(path))
    rows = []
    for place in range(report.num_ranges()):
        found = report.range_by_idx(place)
        for index in range(found.num_actions()):
            action = found.action_by_idx(index)
            values = [action.metric_by_name(name) for name in metrics]
            rows.append([action.name(), *(np.nan if v is None else v.as_double() for v in values)])
    return pd.DataFrame(rows, columns=["kernel", *metrics])


def same_report(path: Path, wanted: frozenset[str]) -> Any:
    """Loop over NVIDIA's reader with units, missing values, shapes, device and ranges.

    Which of the wanted metrics a launch has is asked of each launch, as perfml does: launches of
    one report may differ, and what only a later one has must not be lost.
    """
    import ncu_report

    report = ncu_report.load_report(str(path))
    rows = []
    for place in range(report.num_ranges()):
        found = report.range_by_idx(place)
        for index in range(found.num_actions()):
            action = found.action_by_idx(index)
            row: dict[str, Any] = {"kernel": action.name(1)}
            for name in action.metric_names():
                if name not in wanted:
                    continue
                metric = action.metric_by_name(name)
                value = metric.as_double() if metric.has_value() else np.nan
                row[name] = value * (1e-3 if metric.unit() == "ns" else 1.0)
            for shape in ("grid", "block"):
                sizes = [row.get(f"launch__{shape}_dim_{axis}", np.nan) for axis in "xyz"]
                row[shape] = "({:.0f}, {:.0f}, {:.0f})".format(*sizes)
            device = action.metric_by_name("device__attribute_display_name")
            row["device"] = device.as_string() if device is not None else None
            major, minor = (
                row.get(f"device__attribute_compute_capability_{part}", np.nan)
                for part in ("major", "minor")
            )
            row["compute_capability"] = f"{major:.0f}.{minor:.0f}"
            state = action.nvtx_state()
            names: list[str] = []
            for domain in state.domains() if state is not None else ():
                names += state.domain_by_id(domain).push_pop_ranges()
            iteration = next((each for each in names if each.startswith("iter_")), None)
            row["iteration"] = int(iteration[5:]) if iteration else None
            row["layer"] = "/".join(each for each in names if each != iteration) or None
            rows.append(row)
    return pd.DataFrame(rows)
