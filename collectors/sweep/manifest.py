"""A sweep's manifest: the state of every run in one SQLite file, written by the driver alone.

SQLite's rollback journal is used, not its write-ahead log: that one needs shared memory, which
the network file systems of clusters do not have, and a sweep writes a few rows a minute.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from collectors.run_spec import Run
from perfml import __version__
from perfml.errors import InputError

FILE = "sweep.sqlite"
_FORMAT = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS runs (
    run_id TEXT PRIMARY KEY,
    definition TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'running', 'done', 'failed')),
    message TEXT NOT NULL DEFAULT '',
    launches INTEGER
);
CREATE TABLE IF NOT EXISTS attempts (
    run_id TEXT NOT NULL REFERENCES runs (run_id),
    number INTEGER NOT NULL,
    worker TEXT NOT NULL,
    host TEXT NOT NULL,
    gpu TEXT NOT NULL,
    since REAL NOT NULL,
    ended REAL,
    outcome TEXT,
    PRIMARY KEY (run_id, number)
);
"""


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
    state: Literal["pending", "running", "done", "failed"]
    message: str
    launches: int | None
    attempts: int
    worker: str
    host: str
    gpu: str
    since: float | None
    seconds: float


class Manifest:
    """The manifest of the sweep in one folder; use it as a context manager."""

    def __init__(self, out: Path) -> None:
        self.path = out / FILE
        try:
            # autocommit: each statement is one transaction, on the disk when it returns
            self._base = sqlite3.connect(self.path, isolation_level=None, timeout=30)
            self._base.execute("PRAGMA synchronous = FULL")
            self._base.executescript(_TABLES)
            self._check_format()
        except sqlite3.Error as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> InputError:
        msg = "the sweep's manifest cannot be used"
        cure = "Move it away and run again with --resume: finished runs are found by their folders."
        return InputError(msg, where=str(self.path), found=str(error)[:200], cure=cure)

    def _check_format(self) -> None:
        known = {"format": str(_FORMAT), "perfml": __version__}
        self._base.executemany("INSERT OR IGNORE INTO about VALUES (?, ?)", known.items())
        (found,) = self._base.execute("SELECT value FROM about WHERE name = 'format'").fetchone()
        if found != str(_FORMAT):
            msg = "the manifest is of another version of perfml"
            cure = "Use that version, or another --out."
            raise InputError(msg, where=str(self.path), found=f"format {found}", cure=cure)

    def __enter__(self) -> Manifest:
        return self

    def __exit__(self, *details: object) -> None:
        self._base.close()

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """Make several statements one transaction."""
        try:
            self._base.execute("BEGIN IMMEDIATE")
            yield
            self._base.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._base.execute("ROLLBACK")
            raise self._damaged(error) from error

    def plan(self, runs: Mapping[str, Run], finished: dict[str, int | None]) -> None:
        """Enter a sweep's runs by id; those of `finished` (id to launches) are done.

        An attempt without an end belongs to a driver that was killed: it is closed as lost.
        """
        with self._together():
            self._base.execute(
                "UPDATE attempts SET ended = COALESCE(ended, since), outcome = 'lost' "
                "WHERE outcome IS NULL"
            )
            for run_id, run in runs.items():
                definition = json.dumps(asdict(run), default=str)
                state = "done" if run_id in finished else "pending"
                self._base.execute(
                    "INSERT INTO runs (run_id, definition, state, launches) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT (run_id) DO UPDATE SET state = excluded.state, message = '', "
                    "launches = COALESCE(excluded.launches, launches)",
                    (run_id, definition, state, finished.get(run_id)),
                )

    def begin(self, run_id: str, worker: str, host: str, gpu: str, since: float) -> int:
        """Note that a worker began a run; return the number of the attempt, from 1.

        If an earlier attempt has not ended, its worker was lost.
        """
        with self._together():
            self._base.execute(
                "UPDATE attempts SET ended = ?, outcome = 'lost' "
                "WHERE run_id = ? AND outcome IS NULL",
                (since, run_id),
            )
            (before,) = self._base.execute(
                "SELECT COUNT(*) FROM attempts WHERE run_id = ?", (run_id,)
            ).fetchone()
            self._base.execute(
                "INSERT INTO attempts (run_id, number, worker, host, gpu, since) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (run_id, before + 1, worker, host, gpu, since),
            )
            self._base.execute("UPDATE runs SET state = 'running' WHERE run_id = ?", (run_id,))
        return int(before) + 1

    def end(
        self, run_id: str, state: str, *, message: str = "", launches: int | None = None
    ) -> None:
        """Note how a run ended: ``done``, ``failed``, or ``pending`` again."""
        outcome = {"pending": "interrupted"}.get(state, state)
        with self._together():
            self._base.execute(
                "UPDATE attempts SET ended = ?, outcome = ? WHERE run_id = ? AND outcome IS NULL",
                (time.time(), outcome, run_id),
            )
            self._base.execute(
                "UPDATE runs SET state = ?, message = ?, launches = COALESCE(?, launches) "
                "WHERE run_id = ?",
                (state, message, launches, run_id),
            )

    def states(self) -> dict[str, State]:
        """Return every run of the folder by id."""
        query = (
            "SELECT r.run_id, r.state, r.message, r.launches, COUNT(a.number), "
            "COALESCE(MAX(a.since), 0), COALESCE(SUM(COALESCE(a.ended, a.since) - a.since), 0) "
            "FROM runs r LEFT JOIN attempts a USING (run_id) GROUP BY r.run_id"
        )
        last = {
            row[0]: row[1:]
            for row in self._base.execute(
                "SELECT run_id, worker, host, gpu FROM attempts ORDER BY run_id, number"
            )
        }
        found = {}
        for run_id, state, message, launches, attempts, since, seconds in self._base.execute(query):
            worker, host, gpu = last.get(run_id, ("", "", ""))
            found[run_id] = State(
                run_id,
                state,
                message,
                launches,
                attempts,
                worker,
                host,
                gpu,
                since or None,
                round(seconds, 3),
            )
        return found
