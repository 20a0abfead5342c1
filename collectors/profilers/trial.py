"""Repairs that experiments measured, tried in the source: in a copy of its folder.

Mutants bound what a repair gains. A change of the source, or an option of the compiler, that does
the same is built and run here. Only a change whose place is known is tried: in the definition of
the kernel, or behind ``nvcc``. The build command is run as it was typed, without a shell. No file
of the user's changes.
"""

from __future__ import annotations

import math
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from collectors.profilers.inject import COUNTERS, library
from collectors.profilers.process import ProfilerError, last_lines, run
from collectors.profilers.timing import trace
from perfml.errors import PerfmlError
from perfml.experiments.mutation.programs import LINES
from perfml.experiments.proof import Proof
from perfml.experiments.repairs import UNREACHED
from perfml.kernel_names import short_kernel
from perfml.util.files import temporary_folder

MOST = 8
"""Changes that are tried: each is a build and two runs."""
_MOST_BYTES = 512 << 20
_SOURCES = (".cu", ".cuh", ".cpp", ".cc", ".h", ".hpp", ".inl")
_LITERAL = re.compile(r"(?<![\w.])((?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w.])")
_POINTER = re.compile(r"\*\s*(?:const\s+)?(?=[A-Za-z_]\w*\s*(?:,|$))")
_SHARED = re.compile(r"(__shared__\s+[\w:<>\s]+?\s\w+\s*\[[^\]]+\]\s*\[)([^\]]+)(\])")
_BOUNDS = re.compile(r"(__launch_bounds__\s*\(\s*[^,()]+),[^()]*\)")
_LOOP = re.compile(r"(?m)(?<!unroll)(\n[ \t]*)(?=for\s*\()")
_REGISTERS = re.compile(r"\s-{1,2}maxrregcount[= ]\s*\d+")

Edit = Callable[[str], str]
IN_KERNEL: dict[str, tuple[str, Edit]] = {
    "single_precision": ("float literals", lambda text: _LITERAL.sub(r"\1f", text)),
    "read_only_loads": ("__restrict__", lambda text: _restricted(text)),
    "no_conflicts": ("a row of padding", lambda text: _SHARED.sub(r"\1\2 + 1\3", text)),
    "more_registers": ("no minimum of blocks", lambda text: _BOUNDS.sub(r"\1)", text)),
    "unrolled_loops": ("#pragma unroll 4", lambda text: _LOOP.sub(r"\1#pragma unroll 4\1", text)),
    "batched_loads": (
        "#pragma unroll 4 and __restrict__",
        lambda text: _LOOP.sub(r"\1#pragma unroll 4\1", _restricted(text)),
    ),
    "no_local_arrays": ("#pragma unroll", lambda text: _LOOP.sub(r"\1#pragma unroll\1", text)),
}
"""A mutation to what does the same in the definition of the kernel: words, and the change."""
IN_FILE: dict[str, tuple[str, Edit]] = {
    "alike_constants": (
        "__device__ for __constant__",
        lambda text: re.sub(r"\b__constant__\b", "__device__", text),
    )
}
"""The same in the file of the kernel."""
OPTIONS: dict[str, tuple[str, Edit]] = {
    "fast_math": (
        "-use_fast_math",
        lambda build: re.sub(r"^(\s*\S+)", r"\1 -use_fast_math", build),
    ),
    "registers_64": (
        "-maxrregcount=64",
        lambda build: re.sub(r"^(\s*\S+)", r"\1 -maxrregcount=64", build),
    ),
    "more_registers": ("no -maxrregcount", lambda build: _REGISTERS.sub("", build)),
}
"""The same as an option of nvcc."""


def try_repairs(
    proof: Proof, build: str, program: Sequence[str], source: Path, *, log: Path, timeout_s: float
) -> tuple[Trial, ...]:
    """Build and run what does the same as the repairs that surely save time, and compare.

    Raises `PerfmlError` if the unchanged copy cannot be built or run.
    """
    source = source.resolve()
    _require_plain(build, source)
    with temporary_folder("try") as scratch:
        base = _Copy(source, scratch / "base", program, log, timeout_s)
        base.build(build)
        before, again = base.run(), base.run()
        made = []
        for number, (trial, edits, command) in enumerate(_changes(proof, source, build)):
            if not edits and command == build:
                made.append(trial)
                continue
            if number >= MOST:
                made.append(replace(trial, outputs=f"not tried: {MOST} changes are"))
                continue
            copy = _Copy(source, scratch / str(number), program, log, timeout_s)
            for path, text in edits.items():
                (copy.folder / path).write_text(text, encoding="utf-8", errors="surrogateescape")
            try:
                copy.build(command)
                after, second = copy.run(), copy.run()
            except ProfilerError as error:
                made.append(replace(trial, outputs=f"{error.what}: {error.found}"[:200]))
                continue
            times = [
                min(run.times.get(trial.kernel, 0.0) for run in pair)
                for pair in ((before, again), (after, second))
            ]
            outputs = _compared(before.texts, again.texts, after.texts)
            made.append(
                replace(trial, outputs=outputs, before_us=times[0], after_us=times[1])
                if all(times)
                else replace(trial, outputs="the kernel was not launched")
            )
            shutil.rmtree(copy.folder)
    return tuple(made)


