"""Where the data came from: facts, files, runs."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from typing import Any

from perfml.report.document import (
    Block,
    Cell,
    Facts,
    Fold,
    Glossary,
    ReportTable,
    Section,
    Text,
    notices,
    section,
    words,
)
from perfml.report.tables import record_table, sentences_of


def provenance_section(*documents: tuple[str, Mapping[str, Any]]) -> Section:
    """Return where tables came from.

    A single document needs no name.
    """
    blocks: tuple[Block, ...] = ()
    for name, document in documents:
        parts = _parts(document)
        blocks += (Section(name, parts),) if len(documents) > 1 else parts
    return section("Provenance", *blocks, anchor="provenance", link="Provenance")


def of_runs(document: Mapping[str, Any], shown: Collection[str]) -> dict[str, Any]:
    """Return what a provenance document says of the runs that are shown.

    Runs are named by id; the whole document is returned without any.
    """
    runs = [str(each["run_id"]) for each in _records(document.get("runs")) if each.get("run_id")]
    others = tuple(run for run in runs if run not in shown)
    if not others or len(others) == len(runs):
        return dict(document)
    told = {"runs of the table": f"{len(runs)}, here {len(runs) - len(others)}", **document}
    for name in ("sources", "runs", "unattributed"):
        if name in told:
            told[name] = [each for each in _records(told[name]) if each.get("run_id") not in others]
    warnings = sentences_of(document.get("warnings"))
    return {**told, "warnings": [text for text in warnings if not text.startswith(others)]}


def glossary_section() -> Section:
    """Return the words of the page, in a sentence each."""
    blocks = (Fold("Every underlined word, in a sentence", (Glossary(),)),)
    return Section("Words", blocks, anchor="words", link="Words", page_only=True)


def _parts(document: Mapping[str, Any]) -> tuple[Block, ...]:
    nested = {name: value for name, value in document.items() if isinstance(value, (list, Mapping))}
    facts = tuple(
        (name.replace("_", " "), str(value))
        for name, value in document.items()
        if name not in nested and value is not None
    )
    tables = (
        sources_table(_records(document.get("sources"))),
        record_table("Runs", _records(document.get("runs"))),
        record_table("Launches outside every layer", _outside(document.get("unattributed"))),
    )
    warned = notices(sentences_of(document.get("warnings")), "what was recorded")
    known: list[Block] = [Facts(facts)] if facts else []
    known += [Fold(table.caption, (table,)) for table in tables if table is not None]
    known = known or [Text("The table carries no provenance.")]
    return (*warned, *known)


def _records(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _outside(value: object) -> list[Mapping[str, Any]]:
    """Return the runs that have launches outside every layer."""
    return [record for record in _records(value) if record.get("launches") != 0]


def sources_table(sources: list[Mapping[str, Any]]) -> ReportTable | None:
    """Return the files that a table was made of, or None without any."""
    rows = []
    names = [str(source.get("path")) for source in sources]
    for source in sources:
        digest = str(source.get("sha256") or "–")
        short = f"{digest[:12]}…" if len(digest) > 12 else digest
        tool = " ".join(str(source[key]) for key in ("tool", "tool_version") if source.get(key))
        named = (str(source.get(key) or "–") for key in ("path", "format", "device"))
        path, kind, device = map(Cell, named)
        if names.count(path.text) > 1 and source.get("run_id"):
            path = Cell(path.text, note=str(source["run_id"]))
        hidden = digest if short != digest else ""
        rows.append([path, kind, Cell(tool or "–"), device, Cell(short, fold=hidden)])
    columns = words("file", "format", "tool", "device", "sha256")
    caption = "Files that this report was made from"
    return ReportTable(caption, columns, rows) if rows else None


def moment(stamp: object) -> str:
    """Return a time stamp as a reader likes it, or as it is."""
    try:
        time = datetime.datetime.fromisoformat(str(stamp)).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return str(stamp) if stamp else ""
    return f"{time:%Y-%m-%d %H:%M} UTC"
