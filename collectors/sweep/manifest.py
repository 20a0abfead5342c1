"""A sweep's manifest: the state of every run in one JSON file, written by the driver alone.

A sweep changes a few states a minute, so the file is written whole with every change.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from collectors.run_folder import write_json
from collectors.run_spec import Run
from perfml import __version__
from perfml.errors import InputError
from perfml.util.files import parse_json, read_document

FILE = "sweep.json"
RunState = Literal["pending", "running", "done", "failed"]


@dataclass(frozen=True)
class State:
    """What the manifest knows of a run.

    Attributes
    ----------
    run_id
        Its id.
    state
        ``pending``, ``running``, ``done`` or ``failed``.
    message
        Why it failed.
    launches
        Profiled launches, when done.
    attempts
        How often it was begun.
    worker, host, gpu
        Where it ran last; empty if it never ran.
    since
        When it was begun last, in seconds since 1970.
    seconds
        GPU time of all its attempts, lost ones included.
    """

    run_id: str
    state: RunState = "pending"
    message: str = ""
    launches: int | None = None
    attempts: int = 0
    worker: str = ""
    host: str = ""
    gpu: str = ""
    since: float | None = None
    seconds: float = 0.0

    def spent(self, until: float) -> float:
        """Return `seconds` with those of the attempt that runs."""
        running = until - self.since if self.state == "running" and self.since else 0.0
        return round(self.seconds + running, 3)


class Manifest:
    """The states of the runs in one folder, by id."""

    def __init__(self, out: Path) -> None:
        self.path = out / FILE
        self.states: dict[str, State] = {}
        if self.path.exists():
            try:
                rows = parse_json(read_document(self.path))["runs"]
                self.states = {row["run_id"]: State(**row) for row in rows}
            except (ValueError, TypeError, LookupError) as error:
                msg = "the sweep's manifest cannot be used"
                cure = "Move it away and run again with --resume: finished runs are found by their "
                cure += "folders."
                found = str(error)[:200]
                raise InputError(msg, where=str(self.path), found=found, cure=cure) from error

    def _write(self, *states: State) -> None:
        self.states |= {state.run_id: state for state in states}
        rows = [asdict(state) for state in self.states.values()]
        write_json(self.path, {"perfml": __version__, "runs": rows})

    def plan(self, runs: Mapping[str, Run], finished: Mapping[str, int | None]) -> None:
        """Enter a sweep's runs by id; those of `finished` (id to launches) are done.

        The time of an attempt without an end is not known: its driver was killed.
        """
        known = (self.states.get(run_id, State(run_id)) for run_id in runs)
        self._write(
            *(
                replace(
                    state,
                    state="done" if state.run_id in finished else "pending",
                    message="",
                    launches=finished.get(state.run_id) or state.launches,
                )
                for state in known
            )
        )

    def begin(self, run_id: str, worker: str, host: str, gpu: str, since: float) -> int:
        """Note that a worker began a run; return the number of the attempt, from 1.

        If an earlier attempt has not ended, its worker was lost.
        """
        before = self.states[run_id]
        begun = replace(before, worker=worker, host=host, gpu=gpu, since=since)
        attempts, seconds = before.attempts + 1, before.spent(since)
        self._write(replace(begun, state="running", attempts=attempts, seconds=seconds))
        return attempts

    def end(
        self, run_id: str, state: RunState, *, message: str = "", launches: int | None = None
    ) -> None:
        """Note how a run ended: ``done``, ``failed``, or ``pending`` again."""
        before = self.states[run_id]
        seconds, known = before.spent(time.time()), launches or before.launches
        self._write(replace(before, state=state, message=message, launches=known, seconds=seconds))
