"""How a command speaks: results on stdout, everything else on stderr, one document for --json."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.core import TyperGroup

from perfml.cli.verbs import whole_words, write_verbs
from perfml.errors import PerfmlError, did_you_mean, plain
from perfml.util.files import interruptible, replacing, require_place
from perfml.util.json_values import json_value

if TYPE_CHECKING:
    import pandas as pd

    from perfml.report.document import Document

PIPE_WIDTH = 200
"""Columns from which on a pipe is not folded."""

INTERRUPTED = 130
"""What shells report for a program that Ctrl-C ended."""

VERSION = 1
"""Of the documents that ``--json`` prints: it grows when a key goes or changes its meaning."""

ALIKE = 3
"""Warnings of one kind that are all printed."""

_VARYING = re.compile(r"^[^\s:]+: |\([^()]*\)|\b[a-z]\w*_\w+|\d[\d.,]*(?: launch(?:es)?)?")
"""What differs between warnings of one kind: file or run in front, metrics, numbers, details."""


_CHOICES = re.compile(r"'([^']*)' is not one of (.+)")
"""How an error of usage names what was given and what could be."""


class Output:
    """What a command prints through.

    `quiet` leaves out notes, warnings and progress; `verbose` prints further notes from 1, and lets
    tracebacks through from 2.
    """

    current: Output | None = None
    """The running command's output, for errors that end it."""

    verb: str | None = None
    """The running command's name; None outside the command line."""

    def __init__(self, as_json: bool = False, quiet: bool = False, verbose: int = 0) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.verbose = verbose
        self._warned: set[str] = set()
        Output.current = self

    def result(
        self, document: dict[str, Any], lines: Iterable[str] = (), *, whole: bool = False
    ) -> None:
        """Print the result: the document for ``--json``, else the lines.

        A narrow terminal folds lines between words; `whole` ones are commands to copy.
        """
        if self.as_json:
            self.schema(document if self.verb is None else _marked(self.verb, document))
        else:
            for line in (each for text in lines for each in text.split("\n")):
                sys.stdout.write("\n".join([line] if whole else _folded(line, _width())) + "\n")

    def schema(self, document: dict[str, Any]) -> None:
        """Print a JSON document as it is."""
        sys.stdout.write(json.dumps(json_value(document), indent=2, allow_nan=False) + "\n")

    def document(self, result: dict[str, Any], document: Document) -> None:
        """Print the result for ``--json``, else the document as text; ``-v`` prints every row."""
        if self.as_json:
            self.result(result)
            return
        from perfml.report.render.text import to_text

        full = self.verbose > 0
        sys.stdout.write(to_text(document, full=full, width=_width(), styled=_styled()))

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        title: str = "",
        spare: Sequence[str] = (),
    ) -> None:
        """Print a table on stdout (not with ``--json``); numbers are aligned to the right.

        A narrow terminal leaves out `spare` columns first.
        """
        if self.as_json:
            return
        from perfml.report.render.text import table_text
        from perfml.report.tables import value_table

        table = value_table(columns, rows, title, spare)
        sys.stdout.write(table_text(table, width=_width(), styled=_styled()))

    def csv(self, table: pd.DataFrame, out: Path | None) -> None:
        """Write a table as CSV, where --out names a file."""
        if out is not None:
            with replacing(out) as temporary:
                table.to_csv(temporary, index=False)

    def note(self, text: str) -> None:
        """Print a note on stderr, with ``-v``."""
        if self.verbose and not self.quiet:
            sys.stderr.write(text + "\n")

    def note_all(self, texts: Iterable[str]) -> None:
        """Print notes on stderr, with ``-v``."""
        for text in texts:
            self.note(plain(text))

    def warn(self, text: str) -> None:
        """Print a warning on stderr, once: two sides often have the same to say."""
        if text not in self._warned:
            self._warned.add(text)
            self.tell(f"warning: {text}")

    def tell(self, text: str) -> None:
        """Print on stderr what a person who waits should know."""
        if not self.quiet:
            width = shutil.get_terminal_size().columns if sys.stderr.isatty() else 0
            sys.stderr.write("\n".join(_folded(plain(text), width)) + "\n")

    def warn_all(self, texts: Iterable[str]) -> None:
        """Print warnings on stderr; of more than three alike, one stands for all without ``-v``."""
        kinds: dict[str, list[str]] = {}
        for text in texts:
            kinds.setdefault(_VARYING.sub("#", text), []).append(text)
        for alike in kinds.values():
            if self.verbose or len(alike) <= ALIKE:
                for text in alike:
                    self.warn(text)
            else:
                self.warn(f"{alike[0]} [and {len(alike) - 1} more of this kind; -v lists them]")

    def place(self, out: Path | None) -> None:
        """Raise `InputError` where the result could not be written, before the work begins."""
        require_place(out)

    def fail(self, what: str, cure: str) -> NoReturn:
        """End the command with exit code 1, on stderr alone, after its result was printed.

        A raised `PerfmlError` would be a second document there.
        """
        _said(f"{what}\n{cure}")
        raise typer.Exit(1)

    @contextmanager
    def progress(self, what: str) -> Iterator[Callable[[int, int, str], None]]:
        """Give a progress callback that draws a bar on a terminal, once a second has passed."""
        if self.quiet or not sys.stderr.isatty():
            yield lambda done, total, name: None
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        began = time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        bar = Progress(*columns, *times, console=Console(stderr=True), transient=True)
        task = bar.add_task(what, total=None)

        def update(done: int, total: int, name: str) -> None:
            if not bar.live.is_started and time.monotonic() - began > 1:
                bar.start()
            bar.update(task, completed=done, total=total, description=f"{what} {name}"[:60])

        try:
            yield update
        finally:
            bar.stop()


