"""Write a reproduction: results.json, report.html, tables as CSV and figures as PNG beside it."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from perfml.report.document import WIDE, Document, Picture, Text, notices, section
from perfml.report.tables import frame_table
from perfml.reproduce.claims import LEGEND, counted
from perfml.reproduce.published import CLASSIFICATION, KEY_METRIC, REGRESSION
from perfml.reproduce.run import (
    Reproduction,
    importance_table,
    mean_layer_time,
    mean_times,
    score_figure,
    tree_figure,
    weights_figure,
)
from perfml.reproduce.summary import TITLES
from perfml.tables import replacing
from perfml.util.files import cannot_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DPI = 110
_FEW = 20
"""Conditions whose repeats a page lists."""


@dataclass(frozen=True)
class Part:
    """A table or figure: its file name without ending, caption, numbers, and what is drawn."""

    name: str
    caption: str
    table: pd.DataFrame
    ax: Axes | None = None


def write(found: Reproduction, folder: Path, parts: Sequence[Part] | None = None) -> list[Path]:
    """Write everything into a folder, which is made where it does not exist.

    `parts` are tables and figures, None for those of the analysed data; files of an earlier run are
    replaced one by one. Raises `InputError` if the folder cannot be made or written.
    """
    from perfml.report.render.html import to_html

    make_folder(folder)
    parts = data_parts(found) if parts is None else parts
    texts = {
        "verdicts.csv": pd.DataFrame(found.results["claims"]).to_csv(index=False),
        "results.json": json.dumps(found.results, indent=2, allow_nan=False) + "\n",
        "report.html": to_html(reproduction_document(found, parts)),
        **{f"{part.name}.csv": part.table.to_csv(index=False) for part in parts},
    }
    files = {name: text.encode() for name, text in texts.items()}
    files |= {f"{part.name}.png": _png(part.ax) for part in parts if part.ax is not None}
    for name, content in files.items():
        with replacing(folder / name) as temporary:
            temporary.write_bytes(content)
    return sorted(folder / name for name in files)


def make_folder(folder: Path) -> None:
    """Make the output folder; a command calls this before it computes for a minute.

    Raises `InputError` if it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error, "Name another folder with --out.") from error


def _png(ax: Axes) -> bytes:
    buffer = io.BytesIO()
    figure: Any = ax.figure
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def data_parts(found: Reproduction) -> list[Part]:
    """Return the tables and figures of the chapter that are about the analysed data."""
    return [*_tables(found), *_figures(found)]


def range_table(results: dict[str, Any]) -> pd.DataFrame:
    """Return table 2.2 cell by cell."""
    return pd.DataFrame(
        [
            {
                "metric": row["metric"],
                "published_low": row["published"][0],
                "published_high": row["published"][1],
                "file_low": row["file"][0] if row["file"] else None,
                "file_high": row["file"][1] if row["file"] else None,
                "match": row["match"],
            }
            for row in results["ranges"]
        ]
    )


def regression_table(results: dict[str, Any]) -> pd.DataFrame:
    """Return table 2.5: the published number, our distribution, and unseen layers beside it."""
    rows = [
        {
            "model": entry["title"],
            # without the published file the published scores are about other data
            "published_mape": entry["published_mape"] if results["ranges"] else None,
            **{name: entry["random"][name] for name in ("median", "q025", "q975", "splits")},
            "percentile_of_published": entry["percentile_of_published"],
            "below_0.01": entry["random"]["share_below_0.01"],
            **_unseen(entry),
            "published_list_share": entry.get("published_top3_share"),
            "top3": _top(entry),
        }
        for entry in results["regression"].values()
    ]
    names = {f"lookup:{KEY_METRIC}": f"(lookup on {KEY_METRIC})", "training-mean": "(mean)"}
    for name, title in names.items():
        entry = results["baselines"]["regression"].get(name)
        if entry is not None:
            own = {"model": title, "median": entry["random_median"]}
            rows.append({**own, **_unseen(entry), "top3": ""})
    return pd.DataFrame(rows)


def classification_table(results: dict[str, Any]) -> pd.DataFrame:
    """Return table 2.6: the published number, our distribution, and unseen layers beside it."""
    return pd.DataFrame(
        [
            {
                "model": entry["title"],
                "published_accuracy": entry["published_accuracy"] if results["ranges"] else None,
                **{
                    name: entry["random"][name]
                    for name in ("median", "share_perfect", "min", "splits")
                },
                **_unseen(entry),
                "published_list_share": entry.get("published_top3_share"),
                "top3": _top(entry),
            }
            for entry in results["classification"].values()
        ]
    )


