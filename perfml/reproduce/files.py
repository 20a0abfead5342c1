"""Write a reproduction: results.json, report.html, and every table and figure as CSV and PNG."""

from __future__ import annotations

import base64
import functools
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from perfml import __version__
from perfml.reproduce.claims import LEGEND, counted
from perfml.reproduce.published import CLASSIFICATION, KEY_METRIC, REGRESSION
from perfml.reproduce.run import (
    Reproduction,
    cell,
    importance_table,
    mean_layer_time,
    mean_times,
    score_figure,
    table_picture,
    tree_figure,
    weights_figure,
)
from perfml.reproduce.summary import TITLES
from perfml.tables import replacing
from perfml.util.files import cannot_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DPI = 110


@dataclass(frozen=True)
class Part:
    """A table or figure: its file name without ending, caption, numbers and picture."""

    name: str
    caption: str
    table: pd.DataFrame
    png: bytes
    shown: bool = True

    @property
    def encoded(self) -> str:
        """The picture for a data URL of ``page.html.j2``."""
        return base64.b64encode(self.png).decode()


def write(found: Reproduction, folder: Path, parts: Sequence[Part] | None = None) -> list[Path]:
    """Write everything into a folder, which is made where it does not exist.

    `parts` are tables and figures, None for those of the analysed data; files of an earlier run are
    replaced one by one. Raises `InputError` if the folder cannot be made or written.
    """
    make_folder(folder)
    parts = data_parts(found) if parts is None else parts
    texts = {
        "verdicts.csv": pd.DataFrame(found.results["claims"]).to_csv(index=False),
        "results.json": json.dumps(found.results, indent=2, allow_nan=False) + "\n",
        "report.html": page(found, parts),
    }
    written = []
    for name, text in texts.items():
        written.append(_written(folder / name, text.encode()))
    for part in parts:
        written.append(
            _written(folder / f"{part.name}.csv", part.table.to_csv(index=False).encode())
        )
        written.append(_written(folder / f"{part.name}.png", part.png))
    return sorted(written)


def make_folder(folder: Path) -> None:
    """Make the output folder; a command calls this before it computes for a minute.

    Raises `InputError` if it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error, "Name another folder with --out.") from error


def _written(path: Path, content: bytes) -> Path:
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return path


def drawn_png(ax: Axes) -> bytes:
    """Return a figure as the bytes of a PNG file."""
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
            "published_mape": entry["published_mape"],
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
                "published_accuracy": entry["published_accuracy"],
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
        parts.append(Part("table_2_2", caption, table, drawn_png(table_picture(table))))
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
        parts.append(Part(f"table_{number}", caption, table, drawn_png(drawn)))
    return parts


def _figures(found: Reproduction) -> list[Part]:
    parts = []
    means = mean_times(found)
    caption = "Figure 2-1: mean time a layer. Only bars of the same data can be compared."
    parts.append(Part("figure_2_1", caption, means, drawn_png(mean_layer_time(means))))
    weights = importance_table(found.regression)
    caption = (
        "Figure 2-6: gradient boosting, built-in importance; bars are means, lines hold 95 % of "
        "the splits. The table has every regression model."
    )
    parts.append(Part("figure_2_6", caption, weights, drawn_png(weights_figure(found.regression))))
    tree, text = tree_figure(found.classification)
    lines = pd.DataFrame({"rule": text.rstrip("\n").splitlines()})
    caption = (
        "Figure 2-7: decision tree on all rows, one model seed. Another seed may cut on another "
        "metric with the same result."
    )
    parts.append(Part("figure_2_7", caption, lines, drawn_png(tree), shown=False))
    classes = importance_table(found.classification)
    caption = "Importances of the classifiers over the splits (the table has every model)."
    drawn = weights_figure(found.classification, "dt")
    parts.append(Part("figure_2_7_importances", caption, classes, drawn_png(drawn), shown=False))
    return parts


def page(found: Reproduction, parts: Sequence[Part]) -> str:
    """Return the report: one HTML page that needs no other file."""
    from jinja2 import Environment, StrictUndefined

    template = (resources.files("perfml.reproduce") / "page.html.j2").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = environment.from_string(template).render(
        found=found,
        results=found.results,
        headline=headline(found),
        parts=parts,
        legend=LEGEND,
        version=__version__,
        cell=functools.partial(cell, missing=""),
    )
    # a number and its sign stay on one line
    return text.replace(" %", "\xa0%")


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


def score_lines(results: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return what a terminal shows of tables 2.5 and 2.6: texts, a row a model or baseline."""
    lines: list[tuple[str, ...]] = []
    # without the published file the published scores are about other data
    published = bool(results["ranges"])
    for entry in results["regression"].values():
        random = entry["random"]
        lines.append(
            (
                f"{entry['title']}, MAPE",
                _text(entry["published_mape"] if published else None),
                f"{random['median']:.4f} ({random['q025']:.4f} to {random['q975']:.4f})",
                _text(entry["percentile_of_published"], ".0f"),
                str(random["splits"]),
                _range(entry["leave_one_layer_out"]),
            )
        )
    for name, each in results["baselines"]["regression"].items():
        unseen = _range(each["leave_one_layer_out"])
        lines.append((f"  baseline {name}", "-", f"{each['random_median']:.4f}", "-", "-", unseen))
    for entry in results["classification"].values():
        random = entry["random"]
        lines.append(
            (
                f"{entry['title']}, accuracy",
                _text(entry["published_accuracy"] if published else None),
                f"1 in {100 * random['share_perfect']:.4g} %, lowest {random['min']:.3f}",
                "-",
                str(random["splits"]),
                _range(entry["leave_one_layer_out"]),
            )
        )
    return lines


SCORE_COLUMNS = (
    "model and score",
    "published",
    "random splits: median (95 %)",
    "percentile of published",
    "splits",
    "one layer held out: lowest to highest",
)
"""Heads of `score_lines`."""

SCORE_SPARE = ("splits", "percentile of published", "published")
"""What a narrow terminal leaves out first: the published scores can be read elsewhere."""


def claim_lines(found: Reproduction) -> list[tuple[str, str, str]]:
    """Return what a terminal shows of the claims: claim, verdict, the first clause of evidence."""
    return [(claim.claim, claim.verdict, claim.brief) for claim in found.claims]


def _text(value: float | None, form: str = ".4g") -> str:
    return "-" if value is None else format(value, form)


def _range(unseen: dict[str, Any] | None) -> str:
    if not unseen:
        return "-"
    low, high = unseen["min"], unseen["max"]
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
