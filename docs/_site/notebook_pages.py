"""Notebooks as pages of the documentation: executed when it is built, so that git holds no outputs.

A page shows each cell's code, then what it printed, its tables and its pictures. Pictures bring
their alternative texts along (`perfml.report.figures.axes`).
"""

from __future__ import annotations

import base64
import os
import re
import textwrap
from pathlib import Path
from typing import Any

import nbformat

SECONDS = 240
"""Of a cell, where the machine is busy; on an idle one a whole notebook takes less than 60."""


_WIDTH = 96
"""Characters of printed text that a page shows without scrolling."""


def notebook_page(path: Path, out: Path, *, execute: bool) -> str:
    """Return a notebook as Markdown.

    Parameters
    ----------
    path
        The notebook.
    out
        Folder of the page; pictures are written beside it.
    execute
        Run its cells first; else the page has code alone.
    """
    notebook = nbformat.read(path, as_version=4)
    if execute:
        _execute(notebook, path.parent)
    parts = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            parts.append(re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", cell.source))
            continue
        parts.append(_fence(cell.source, "python"))
        for place, output in enumerate(cell.get("outputs", ())):
            parts.append(_output(output, out, f"{path.stem}-{number}-{place}.png"))
    return "\n\n".join(part for part in parts if part) + "\n"


def _execute(notebook: Any, folder: Path) -> None:
    from nbclient import NotebookClient

    os.environ["PYTHONPATH"] = str(folder.parent)
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()


def _output(output: Any, out: Path, name: str) -> str:
    if output.output_type == "stream":
        return _fence(_folded(output.text.rstrip()), "text") if output.name == "stdout" else ""
    data = output.get("data", {})
    if "image/png" in data:
        about = output.metadata.get("image/png", {})
        (out / name).write_bytes(base64.b64decode(data["image/png"]))
        alternative = _plain(about.get("alt", ""))
        return f'![{alternative}]({name}){{ width="{about.get("width", 640)}" }}'
    if "text/html" in data:
        html = "".join(data["text/html"])
        # a bar that stands at its end tells nothing
        return "" if "<progress" in html else f'<div class="cell-output">\n{_flat(html)}\n</div>'
    return _fence("".join(data.get("text/plain", "")), "text")


def _folded(text: str) -> str:
    """Return printed text whose sentences fit the page; lines of tables and commands stay."""
    lines = []
    for line in text.split("\n"):
        sentence = len(line) > _WIDTH and "  " not in line.strip()
        command = " --" in line
        lines += textwrap.wrap(line, _WIDTH) if sentence and not command else [line]
    return "\n".join(lines)


def _fence(text: str, kind: str) -> str:
    if not text.strip():
        return ""
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{ticks}{kind}\n{text}\n{ticks}"


def _flat(html: str) -> str:
    """Return HTML without empty lines, which would end its block in Markdown."""
    return "\n".join(line.strip() for line in html.splitlines() if line.strip())


def _plain(text: str) -> str:
    return re.sub(r"([\[\]\\`*_])", r"\\\1", " ".join(text.split()))
