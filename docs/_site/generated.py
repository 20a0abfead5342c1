"""What the documentation takes from the program when it is built, so that it cannot go stale.

A page says where with ``<!-- generated: commands -->``, ``<!-- generated: metrics -->``,
``<!-- generated: words -->``, or ``<!-- data card: datasets/NAME -->``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CARD = re.compile(r"^<!-- data card: (datasets/[\w-]+) -->$", re.MULTILINE)
MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def filled(markdown: str) -> str:
    """Return a page with what was generated where it asks for it."""
    markdown = CARD.sub(lambda mark: data_card(mark.group(1)), markdown)
    return MARK.sub(lambda mark: GENERATORS[mark.group(1)](), markdown)


def data_card(folder: str) -> str:
    """Return a dataset's README, its headings one level down."""
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    return re.sub(r"^(#+ )", r"#\1", text, flags=re.MULTILINE)


def commands() -> str:
    """Return the help of every command, as Typer writes it in Markdown."""
    program = [sys.executable, "-m", "typer", "perfml.cli", "utils", "docs", "--name", "perfml"]
    text = subprocess.run(program, capture_output=True, text=True, check=True).stdout  # noqa: S603
    _, *parts = re.split(r"^##+ ", text, flags=re.MULTILINE)  # the page introduces the program
    examples = re.compile(r"^Example: (.+?)(?=\n\n)", re.MULTILINE | re.DOTALL)
    found = [examples.sub(_example, part) for part in parts]
    rows = ["| command | what it does |", "|---|---|"]
    for part in found:
        name, _, body = part.partition("\n")
        anchor = name.strip("`").replace(" ", "-")
        rows.append(f"| [{name}](#{anchor}) | {body.strip().partition(chr(10) * 2)[0]} |")
    return "\n".join(rows) + "\n\n" + "\n".join(f"## {part}" for part in found)


def metrics() -> str:
    """Return the metric catalogue as a table, and what is to be known of single metrics."""
    from perfml.metrics import load_catalogue

    catalogue = load_catalogue()
    found = [catalogue[name] for name in catalogue.names]
    rows = ["| metric | what | unit | match |", "|---|---|---|---|"]
    rows += [
        f"| [`{each.name}`](#{each.name}) | {_plain(each.description)}{_counters(each)} "
        f"| {each.unit} | {each.exactness} |"
        for each in found
    ]
    return (
        search_field("occupancy, dram bytes, sm__warps")
        + "\n".join(rows)
        + "\n\n"
        + "\n\n".join(_metric(each) for each in found)
    )


def words() -> str:
    """Return the glossary of reports: words around causes, and the causes; metrics have a page."""
    from perfml.metrics import load_catalogue
    from perfml.report.glossary import entries

    metrics_ = set(load_catalogue().names)
    rows = ["| word | what it means |", "|---|---|"]
    rows += [
        f"| {_plain(each.name)} | {_plain(each.sentence)} |"
        for each in entries()
        if each.name not in metrics_
    ]
    return search_field("wave, bank conflict") + "\n".join(rows)


def search_field(example: str) -> str:
    """Return a field that searches the table after it; without JavaScript it stays hidden."""
    return (
        '<div class="search-table-field" hidden><input class="search-table" type="search" '
        f'aria-label="Search this table" placeholder="Search: {example}"> <output></output></div>'
        "\n\n"
    )


def _counters(metric: Any) -> str:
    """Return the counters that a metric is made of: searched for, and shown in its section."""
    expression = metric.ncu.text if metric.ncu else ""
    names = dict.fromkeys(re.findall(r"[a-z0-9]+__[a-z0-9_.]+", expression))
    return f" <span hidden>{_plain(' '.join(names))}</span>" if names else ""


def _metric(metric: Any) -> str:
    lines = [f"## `{metric.name}` {{ #{metric.name} }}", _plain(metric.description) + "."]
    formula = metric.ncu.text if metric.ncu else None
    scale = f" × {metric.scale:g}" if formula and metric.scale != 1 else ""
    lines.append(f"Nsight Compute: `{formula}`{scale}" if formula else "Nsight Compute: none.")
    lines.append(f"Kernels merge by: {_plain(metric.merge)}.")
    if metric.guard:
        lines.append(f"Undefined where this is 0: `{metric.guard.text}`")
    if metric.note:
        lines.append(_plain(metric.note))
    return "\n\n".join(lines)


def _example(found: re.Match[str]) -> str:
    commands_ = found.group(1).replace("\n", " ").split("; ")
    shown = "\n".join(f"$ {each.strip()}" for each in commands_)
    return f"**Example**:\n\n```console\n{shown}\n```"


def _plain(text: str) -> str:
    """Return text in which Markdown finds nothing to format."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", text)


GENERATORS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "metrics": metrics,
    "words": words,
}
