"""Which run of a sweep starts first."""

from __future__ import annotations

from collections.abc import Mapping

from collectors.run_spec import Run
from perfml.metrics import load_catalogue
from perfml.metrics.passes import load_passes


def longest_first(runs: Mapping[str, Run]) -> list[str]:
    """Return the ids of the runs, the longest first, so that the last to end is a short one."""
    return sorted(runs, key=lambda run_id: -_relative_length(runs[run_id]))


def _relative_length(run: Run) -> int:
    """Return a number that is larger for a longer run: passes x iterations x batch.

    Kernel replay takes time in proportion to passes and launches; cuBLAS launches once an image.
    """
    settings = run.settings
    asked = load_catalogue().select(settings.metrics) if settings.metrics else ()
    counts = load_passes()
    # a metric whose passes nobody measured does not change the order
    known = [name for name in asked if counts.known(name)]
    passes = counts.estimate(known).passes if known else 1
    return passes * settings.metric_iterations * (run.batch or 1)