def _unseen(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of the scores with a layer held out; None where there are none."""
    columns = {"unseen_layer_mean": "mean", "unseen_min": "min", "unseen_max": "max"}
    unseen = entry["leave_one_layer_out"] or {}
    return {column: unseen.get(name) for column, name in columns.items()}


def _top(entry: dict[str, Any]) -> str:
    return ", ".join(f"{row['metric']} {row['probability']:.2f}" for row in entry["top3"][:3])


def _tables(found: Reproduction) -> list[Part]:
    results, parts = found.results, []
    if results["ranges"]:
        table = range_table(results)
        caption = "Table 2.2: value ranges, published and in the file."
        parts.append(Part("table_2_2", caption, table))
    for number, table, runs, told in (
        ("2_5", regression_table(results), found.regression, REGRESSION),
        ("2_6", classification_table(results), found.classification, CLASSIFICATION),
    ):
        published = (
            {name: each.score for name, each in told.items()} if found.source.published else {}
        )
        caption = (
            f"Table {number.replace('_', '.')}: scores over random splits, and with one layer held "
            "out over model seeds. Grey dots: one split each."
        )
        drawn = score_figure(runs, published, TITLES)
        parts.append(Part(f"table_{number}", caption, table, drawn))
    return parts


def _figures(found: Reproduction) -> list[Part]:
    parts = []
    means = mean_times(found)
    caption = "Figure 2-1: mean time a layer. Only bars of the same data can be compared."
    parts.append(Part("figure_2_1", caption, means, mean_layer_time(means)))
    weights = importance_table(found.regression)
    caption = (
        "Figure 2-6: gradient boosting, built-in importance; bars are means, lines hold 95 % of "
        "the splits. The table has every regression model."
    )
    parts.append(Part("figure_2_6", caption, weights, weights_figure(found.regression)))
    tree, text = tree_figure(found.classification)
    lines = pd.DataFrame({"rule": text.rstrip("\n").splitlines()})
    caption = (
        "Figure 2-7: decision tree on all rows, one model seed. Another seed may cut on another "
        "metric with the same result."
    )
    parts.append(Part("figure_2_7", caption, lines, tree))
    classes = importance_table(found.classification)
    caption = "Importances of the classifiers over the splits (the table has every model)."
    drawn = weights_figure(found.classification, "dt")
    parts.append(Part("figure_2_7_importances", caption, classes, drawn))
    return parts


def reproduction_document(found: Reproduction, parts: Sequence[Part] = ()) -> Document:
    """Return what a page and the terminal say: data, verdicts and scores; figures on the page."""
    results = found.results
    claims = pd.DataFrame(results["claims"])[["claim", "verdict", "evidence", "where", "data"]]
    scores = (("MAPE", regression_table(results)), ("accuracy", classification_table(results)))
    spread = results["data"]["spread"]
    drawn = [
        Picture(part.caption, part.caption, lambda width, ax=part.ax: ax, (WIDE, WIDE))
        for part in parts
        if part.ax is not None
    ]
    sections = (
        section(
            "The data",
            *map(Text, headline(found)),
            *notices(found.notes, "this reproduction"),
            anchor="data",
            link="Data",
        ),
        section(
            "Verdicts",
            frame_table(claims, "A verdict on each claim", spare=("data", "where")),
            *(Text(note, note=True) for note in (LEGEND, *results["footnotes"])),
            anchor="verdicts",
            link="Verdicts",
        ),
        section(
            "Scores",
            *(
                frame_table(table.rename(columns=_heading), f"Test {score}", spare=_SPARE)
                for score, table in scores
            ),
            anchor="scores",
            link="Scores",
        ),
        section(
            "Conditions",
            frame_table(pd.DataFrame(spread), "Repeats of each condition, microseconds")
            if len(spread) < _FEW
            else None,
            anchor="conditions",
            link="Conditions",
        ),
        section("Figures", *drawn, anchor="figures", link="Figures"),
    )
    kept = tuple(each for each in sections if each.blocks)
    sha256 = results["data"]["sha256"]
    facts = (("data", results["data"]["name"]), *((("sha256", sha256),) if sha256 else ()))
    return Document("The published analysis, repeated", kept, facts=facts)


def _heading(name: str) -> str:
    return name.replace("_", " ")


_SPARE = tuple(
    _heading(name)
    for name in ("published_list_share", "top3", "splits", "unseen_layer_mean", "q025", "q975")
)
"""What a narrow terminal leaves out of the scores first."""


def headline(found: Reproduction) -> list[str]:
    """Return the sentences that a reader needs before any table."""
    data = found.results["data"]
    counts = pd.Series([claim.verdict for claim in found.claims]).value_counts()
    tally = ", ".join(counted(str(verdict), int(number)) for verdict, number in counts.items())
    backends = ", ".join(f"{n} {name}" for name, n in data["rows_per_backend"].items())
    explained = 100 * data["variance_explained_by_conditions"]
    lines = [
        (
            f"{data['name']}: {data['rows']} rows ({backends}), {data['conditions']} conditions, "
            f"{data['distinct_feature_rows']} distinct feature rows."
        ),
        (
            f"The means of the conditions alone explain {explained:.2f} % of the variance of "
            "time. A random split puts conditions on both sides."
        ),
    ]
    warning = found.results["leakage"]["warning"]
    if warning:
        lines.append(warning)
    lines.append(f"{len(found.claims)} claims: {tally}.")
    return lines
