"""For notebooks: a bar for what takes long.

Everything else needs no import: perfml's objects and figures show themselves.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any


def progress() -> Callable[[int, int, str], None]:
    """Return a ``progress`` argument that draws a bar below the cell.

    `perfml.ingest.ingest`, `perfml.modeling.evaluate`, `perfml.modeling.rank` and
    `perfml.reproduce.reproduce` take it. One bar shows the last call.
    """
    handle = _handle()

    def show(done: int, total: int, what: str) -> None:
        if handle is not None:
            label = f"{what} {done} of {total}"
            bar = f'<progress value="{done}" max="{max(total, 1)}"></progress>'
            handle.update(
                {"text/html": f"{bar} {html.escape(label)}", "text/plain": label}, raw=True
            )

    return show


def _handle() -> Any:
    """Return what IPython updates in place, or None where there is no notebook to draw on."""
    try:
        from IPython import display, get_ipython
    except ImportError:
        return None
    if get_ipython() is None:
        return None
    start = {"text/html": "<progress></progress>", "text/plain": ""}
    return display.display(start, raw=True, display_id=True)