@dataclass(frozen=True)
class Trial:
    """A change that does what a mutant did, built and run in a copy of the source.

    Attributes
    ----------
    mutation
        Id of the mutant.
    change
        Of the source, or of the compiler's options.
    kernel
        Its name.
    factor
        Time of the mutant over that of its control.
    outputs
        How the program's outputs differ; or why it was not tried.
    before_us, after_us
        All launches of the kernel; NaN where it was not tried.
    """

    mutation: str
    change: str
    kernel: str
    factor: float
    outputs: str = "not tried: its place in the source is not known"
    before_us: float = math.nan
    after_us: float = math.nan

    @property
    def ratio(self) -> float:
        """Time after over before."""
        return self.after_us / self.before_us

    @property
    def row(self) -> list[Any]:
        """What people read of it."""
        times = (self.before_us, self.after_us, self.ratio)
        shown = [None if math.isnan(time) else float(f"{time:.4g}") for time in times]
        return [self.change, self.kernel, self.outputs, *shown, round(self.factor, 3)]

    JSON: ClassVar = (
        *("mutation", "change", "kernel", "factor", "outputs", "before_us", "after_us", "ratio"),
    )


class _Run:
    """Microseconds of each kernel, and what the program wrote."""

    def __init__(self, times: dict[str, float], texts: dict[str, str]) -> None:
        self.times, self.texts = times, texts


class _Copy:
    """A copy of the folder of the source, in which the program is built and run."""

    def __init__(
        self, source: Path, folder: Path, program: Sequence[str], log: Path, timeout_s: float
    ) -> None:
        self.folder, self._log, self._timeout_s = folder, log, timeout_s
        shutil.copytree(source, folder, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        for path in filter(Path.is_symlink, [*folder.rglob("*")]):
            if path.is_file():  # what is written through a link would change the user's file
                target = path.resolve()
                path.unlink()
                shutil.copy2(target, path)
        self._program = [_in_copy(word, source, folder) for word in program]

    def build(self, command: str) -> None:
        """Build it; raises `ProfilerError` if that fails."""
        words = shlex.split(command)
        ended = run(words, log=self._log, timeout_s=self._timeout_s, cwd=self.folder)
        if ended.returncode != 0 or ended.timed_out:
            msg = "the copy does not build"
            raise ProfilerError(msg, where=words[0], found=last_lines(ended.output, 2)[:200])

    def run(self) -> _Run:
        """Run it; what it printed and the files that it wrote are its outputs."""
        known = {path: path.stat().st_mtime_ns for path in self._files()}
        log = self.folder / ".perfml-output"
        log.unlink(missing_ok=True)
        timed = trace(
            self._program,
            library(COUNTERS),
            log=log,
            timeout_s=self._timeout_s,
            cwd=self.folder,
        )
        times: dict[str, float] = {}
        for launch in timed.launches:
            if launch.bytes is None:
                name = short_kernel(launch.kernel)
                times[name] = times.get(name, 0.0) + (launch.end_ns - launch.start_ns) / 1e3
        printed = log.read_text(encoding="utf-8", errors="replace").partition("\n")[2]
        written = {"what it prints": printed}
        for path in self._files():
            if path != log and known.get(path) != path.stat().st_mtime_ns:
                text = path.read_bytes()[: 64 << 20].decode("latin-1")
                written[str(path.relative_to(self.folder))] = text
        return _Run(times, written)

    def _files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink()]


def _in_copy(word: str, source: Path, folder: Path) -> str:
    """Return a word of the program: a path into the source means the copy's, others stay."""
    path = Path(word).resolve()
    if not path.exists():
        return word
    return str(folder / path.relative_to(source) if path.is_relative_to(source) else path)


def _require_plain(build: str, source: Path) -> None:
    words = shlex.split(build)
    if not words or {"&&", "||", "|", ";", ">", "<"} & set(words):
        msg = "--build is one command, run without a shell"
        raise PerfmlError(msg, found=build, cure="Put several commands into a script.")
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    if size > _MOST_BYTES:
        msg = "the folder of the source is too large to be copied"
        found = f"{size >> 20} MiB of at most {_MOST_BYTES >> 20}"
        raise PerfmlError(msg, where=str(source), found=found, cure="Name it with --source.")


