"""Processes that run beside the tests: what is asked of them, and how perfml is one soon."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import subprocess
import tempfile
import textwrap
import time
from pathlib import Path

from tests.support.paths import ROOT

PATIENCE_S = float(os.environ.get("PERFML_PATIENCE_S", "900"))
"""Seconds until a test gives up on another process.

It only ends what hangs: a test that passes does not wait for it, and a slow machine, or one with
other work, may take a hundred times as long as an idle one.
"""


def until(condition, seconds=PATIENCE_S):
    """Wait until a condition holds, and return what it returned."""
    end = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return answer


def let_hang(begun, attempt):
    """Let something hang until its limit, with a longer one if it had not begun by then.

    What hangs, or its child, sleeps for 600 s: an attempt that takes as long waited for it.

    Parameters
    ----------
    begun
        The file that it writes when it begins.
    attempt
        Called with the limit in seconds; returns when it is ended.
    """
    for seconds in (1, 10, 100, PATIENCE_S):
        start = time.monotonic()
        attempt(seconds)
        assert time.monotonic() - start < seconds + 300
        if begun.exists() and begun.stat().st_size:
            return
    raise AssertionError(f"{begun}: it did not begin")


def ran(*command, **options):
    """Run a program to its end; return its status and what it printed."""
    options = {"cwd": ROOT, "timeout": PATIENCE_S, "check": False, **options}
    return subprocess.run([*map(str, command)], capture_output=True, text=True, **options)


def alive(pid):
    """Whether a process runs: neither gone nor a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


class Forked:
    """A verb in a process of its own, forked from one that has the libraries loaded.

    Starting Python and loading them takes longer than most verbs. It has the methods of
    `subprocess.Popen` that the tests use.

    Parameters
    ----------
    arguments
        The verb and its arguments.
    before
        Lines of Python that run first.
    """

    def __init__(self, arguments: list[str], before: str = "") -> None:
        self._said = [Path(tempfile.mkstemp(prefix="perfml-said-")[1]) for _ in range(2)]
        given = (arguments, textwrap.dedent(before), *map(str, self._said))
        self._process = _server().Process(target=_verb, args=given, daemon=True)
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, timeout: float = PATIENCE_S) -> tuple[str, str]:
        """Wait for the end; return what was printed, and what was said on standard error."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, "it did not end"
        texts = [path.read_text() for path in self._said]
        for path in self._said:
            path.unlink()
        return texts[0], texts[1]


@functools.cache
def _server():
    server = multiprocessing.get_context("forkserver")
    loaded = ["cli", "ingest.profiles", "merge.rule", "report.write", "report.figures.registry"]
    server.set_forkserver_preload([f"perfml.{name}" for name in loaded])
    return server


def _verb(arguments: list[str], before: str, *said: str) -> None:
    for number, path in enumerate(said, start=1):
        os.dup2(os.open(path, os.O_WRONLY), number)
    exec(before, {})
    from perfml.cli import app

    app(arguments)
