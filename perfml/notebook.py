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
    from IPython.display import HTML, display

    handle = display(display_id=True)

    def show(done: int, total: int, what: str) -> None:
        if handle is None:  # no notebook around: nothing to draw on
            return
        label = f"{html.escape(what)} {done} of {total}"
        handle.update(HTML(f'<progress value="{done}" max="{max(total, 1)}"></progress> {label}'))

    return show
