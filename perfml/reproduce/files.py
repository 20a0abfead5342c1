"""Write a reproduction: results.json, report.html, and every table and figure as CSV and PNG."""

from __future__ import annotations

import base64
import functools
import io
import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from perfml import __version__
from perfml.errors import InputError
from perfml.report import figures as shared
from perfml.reproduce import chapter, figures
from perfml.reproduce.claims import LEGEND, counted
from studies.reproduction.network import layer_kernels
from perfml.reproduce.published import CLASSIFICATION, KEY_METRIC, REGRESSION
from perfml.reproduce.run import Reproduction, importance_table
from perfml.reproduce.summary import TITLES
from perfml.tables import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DPI = 110
_LAYERS = {"conv_03": "figure_2_5", "conv_20": "figure_2_5_layer_20"}


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


def write(found: Reproduction, folder: Path) -> list[Path]:
    """Write everything into a folder, which is made where it does not exist.

    Parameters
    ----------
    found
        What `reproduce` returned.
    folder
        Where to; files of an earlier run are replaced one by one.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    InputError
        If the folder cannot be made or written.
    """
    make_folder(folder)
    parts = all_parts(found)
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

    Raises
    ------
    InputError
        If it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = "cannot make this folder"
        raise InputError(
            msg, where=str(folder), found=error.strerror, cure="Name another folder with --out."
        ) from error


def _written(path: Path, content: bytes) -> Path:
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return path


def _png(ax: Axes) -> bytes:
    buffer = io.BytesIO()
    figure: Any = ax.figure
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def all_parts(found: Reproduction) -> list[Part]:
    """Return every table and figure of the chapter that the data allows."""
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
        parts.append(Part("table_2_2", caption, table, _png(figures.table_picture(table))))
    if found.network is not None:
        name = f"{found.network['name']}, {found.network['device']}"
        table = chapter.device_table(found.network["about"])
        caption = f"Table 2.1: the study's device, and that of {name}."
        parts.append(Part("table_2_1", caption, table, _png(figures.table_picture(table))))
        table = chapter.filter_cross(found.network["filters"])
        caption = f"Table 2.3 as printed, on {name}: layers by input channels and filter size."
        parts.append(Part("table_2_3_cells", caption, table, _png(figures.table_picture(table))))
        table = found.network["filters"]
        caption = f"Table 2.3 on {name}: layers by filter, fast and slow under cuBLAS."
        parts.append(Part("table_2_3", caption, table, _png(figures.table_picture(table))))
        table = found.network["structures"]
        caption = "Table 2.4: structures of layers 3 and 20, published and in perfml's network."
        parts.append(Part("table_2_4", caption, table, _png(figures.table_picture(table))))
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
        drawn = figures.score_figure(runs, published, TITLES)
        parts.append(Part(f"table_{number}", caption, table, _png(drawn)))
    return parts


def _figures(found: Reproduction) -> list[Part]:
    parts = []
    means = figures.mean_times(found)
    caption = "Figure 2-1: mean time a layer. Only bars of the same data can be compared."
    parts.append(Part("figure_2_1", caption, means, _png(figures.mean_layer_time(means))))
    caption = "Figure 2-2: the method, and the commands that are its steps here."
    method = chapter.method_table()
    parts.append(Part("figure_2_2", caption, method, _png(chapter.method_figure())))
    engines = chapter.engine_steps()
    table = chapter.fusion_table(engines)
    for precision in ("fp32", "int8"):
        caption = (
            f"Figure 2-3: which layers of YOLOv4-Tiny an engine in {precision} makes one step of "
            f"({engines['source']}). The table has every precision."
        )
        drawn = chapter.fusion_figure(engines, precision)
        parts.append(Part(f"figure_2_3_{precision}", caption, table, _png(drawn)))
    if found.recording is not None and found.network is not None:
        times = found.network["times"].reset_index()
        caption = f"Figure 2-4 on {found.network['device']}: time of every convolution, batch 1."
        drawn = shared.layer_times(found.recording.layers)
        parts.append(Part("figure_2_4", caption, times, _png(drawn)))
        for layer, name in _LAYERS.items():
            if not (found.recording.kernels["layer"] == layer).any():
                continue
            number = int(layer[-2:])
            caption = f"Figure 2-5 on {found.network['device']}: the kernels of layer {number}."
            drawn = shared.kernel_shares(found.recording.kernels, layer=layer)
            table = layer_kernels(found.recording.kernels, layer)
            parts.append(Part(name, caption, table, _png(drawn)))
    weights = importance_table(found.regression)
    caption = (
        "Figure 2-6: gradient boosting, built-in importance; bars are means, lines hold 95 % of "
        "the splits. The table has every regression model."
    )
    parts.append(
        Part("figure_2_6", caption, weights, _png(figures.weights_figure(found.regression)))
    )
    tree, text = figures.tree_figure(found.classification)
    lines = pd.DataFrame({"rule": text.rstrip("\n").splitlines()})
    caption = (
        "Figure 2-7: decision tree on all rows, one model seed. Another seed may cut on another "
        "metric with the same result."
    )
    parts.append(Part("figure_2_7", caption, lines, _png(tree), shown=False))
    classes = importance_table(found.classification)
    caption = "Importances of the classifiers over the splits (the table has every model)."
    drawn = figures.weights_figure(found.classification, "dt")
    parts.append(Part("figure_2_7_importances", caption, classes, _png(drawn), shown=False))
    return parts


def page(found: Reproduction, parts: list[Part]) -> str:
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
        cell=functools.partial(figures.cell, missing=""),
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
            "time, and a random split puts conditions on both sides."
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
    """Return what a terminal shows of the claims: claim, verdict, the first clause of evidence.

    A mark behind a claim leads to `data_notes`.
    """
    marks = _marks(found)
    return [
        (f"{claim.claim}{marks[claim.data]}", claim.verdict, claim.brief) for claim in found.claims
    ]


def data_notes(found: Reproduction) -> list[str]:
    """Return what the marks of `claim_lines` mean: about which other data a claim is."""
    return [f"{mark.strip()} about {data}" for data, mark in _marks(found).items() if mark]


def _marks(found: Reproduction) -> dict[str, str]:
    """Return by data set what stands behind a claim about it: nothing for the study's own."""
    others = dict.fromkeys(each.data for each in found.claims if each.data != found.source.name)
    marks = {data: f" {'*' * place}" for place, data in enumerate(others, start=1)}
    return {found.source.name: "", **marks}


def _text(value: float | None, form: str = ".4g") -> str:
    return "-" if value is None else format(value, form)


def _range(unseen: dict[str, Any] | None) -> str:
    if not unseen:
        return "-"
    low, high = unseen["min"], unseen["max"]
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
