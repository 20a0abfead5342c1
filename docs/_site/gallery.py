"""The gallery: a picture of each notebook's cell that has a caption in its metadata (``gallery``).

A page says where with ``<!-- gallery -->``. Without executed notebooks the gallery is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

MARK = "<!-- gallery -->"
_WIDTH = 480
"""Pixels of a thumbnail: a card is half as wide on a screen of two pixels a point."""


@dataclass(frozen=True)
class Picture:
    """A picture that a notebook drew, with the sentence that the gallery says of it."""

    page: str
    """Path of the notebook's page, below ``docs/``."""
    file: Path
    caption: str


def gallery(pictures: Sequence[Picture], docs: Path) -> str:
    """Return the cards as Markdown, and write their thumbnails next to the pictures."""
    if not pictures:
        return ""
    cards = []
    for picture in pictures:
        small = picture.file.with_name(f"small-{picture.file.name}")
        with Image.open(picture.file) as image:
            height = round(image.height * _WIDTH / image.width)
            image.convert("RGB").resize((_WIDTH, height), Image.Resampling.LANCZOS).save(small)
        source = small.relative_to(docs).as_posix()
        cards.append(
            f"<div markdown>\n[![{picture.caption}]({source})]({picture.page})\n\n"
            f"{picture.caption}\n</div>"
        )
    return '<div class="gallery" markdown>\n' + "\n".join(cards) + "\n</div>"
