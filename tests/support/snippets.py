"""Run what a page of documentation shows: its commands, its Python, and what they print.

A page is one walk: its blocks run in order, in one folder, and its Python shares one namespace.

- ``console``: lines that begin with ``$ `` are commands, the others what they print (``...``
  stands for what is left out, of a line or between lines). A shown ``error:`` means that the
  command has to fail.
- ``python``: code; a ``text`` block right after it is what it prints.
- any block with a file name as its title becomes that file.
- a title that begins with one of `ELSEWHERE` keeps a block from running; its commands are checked
  as far as they can be: ``perfml collect`` runs dry, other verbs are parsed.
- text with a title, after no command, is a drawing.
- a title that begins with `ROUGHLY` compares what is printed without its numbers.

The front matter may name ``given`` files (name in the walk: path in the repository; ``.xz`` is
unpacked) and ``shorten`` (text in the page: text that runs instead).
"""

from __future__ import annotations

import contextlib
import io
import lzma
import re
import shlex
import shutil
import subprocess
import textwrap
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer

from perfml.cli import app

FENCE = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```[ ]*$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'title="([^"]*)"')
ELSEWHERE = ("on a machine with a GPU", "on a cluster", "with the published file")
ROUGHLY = "numbers vary"
FOREIGN = {"ncu", "nvprof", "nvcc", "dask", "srun", "sbatch", "python", "scp"}
"""Programs that a block for elsewhere may start."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    kind: str
    title: str
    text: str
    line: int

    @property
    def elsewhere(self) -> bool:
        return self.title.startswith(ELSEWHERE)

    @property
    def file_name(self) -> str | None:
        return self.title if re.fullmatch(r"[\w-]+\.\w+", self.title) else None


@dataclass(frozen=True)
class Page:
    """A page: its blocks and its front matter."""

    path: Path
    text: str
    blocks: tuple[Block, ...]
    given: dict[str, str]
    shorten: dict[str, str]


@dataclass(frozen=True)
class Command:
    """One command of a console block, and what the page says it prints."""

    words: tuple[str, ...]
    shown: list[str] = field(default_factory=list)


def read_page(path: Path) -> Page:
    """Read a page."""
    text = path.read_text(encoding="utf-8")
    head = text.split("---\n")[1] if text.startswith("---\n") else ""
    blocks = []
    for match in FENCE.finditer(text):
        title = TITLE.search(match.group(3))
        line = text.count("\n", 0, match.start()) + 1
        body = textwrap.dedent(match.group(4))
        blocks.append(Block(match.group(2), title.group(1) if title else "", body, line))
    return Page(path, text, tuple(blocks), _pairs(head, "given"), _pairs(head, "shorten"))


def _pairs(head: str, key: str) -> dict[str, str]:
    """Read ``key:`` and the indented ``"name": value`` lines below it."""
    block = re.search(rf"^{key}:\n((?:  .*\n)+)", head, re.MULTILINE)
    lines = block.group(1).splitlines() if block else []
    pairs = [re.fullmatch(r"""  (["']?)(.+?)\1: (["']?)(.*?)\3""", line) for line in lines]
    assert all(pairs), f"{key}: {lines}"
    return {pair.group(2): pair.group(4) for pair in pairs if pair}


def commands(block: Block) -> list[Command]:
    """Return the commands of a console block."""
    found: list[Command] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            words = line[2:].split("  #")[0]
            found.append(Command(tuple(shlex.split(words))))
        elif line.strip():
            assert found, f"line {block.line}: output before the first command"
            found[-1].shown.append(line)
    return found


def lay_out(page: Page, root: Path, folder: Path) -> None:
    """Put the files that a page starts from into a folder."""
    for name, path in page.given.items():
        source, target = root / path, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            target.symlink_to(source, target_is_directory=True)
        elif source.suffix == ".xz" and target.suffix != ".xz":
            target.write_bytes(lzma.decompress(source.read_bytes()))
        else:
            shutil.copyfile(source, target)


def walk(page: Page, root: Path, folder: Path) -> dict[str, str]:
    """Run a page in a folder, which has to be the working directory.

    Returns what was printed by each command (``perfml verb ...``, as it ran) and each piece of
    Python (its text).
    """
    lay_out(page, root, folder)
    for wanted in page.shorten:
        assert any(wanted in block.text for block in page.blocks), f"shorten: no block has {wanted}"
    namespace: dict[str, Any] = {"__name__": "__page__"}
    printed: str | None = None
    ran: dict[str, str] = {}
    for block in page.blocks:
        text = block.text
        for wanted, instead in page.shorten.items():
            text = text.replace(wanted, instead)
        shortened = text != block.text
        block = Block(block.kind, block.title, text, block.line)
        where = f"{page.path.name}, line {block.line}"
        if block.kind == "text" and block.title and printed is None:
            continue  # a drawing or a list with a title, printed by nobody
        if block.kind == "text":
            assert printed is not None, f"{where}: what prints this?"
            _compare(block.text.splitlines(), printed, block, where)
            printed = None
        elif block.file_name:
            (folder / block.file_name).write_text(block.text, encoding="utf-8")
            _check_file(folder / block.file_name, where)
        elif block.kind == "console":
            printed = None
            for command in commands(block):
                said = _run_command(command, block, root, where, compare=not shortened)
                ran[" ".join(command.words)] = said
        elif block.kind == "python":
            assert not block.elsewhere, f"{where}: Python for elsewhere needs a file's name"
            printed = _run_python(block.text, namespace, where)
            ran[block.text] = printed
        else:
            pytest.fail(f"{where}: nobody runs a block of kind {block.kind!r}")
    return ran


def run_perfml(words: tuple[str, ...]) -> tuple[int, str]:
    """Run the command line in this process; return its exit code and all that it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            app(list(words), prog_name="perfml")
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.getvalue() + err.getvalue()


def parse_perfml(words: tuple[str, ...]) -> None:
    """Check that a command's verb, options and arguments are right, without running it."""
    command, rest = find_verb(words)
    if "--help" not in rest:
        command.make_context("perfml", list(rest))


def find_verb(words: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """Return the command that words name, and the words behind the name."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        assert words, "no verb"
        assert words[0] in command.commands, f"no verb {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def _run_command(command: Command, block: Block, root: Path, where: str, *, compare: bool) -> str:
    program, rest = command.words[0], command.words[1:]
    printed = ""
    if program == "pip":
        _check_extras(rest, root, where)
    elif program == "make":
        makefile = (root / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{re.escape(rest[0])}:", makefile, re.MULTILINE), where
    elif program == "perfml" and not block.elsewhere:
        # a page's commands are typed in a clone: what lies in it is named from its root
        named = tuple(str(root / one) if one.startswith("studies/") else one for one in rest)
        code, printed = run_perfml(named)
        fails = any(line.startswith("error:") for line in command.shown)
        assert code == (1 if fails else 0), f"{where}: exit {code}\n{printed}"
        if compare:
            _compare(command.shown, printed, block, where)
    elif program == "perfml" and rest[0] == "collect":
        _pretend_programs(rest)
        code, printed = run_perfml(("collect", "--dry-run", *rest[1:]))
        assert code == 0, f"{where}: exit {code}\n{printed}"
    elif program == "perfml":
        parse_perfml(rest)
    elif program == "mkdir":
        assert not block.elsewhere, where
        Path(*rest).mkdir()
    else:
        assert block.elsewhere, f"{where}: {program} runs nowhere; say where in the title"
        assert program in FOREIGN, f"{where}: {program}"
        for inner in re.findall(r"\$\((.*?)\)", block.text):
            assert inner.startswith("perfml "), where
            code, printed = run_perfml(tuple(shlex.split(inner))[1:])
            assert code == 0, f"{where}: {printed}"
            assert printed.strip(), where
    return printed


def _pretend_programs(words: tuple[str, ...]) -> None:
    """Put an empty program where a command, run dry, wants one that a compiler would have made."""
    for word in words:
        if word.startswith("./"):
            Path(word).touch(mode=0o755)


def _check_extras(words: tuple[str, ...], root: Path, where: str) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert words[0] == "install", where
    for word in words[1:]:
        assert re.fullmatch(r"(\.|perfml)(\[[\w,]+\])?", word), f"{where}: {word}"
        named = re.findall(r"\w+", word.partition("[")[2])
        assert set(named) <= set(project["optional-dependencies"]), f"{where}: {word}"


def _check_file(path: Path, where: str) -> None:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        compile(text, str(path), "exec")
    elif path.suffix == ".toml":
        tomllib.loads(text)
    elif path.suffix == ".sh":
        done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{where}: {done.stderr}"
        for line in text.replace("\\\n", " ").splitlines():
            words = tuple(shlex.split(line, comments=True))
            if words and words[0] == "perfml":
                parse_perfml(words[1:])


def _run_python(text: str, namespace: dict[str, Any], where: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, where, "exec"), namespace)
    return out.getvalue()


def _compare(shown: list[str], printed: str, block: Block, where: str) -> None:
    """Check that every shown line was printed, whatever the blanks (and numbers, if they vary)."""
    roughly = block.title.startswith(ROUGHLY)
    lines = [_normal(line, roughly) for line in printed.splitlines()]
    for line in shown:
        parts = [re.escape(part.strip()) for part in _normal(line, roughly).split("...")]
        wanted = re.compile(".*".join(parts))
        assert any(map(wanted.search, lines)), f"{where}: not printed: {line}\n{printed}"


def _normal(line: str, roughly: bool) -> str:
    line = re.sub(r"[-+]?\d[\d.,e+-]*", "#", line) if roughly else line
    return " ".join(line.split())
