"""What the documentation takes from the program when it is built, so that it cannot go stale.

A page says where with ``<!-- generated: NAME -->``: causes, commands, metrics, words.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
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
    """Return the help of every command, as Typer writes it in Markdown.

    What several verbs share is a row of one table; a verb names it in a line.
    """
    program = [sys.executable, "-m", "typer", "perfml.cli", "utils", "docs", "--name", "perfml"]
    text = subprocess.run(program, capture_output=True, text=True, check=True).stdout  # noqa: S603
    _, *parts = re.split(r"^##+ ", text, flags=re.MULTILINE)  # the page introduces the program
    verbs = [_Verb.of(part) for part in parts]
    uses = Counter(option for verb in verbs for option in verb.options)
    shared = {option for option, times in uses.items() if times > 1}
    everywhere = {option for option, times in uses.items() if times >= len(verbs) - 1}
    rows = ["| command | what it does |", "|---|---|"]
    for verb in verbs:
        rows.append(f"| [{verb.title}](#{verb.anchor}) | {verb.about.partition(_BLANK)[0]} |")
    rows += ["", "## Shared options", "", "| option | meaning |", "|---|---|"]
    for option in sorted(shared, key=lambda each: (each in everywhere, each.name.strip("`-"))):
        name = f"{option.name} (every verb)" if option in everywhere else option.name
        rows.append(f"| {name} | {_plain(option.meaning)} |")
    return "\n".join([*rows, "", *(verb.page(shared, everywhere) for verb in verbs)])


_BLANK = "\n\n"


@dataclass(frozen=True)
class _Option:
    """An option or argument: what verbs share has one name and one meaning."""

    name: str
    meaning: str


@dataclass(frozen=True)
class _Verb:
    """The help of a verb."""

    title: str
    about: str
    """What it does, examples and usage, in Markdown."""
    options: dict[_Option, str]
    """Its options, each with its default or ``required``."""

    @classmethod
    def of(cls, part: str) -> _Verb:
        title, _, body = part.partition("\n")
        examples = re.compile(r"^Example: (.+?)(?=\n\n)", re.MULTILINE | re.DOTALL)
        about, _, listed = examples.sub(_example, body).strip().partition("```\n\n**Arguments**")
        if not listed:
            about, _, listed = about.partition("```\n\n**Options**")
        options = {}
        for name, meaning in re.findall(r"^\* `(.+?)(?: <.+?>)?`: (.+)$", listed, re.MULTILINE):
            plain, _, more = meaning.partition("  [")
            default = re.search(r"default: ([^;\]]+)|required", more)
            options[_Option(f"`{name}`", plain)] = default[1] or default[0] if default else ""
        return cls(title, f"{about}```" if listed else about, options)

    @property
    def anchor(self) -> str:
        return self.title.strip("`").replace(" ", "-")

    def page(self, shared: set[_Option], everywhere: set[_Option]) -> str:
        """Return its section: its own options, then the names of those that it shares."""
        own = [
            f"* {option.name}: {option.meaning}" + (f" ({default})" if default else "")
            for option, default in self.options.items()
            if option not in shared
        ]
        names = [
            option.name + (f" ({default})" if default else "")
            for option, default in self.options.items()
            if option in shared - everywhere
        ]
        also = f"[Shared](#shared-options): {', '.join(names)}." if names else ""
        parts = (f"## {self.title}", self.about, "\n".join(own), also)
        return _BLANK.join(part for part in parts if part) + "\n"


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
    from perfml.explain.advice.symptoms import load_symptoms, symptom_of
    from perfml.explain.remedies import Situation, remedy_for
    from perfml.explain.tree.causes import TERMS

    rows = ["| causes | problem | what its author can do | counters |", "|---|---|---|---|"]
    seen: set[str] = set()
    for each in TERMS.values():
        known = symptom_of(each.id)
        ids = [each.id] if known is None else [name for name in known.causes if name in TERMS]
        if each.id in seen:
            continue
        seen.update(ids)
        counters = dict.fromkeys(
            name for one in ids for name in (*TERMS[one].evidence, *TERMS[one].or_evidence)
        )
        problem = each.label if known is None else known.hazard
        action = remedy_for(ids[0], Situation()).sentences
        names, needs = (", ".join(f"`{name}`" for name in listed) for listed in (ids, counters))
        rows.append(f"| {names} | {_plain(problem)} | {_plain(action)} | {needs} |")
    for row in load_symptoms()[1].values():
        action = remedy_for(row.id, Situation()).sentences
        rows.append(f"| `{row.id}` | {_plain(row.hazard)} | {_plain(action)} | |")
    return search_field("coalesced, occupancy") + "\n".join(rows)


def words() -> str:
    """Return the glossary of reports: words around causes, and the causes; metrics have a page."""
    from perfml.metrics import load_catalogue
    from perfml.report.labels import entries

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
    usual = "sum" if metric.kind in ("count", "bytes") else "time_weighted"
    merge = "" if metric.merge == usual else f", merge: {_plain(metric.merge)}"
    match = "" if metric.exactness == "exact" else f", match: {metric.exactness}"
    parts.append(f"{metric.unit}{match}{merge}")
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