class Commands(TyperGroup):
    """The command group: turns errors into two lines and an exit code."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb, with help that breaks no word."""
        command = super().get_command(ctx, cmd_name)
        return command and whole_words(command)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs by group."""
        write_verbs(self, ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the words name, and note what it is called."""
        name, command, rest = super().resolve_command(ctx, args)
        Output.verb = name
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; exit 1 on an error a user can act on, 130 on Ctrl-C."""
        Output.current = Output.verb = None
        if sys.stdout is None:
            sys.stderr.write("error: standard output is closed\nDo not close it (>&-).\n")
            raise typer.Exit(1)
        try:
            with interruptible():
                result = super().invoke(ctx)
                sys.stdout.flush()
            return result
        except PerfmlError as error:
            if _wants_traceback():
                raise
            _report({**error.as_dict()}, str(error))
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            sys.stderr.write("interrupted: nothing was half-written; run the command again\n")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # the reader of our output went away (| head): no error of ours
            sys.stderr.close()
            raise typer.Exit(0) from None
        except OSError as error:
            if _wants_traceback():
                raise
            refused(error)
            raise typer.Exit(1) from error
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if type(error).__module__.split(".")[0] in {"click", "typer"}:
                _suggest(error)
                raise
            if _wants_traceback():
                raise
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"internal error: {type(error).__name__}: {str(error)[:300]}"
            cure = f"This is a defect of perfml ({place.name}); -vv shows where. Please report it."
            _report({"what": what, "cure": cure}, f"{what}\n{cure}")
            raise typer.Exit(1) from error


def _marked(verb: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with its schema's name as the first key."""
    return {"schema": f"{verb}/{VERSION}", **document}


def _width() -> int:
    """Return the columns of the terminal, else COLUMNS where a pipe has more, else 0."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() and 0 < int(given) < PIPE_WIDTH else 0


def _folded(line: str, width: int) -> list[str]:
    """Return a line in pieces that fit, with the indent it has."""
    if not width or len(line) <= width:
        return [line]
    from perfml.util.shown import wrap

    text = line.lstrip()
    return wrap(text, width, line[: len(line) - len(text)])


def _styled() -> bool:
    plain_terminal = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain_terminal


def _suggest(error: Any) -> None:
    """Add the nearest choice to an error of usage that lists them."""
    found = _CHOICES.search(str(getattr(error, "message", "")))
    if found is not None:
        known = re.findall(r"'([^']+)'", found[2])
        said = str(error.message).removeprefix("Value error, ")
        error.message = f"{said} {did_you_mean(found[1], known, '')}".rstrip()


def _wants_traceback() -> bool:
    return Output.current is not None and Output.current.verbose > 1


_PACKAGE = Path(__file__).absolute().parents[1]


def refused(error: OSError) -> None:
    """Report what the system refused: a full disk, a folder that cannot be written, a lost file."""
    found = error.strerror or str(error)
    where = plain(str(error.filename)) if error.filename else None
    what = f"the system refused: {found}"
    cure = "Free some space, or name a place that you may write to."
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        cure = "Name another folder."
    elif isinstance(error, FileNotFoundError):
        own = error.filename and _PACKAGE in Path(os.fsdecode(error.filename)).absolute().parents
        cure = "Look whether it is still there, and name it again."
        cure = "It is a file of perfml: install perfml again." if own else cure
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        _document({"what": what, "where": where, "cure": cure})
        sys.stdout.flush()
        _said(_sentence(where, what, cure))
        return
    # It is standard output itself: Python would try again, and fail, when it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _said(_sentence(where or "standard output", what, cure))


def _said(text: str) -> None:
    """Write an error on stderr; a terminal folds it between words."""
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else 0
    for line in f"error: {text}".split("\n"):
        sys.stderr.write("\n".join(_folded(line, width)) + "\n")


def _sentence(where: str | None, what: str, cure: str) -> str:
    return f"{where}: {what}\n{cure}" if where else f"{what}\n{cure}"


def _report(document: dict[str, Any], text: str) -> None:
    _document(document)
    _said(text)


def _document(error: dict[str, Any]) -> None:
    """Write an error as JSON, if that was asked for."""
    if Output.current is not None and Output.current.as_json:
        sys.stdout.write(json.dumps(_marked("error", {"error": json_value(error)})) + "\n")