def _changes(
    proof: Proof, source: Path, build: str
) -> Iterator[tuple[Trial, dict[Path, str], str]]:
    """Return what to try: the trial, the files that change, and the build command."""
    texts = {
        path.relative_to(source): path.read_text(encoding="utf-8", errors="surrogateescape")
        for path in sorted(source.rglob("*"))
        if path.suffix in _SOURCES and path.is_file() and ".git" not in path.parts
    }
    known = set()
    for launch in proof.launches:
        kernel = short_kernel(launch.answer.launch.kernel)
        for repair in launch.repairs:
            if repair.high >= 1 or repair.mutation in UNREACHED:
                continue
            trials = [*_in_source(repair.mutation, kernel, texts)]
            option = OPTIONS.get(repair.mutation)
            command = build
            if option is not None and Path(shlex.split(build)[0]).name.startswith("nvcc"):
                command = option[1](build)
            if option is not None and command != build:
                trials.append((option[0], {}, command))
            if not trials:
                words = LINES.get(repair.mutation, repair.words)
                trials = [(words, {}, "")]
            for words, edits, command in trials:
                trial = Trial(repair.mutation, words, kernel, repair.factor)
                if (words, kernel) in known:
                    continue
                known.add((words, kernel))
                yield trial, edits, command or build


def _in_source(
    mutation: str, kernel: str, texts: dict[Path, str]
) -> Iterator[tuple[str, dict[Path, str], str]]:
    for table in (IN_KERNEL, IN_FILE):
        if mutation not in table:
            continue
        words, edit = table[mutation]
        places = [
            (path, *place) for path, text in texts.items() for place in definitions(text, kernel)
        ]
        if len(places) != 1:
            continue
        path, start, end = places[0]
        text = texts[path]
        if table is IN_FILE:
            start, end = 0, len(text)
        changed = text[:start] + edit(text[start:end]) + text[end:]
        if changed != text:
            yield f"{words} ({path})", {path: changed}, ""


def definitions(text: str, kernel: str) -> list[tuple[int, int]]:
    """Return where a kernel is defined in a source: from ``__global__`` to its last brace."""
    # comments and texts hold no code, and keep their length
    code = re.sub(
        r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", lambda m: " " * len(m[0]), text, flags=re.S
    )
    made = []
    for found in re.finditer(rf"__global__[^;{{}}]*?\b{re.escape(kernel)}\s*\(", code):
        close = _closing(code, found.end() - 1, "()")
        body = re.match(r"\s*\{", code[close + 1 :])
        if close >= 0 and body:
            end = _closing(code, close + body.end(), "{}")
            made += [(found.start(), end + 1)] if end >= 0 else []
    return made


def _closing(code: str, start: int, pair: str) -> int:
    depth = 0
    for place in range(start, len(code)):
        depth += (code[place] == pair[0]) - (code[place] == pair[1])
        if depth == 0:
            return place
    return -1


def _restricted(definition: str) -> str:
    """Return a definition of a kernel whose pointers are restricted."""
    end = definition.rindex(")", 0, definition.index("{"))
    start = next(at for at in range(end, -1, -1) if _closing(definition, at, "()") == end)
    parameters = _POINTER.sub(lambda m: f"{m[0]}__restrict__ ", definition[start + 1 : end])
    return definition[: start + 1] + parameters + definition[end:]


def _compared(first: dict[str, str], second: dict[str, str], changed: dict[str, str]) -> str:
    """Say how outputs differ from those of two runs of the unchanged program.

    What differs between these two, such as a time that is printed, is not compared.
    """
    if first.keys() != changed.keys():
        return "other files are written"
    worst = 0.0
    for name in first:
        one, two, other = (each[name].splitlines() for each in (first, second, changed))
        if not len(one) == len(two) == len(other):
            return f"{name} differs"
        for line, again, new in zip(one, two, other, strict=True):
            worst = max(worst, _distance(line, new) if line == again else 0.0)
        if math.isinf(worst):
            return f"{name} differs"
    return "the same" if worst == 0 else f"numbers differ by up to {100 * worst:.2g} %"


_NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")


def _distance(line: str, other: str) -> float:
    """Return by which part numbers of two lines differ at most; infinite if their words do."""
    if _NUMBER.split(line) != _NUMBER.split(other):
        return math.inf
    pairs = zip(map(float, _NUMBER.findall(line)), map(float, _NUMBER.findall(other)), strict=True)
    return max((abs(x - y) / max(abs(x), abs(y)) for x, y in pairs if x != y), default=0.0)
