"""For notebooks: a bar for what takes long.

Everything else needs no import: perfml's objects and figures show themselves.
"""

from __future__ import annotations

import html
from collections.abc import Callable


def progress() -> Callable[[int, int, str], None]:
    """Return a ``progress`` argument that draws a bar below the cell.

    Returns
    -------
    callable
        ``progress(done, total, what)``, as `perfml.ingest.ingest`, `perfml.modeling.evaluate`,
        `perfml.modeling.rank` and `perfml.reproduce.reproduce` call it. One bar, which shows the
        last call.
    """
    from IPython import get_ipython
    from IPython.display import HTML, display

    # outside a notebook there is nothing to draw on, and display would print an empty line
    handle = display(display_id=True) if get_ipython() is not None else None

    def show(done: int, total: int, what: str) -> None:
        if handle is not None:
            label = f"{html.escape(what)} {done} of {total}"
            bar = f'<progress value="{done}" max="{max(total, 1)}"></progress>'
            handle.update(HTML(f"{bar} {label}"))

    return show
