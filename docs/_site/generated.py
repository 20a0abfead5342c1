"""What the documentation takes from the program when it is built, so that it cannot go stale.

A page says where with ``<!-- generated: NAME -->``: causes, commands, metrics, words.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def filled(markdown: str) -> str:
    """Return a page with what was generated where it asks for it."""
    return MARK.sub(lambda mark: GENERATORS[mark.group(1)](), markdown)


def links_of_site(text: str, folder: Path) -> str:
    """Return a page whose links fit the site.

    Those to notebooks lead to their pages. Those to other files of the repository become the
    file's path, since a site that is built has no repository beside it.
    """
    up = "../" * len(folder.parts)
    text = re.sub(
        r"\]\((?:\.\./)+notebooks/(\w+)\.ipynb\)",
        lambda link: f"]({up}notebooks/{link[1]}.md)",
        text,
    )
    outside = re.compile(rf"\[([^\]]+)\]\({re.escape(up)}\.\./([^)#]+)[^)]*\)")
    return outside.sub(r"\1 (`\2`)", text)


def commands() -> str:
    """Return the help of every command, as Typer writes it in Markdown."""
    program = [sys.executable, "-m", "typer", "perfml.cli", "utils", "docs", "--name", "perfml"]
    text = subprocess.run(program, capture_output=True, text=True, check=True).stdout  # noqa: S603
    _, *parts = re.split(r"^##+ ", text, flags=re.MULTILINE)  # the page introduces the program
    examples = re.compile(r"^Example: (.+?)(?=\n\n)", re.MULTILINE | re.DOTALL)
    shown = [examples.sub(_example, part) for part in parts]
    rows = ["| command | what it does |", "|---|---|"]
    for part in shown:
        name, _, body = part.partition("\n")
        anchor = name.strip("`").replace(" ", "-")
        rows.append(f"| [{name}](#{anchor}) | {body.strip().partition(chr(10) * 2)[0]} |")
    return "\n".join(rows) + "\n\n" + "\n".join(f"## {part}" for part in shown)


def metrics() -> str:
    """Return the metric catalogue as a table: a row is what there is to know of a metric."""
    from perfml.metrics import load_catalogue

    catalogue = load_catalogue()
    rows = ["| metric | what it means |", "|---|---|"]
    for each in (catalogue[name] for name in catalogue.names):
        name = f'<span id="{each.name}">`{each.name}`</span>'
        rows.append(f"| {name} | {_meaning(each)} |")
    return search_field("occupancy, dram bytes, sm__warps") + "\n".join(rows)


def causes() -> str:
    """Return every cause as a table; those that advice says as one are a row."""
    from perfml.explain.advice.remedies import load_remedies, remedy_of
    from perfml.explain.tree.causes import TERMS

    rows = ["| causes | problem | what its author can do | counters |", "|---|---|---|---|"]
    seen: set[str] = set()
    for each in TERMS.values():
        remedy = remedy_of(each.id)
        ids = [each.id] if remedy is None else [name for name in remedy.causes if name in TERMS]
        if each.id in seen:
            continue
        seen.update(ids)
        counters = dict.fromkeys(
            name for one in ids for name in (*TERMS[one].evidence, *TERMS[one].or_evidence)
        )
        problem, action = (
            (each.label, each.action) if remedy is None else (remedy.hazard, remedy.author)
        )
        names, needs = (", ".join(f"`{name}`" for name in listed) for listed in (ids, counters))
        rows.append(f"| {names} | {_plain(problem)} | {_plain(action)} | {needs} |")
    for each in load_remedies()[1].values():
        rows.append(f"| `{each.id}` | {_plain(each.hazard)} | {_plain(each.author)} | |")
    return search_field("coalesced, occupancy") + "\n".join(rows)


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


def _meaning(metric: Any) -> str:
    """Return a metric's sentence, its note, and its formula in counters of Nsight Compute."""
    parts = [_plain(metric.description)]
    if metric.note:
        parts[0] += f". {_plain(metric.note)}"
    if metric.ncu:
        scale = f" × {metric.scale:g}" if metric.scale != 1 else ""
        parts.append(f"`{metric.ncu.text}`{scale}")
    if metric.guard:
        parts.append(f"undefined where `{metric.guard.text}` is 0")
    parts.append(f"{metric.unit}, match: {metric.exactness}, merge: {_plain(metric.merge)}")
    return "<br>".join(parts)


def _example(found: re.Match[str]) -> str:
    commands_ = found.group(1).replace("\n", " ").split("; ")
    shown = "\n".join(f"$ {each.strip()}" for each in commands_)
    return f"**Example**:\n\n```console\n{shown}\n```"


def _plain(text: str) -> str:
    """Return text in which Markdown finds nothing to format."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", text)


GENERATORS: dict[str, Callable[[], str]] = {
    "causes": causes,
    "commands": commands,
    "metrics": metrics,
    "words": words,
}
