"""Notebooks as pages of the documentation: executed when it is built, so that git holds no outputs.

A page shows each cell's code, then what it printed, its tables and its pictures. Pictures bring
their alternative texts along (`perfml.report.figures.style`), or have the cell's caption.
"""

from __future__ import annotations

import base64
import os
import re
import struct
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from gallery import Picture

SECONDS = 240
"""Of a cell, where the machine is busy; on an idle one a whole notebook takes less than 60."""


_WIDTH = 82
"""Characters of printed text that a page shows without scrolling."""


@dataclass(frozen=True)
class Page:
    """A notebook as a page: its Markdown, and the pictures that have a caption."""

    text: str
    pictures: tuple[Picture, ...]


def notebook_page(path: Path, out: Path, *, execute: bool) -> Page:
    """Return a notebook as a page.

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
    parts, pictures = [], []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            text = re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", cell.source)
            parts.append(text.replace("](../docs/", "](../"))
            continue
        parts.append(_fence(cell.source, "python"))
        caption = cell.metadata.get("gallery", "")
        for place, output in enumerate(cell.get("outputs", ())):
            name = f"{path.stem}-{number}-{place}.png"
            parts.append(_output(output, out, name, caption))
            if caption and "image/png" in output.get("data", {}):
                pictures.append(Picture(f"{out.name}/{path.stem}.md", out / name, caption))
    text = "\n\n".join(part for part in parts if part) + "\n"
    return Page(text, tuple(pictures))


def _execute(notebook: Any, folder: Path) -> None:
    from nbclient import NotebookClient

    os.environ["PYTHONPATH"] = str(folder.parent)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a kernel a core
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()


def _output(output: Any, out: Path, name: str, caption: str) -> str:
    if output.output_type == "stream":
        return _fence(_folded(output.text.rstrip()), "text") if output.name == "stdout" else ""
    data = output.get("data", {})
    if "image/png" in data:
        about = output.metadata.get("image/png", {})
        png = base64.b64decode(data["image/png"])
        (out / name).write_bytes(png)
        alternative = _plain(about.get("alt") or caption)
        width = about.get("width") or struct.unpack(">I", png[16:20])[0]
        return f'![{alternative}]({name}){{ width="{width}" }}'
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
