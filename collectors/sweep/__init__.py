"""Campaigns of many runs: ``perfml sweep`` from its file to finished run folders.

`read_sweep` makes a `Sweep` of a YAML file, an `Executor` says where to measure, and `run_sweep`
measures what is not finished yet. Whatever is killed on the way, a run folder is whole or absent,
no GPU measures two runs at once, and ``--resume`` does what is left.
"""

from __future__ import annotations

from perfml.util.lazy import lazily

_HOMES = {
    "read_sweep": "spec",
    "Sweep": "spec",
    "run_sweep": "driver",
    "finished_runs": "driver",
    "Change": "driver",
    "Outcome": "driver",
    "Executor": "executors",
    "ExecutorError": "executors",
    "choose_gpus": "executors",
}

__all__ = sorted(_HOMES)

# on first use: a worker needs none but its task
__getattr__, __dir__ = lazily(__name__, globals(), _HOMES)
