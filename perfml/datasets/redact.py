"""Take out of a profile what tells whose machine it was measured on, so that it can be shared.

What is kept of a provenance is listed (`KEPT`): a key that perfml does not know is left out, so a
new fact is private until somebody decides otherwise. Names of users and machines that the dropped
values give away are then struck out of every text that stays, in the table as in the provenance.
"""

from __future__ import annotations

import contextlib
import csv
import getpass
import json
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.errors import InputError, PerfmlError
from perfml.tables import Table, replacing
from perfml.util.files import cannot_write


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SHAPES = _words(
    "layer type kind name index reads input output flops weight_bytes input_bytes output_bytes "
    "size stride pad filters groups activation batch classes heads tokens head_dim parameters"
)
"""Facts of a layer."""

VERSIONS = _words(
    "python perfml numpy torch triton torchvision timm transformers library_version driver cuda "
    "cudnn tensorrt jax gpu compute_capability multiprocessors memory_bytes time tool_version "
    "profiler_version"
)
"""Facts of the GPU and its libraries."""

RUNS = _words(
    "run_id workload backend precision batch iterations metric_iterations processes warmup seed "
    "device weights profiler started ended created timing source seconds launches "
    "options metrics raw_metrics workload_options "
    "unattributed_share kernels_per_iteration clock_control cache_control replay iteration "
    "sm_clock_mhz settings model library attention compile cudnn_enabled "
    "cudnn_benchmark allow_tf32 memory_format metrics_requested metrics_missing launches_profiled "
    "passes profiling_seconds conversion_seconds seconds_per_launch layers layer_map layer kernels "
    "skip lines check passed outputs relative_error limit products operator m n k dtype count"
)
"""Facts of a run."""

SOURCES = _words(
    "sources runs format tool sha256 path times_path times_sha256 times_format "
    "memory_operations serialised schema_version metric_numbers substituted undefined rules "
    "warnings kind unattributed coverage metric rows least left_out share time_us environment "
    "redacted where workload_from device_facts clock_khz memory_clock_khz memory_bus_bits"
)
"""Facts of a file, and of the table made of it."""

KEPT = SHAPES | VERSIONS | RUNS | SOURCES
"""Keys of a provenance that survive; every other one is left out with all that it holds."""

_FREE = frozenset({"substituted", "undefined", "groups", "kernels"})
"""Keys over mappings whose own keys are names of metrics or layers."""

_GENERIC = _words(
    "root user users admin administrator ubuntu debian docker runner home localhost local none "
    "unknown null true false nobody python python3 host linux windows tmp data work"
)
"""Names that tell nothing about anybody, and could be words of a kernel's name."""

_PERSON = re.compile(r"user|owner|login|author|account", re.IGNORECASE)
_MACHINE = re.compile(r"host|node|machine|server|fqdn", re.IGNORECASE)
_HOMES = r"(?:/home/|/Users/|/u/|/usr/people/|[A-Za-z]:[\\/]{1,2}Users[\\/]{1,2})"
_HOME = re.compile(_HOMES + r"([^/\\\s:'\"]+)")
_SPACED_HOME = re.compile(_HOMES + r"([^/\\\n:'\"]+ [^/\\\n:'\"]+)[/\\]")
_AT = re.compile(r"\b([\w.-]+)@([\w.-]*\w)")
_PATH = re.compile(
    r"(?:file://)?(?<![\w.>])(?:~|[A-Za-z]:)?(?:[\\/]{1,2})(?:[^\s/\\'\"<>,;()\[\]{}=]+[\\/])+"
)
"""The folders of an absolute path; its last part stays."""

_ADDRESS = re.compile(
    r"(?<![\d.])(?!127\.0\.0\.1)(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"
    r"|(?i:\b(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}\b)"
    r"|\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
"""IPv4, IPv6 and hardware addresses, and the number that every GPU has."""

_VERSION = re.compile(r"\d+(?:\.\w+)+")
_ASSIGNED = re.compile(r"\b([A-Z][A-Z0-9_]{2,})=\S+")
"""A variable of the environment in a sentence."""

_SHORTEST = 3
"""Letters of the shortest name that is struck out wherever it stands."""

_TABLE = re.compile(r"[^.].*\.csv(?:\.(?:gz|xz|bz2))?")
_HOST_COLUMNS = ("Host Name", "Process Name")


@dataclass
class Redactor:
    """Strikes names and paths out of texts.

    `names` have to go, each for what comes in its place; words in lower case that are `safe` tell
    nothing about anybody; `dropped` are keys and columns that were left out so far.
    """

    names: dict[str, str] = field(default_factory=dict)
    safe: set[str] = field(default_factory=lambda: set(_GENERIC))
    dropped: set[str] = field(default_factory=set)
    _known: dict[str, str] = field(default_factory=dict, repr=False)
    _pattern: re.Pattern[str] | None = field(default=None, repr=False)

    def learn(self, name: str, substitute: str) -> None:
        """Strike a name out from now on, unless it is too common to tell anything."""
        for part in {name, name.split(".")[0]} if substitute == "<host>" else {name}:
            if len(part) >= _SHORTEST and part.lower() not in self.safe and not _number(part):
                self.names.setdefault(part, substitute)
        self._known.clear()
        self._pattern = None

    def learn_from(self, text: str, key: str = "") -> None:
        """Look for names of users and machines in a text that stands under a key."""
        for user in (*_HOME.findall(text), *_SPACED_HOME.findall(text)):
            self.learn(user, "<user>")
        for user, host in _AT.findall(text):
            self.learn(user, "<user>")
            self.learn(host, "<host>")
        word = text.strip()
        if word and not re.search(r"[\s/\\]", word):
            if _MACHINE.search(key):
                self.learn(word, "<host>")
            elif _PERSON.search(key):
                self.learn(word, "<user>")

    def text(self, text: str) -> str:
        """Return a text without names, addresses and folders."""
        found = self._known.get(text)
        if found is None:
            found = _ADDRESS.sub("<address>", _PATH.sub("<path>/", _AT.sub("<user>@<host>", text)))
            if self.names:
                found = self._names().sub(lambda match: self._substitute(match.group()), found)
            self._known[text] = found
        return found

    def _substitute(self, name: str) -> str:
        return self.names.get(name) or next(
            substitute for known, substitute in self.names.items() if known.lower() == name.lower()
        )

    def _names(self) -> re.Pattern[str]:
        if self._pattern is None:
            longest_first = sorted(self.names, key=len, reverse=True)
            words = "|".join(map(re.escape, longest_first))
            # "_" joins words in file names and kernel names, so it ends a name too
            self._pattern = re.compile(
                rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])", re.IGNORECASE
            )
        return self._pattern

    def value(self, value: Any, *, free: bool = False) -> Any:
        """Return a JSON value with what may stay; `free` mappings have keys of their own."""
        if isinstance(value, dict):
            kept: dict[str, Any] = {}
            for key, each in value.items():
                if not free and key not in KEPT:
                    self.dropped.add(str(key))
                    continue
                if key == "environment" and not isinstance(each, dict):
                    self.dropped.add(key)
                    continue
                if key in VERSIONS and isinstance(each, str) and _VERSION.fullmatch(each):
                    kept[key] = each  # four numbers of a version are no network address
                    continue
                kept[self.text(str(key))] = self.value(each, free=key in _FREE)
            return kept
        if isinstance(value, list):
            return [self.value(each) for each in value]
        if isinstance(value, str):
            return self.text(_ASSIGNED.sub(r"\1=<removed>", value))
        return value

    def column(self, column: pd.Series[Any]) -> pd.Series[Any]:
        """Return a column of text with names struck out; different texts stay different."""
        distinct = [text for text in column.dropna().unique() if isinstance(text, str)]
        taken: dict[str, str] = {}
        new: dict[str, str] = {}
        for text in distinct:
            found = self.text(text)
            base, number = found, 2
            while taken.setdefault(found, text) != text:
                found, number = f"{base}~{number}", number + 1
            if found != text:
                new[text] = found
        if not new:
            return column
        return column.map(lambda text: new.get(text, text), na_action="ignore").astype(column.dtype)


def redactor(
    documents: Iterable[Any], hide: Iterable[str] = (), safe: Iterable[str] = ()
) -> Redactor:
    """Return a redactor that knows the names that documents give away, and this machine's.

    The documents are provenances and manifests, as JSON values. `hide` are further words to strike
    out; `safe` are texts, such as names of GPUs, whose words are no secrets even where a host is
    called so.
    """
    from perfml.ingest.run_labels import BACKENDS, PRECISIONS

    found = Redactor()
    found.safe.update(BACKENDS, PRECISIONS)
    found.safe.update(word.lower() for text in safe for word in re.split(r"[\s_-]+", text))
    found.learn(socket.gethostname(), "<host>")
    with contextlib.suppress(OSError, KeyError):  # a process need not have a name
        found.learn(getpass.getuser(), "<user>")
    found.learn_from(str(Path.home()))
    for document in documents:
        for key, text in _texts(document):
            found.learn_from(text, key)
    for word in hide:
        if len(word.strip()) < _SHORTEST:
            msg = f"a word to hide needs at least {_SHORTEST} letters"
            raise PerfmlError(msg, where="--hide", found=repr(word), cure="Give the whole word.")
        found.names[word.strip()] = "<hidden>"
    return found


def redact_table(table: Table, *, hide: Iterable[str] = ()) -> tuple[Table, tuple[str, ...]]:
    """Return a table that can be shared, and the keys of its provenance that were left out.

    Removed are host names, user names, folders of paths, network addresses, environments, command
    lines, and the words to `hide`: from the provenance, and from every text of the table (run ids,
    layers, kernels). Texts that differed still differ. Raises `PerfmlError` if a word to hide is
    too short.
    """
    frame = table.frame.copy()
    devices = frame["device"].dropna().unique() if "device" in frame.columns else ()
    strike = redactor([table.provenance], hide, safe=map(str, devices))
    for name in frame.columns:
        column = frame[name]
        if not pd.api.types.is_numeric_dtype(column):
            for text in column.dropna().unique():
                strike.learn_from(str(text))
        if _MACHINE.search(str(name)) or _PERSON.search(str(name)):
            for text in column.dropna().unique():
                strike.learn_from(str(text), str(name))
            if not pd.api.types.is_numeric_dtype(column):
                frame = frame.drop(columns=name)
                strike.dropped.add(str(name))
    for name in frame.columns:
        if not pd.api.types.is_numeric_dtype(frame[name]):
            frame[name] = strike.column(frame[name])
    frame.columns = pd.Index([strike.text(str(name)) for name in frame.columns])
    frame.attrs = {}
    provenance = {**strike.value(table.provenance), "redacted": True}
    return replace(table, frame=frame, provenance=provenance), tuple(sorted(strike.dropped))


def redact_run(
    folder: str | Path, out: str | Path, *, hide: Iterable[str] = ()
) -> tuple[list[Path], list[str]]:
    """Copy what can be shared of a run's folder: its run.json and its CSV tables.

    Logs and binary reports hold names that nobody can be sure to find, so they stay behind, and so
    do links; the tables hold all that perfml reads. Returns the files of the copy, and the names of
    the files that stayed behind. Raises `InputError` if there is no ``run.json``, it is a link, or
    a table cannot be parsed.
    """
    from perfml.ingest.run_labels import MANIFEST, read_manifest

    folder, out = Path(folder), Path(out)
    if not (folder / MANIFEST).is_file():
        msg = f"no {MANIFEST} in this folder"
        raise InputError(msg, where=str(folder), cure="Name a run's folder, or a Parquet table.")
    if (folder / MANIFEST).is_symlink():
        msg = "a link leads to a file that may not belong to the run"
        cure = "Replace it by the file that it names, if that may be shared."
        raise InputError(msg, where=str(folder / MANIFEST), cure=cure)
    manifest = read_manifest(folder / MANIFEST)
    # a link stays behind: what it names may be anything
    files = [path for path in folder.iterdir() if not path.is_symlink()]
    tables = sorted(path for path in files if _TABLE.fullmatch(path.name))
    strike = redactor([manifest], hide, safe=[str(manifest.get("device", ""))])
    found = {path.name.partition(".csv")[0] + ".csv": _rows(path) for path in tables}
    for _, each in found.values():
        _learn_hosts(strike, each)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(out, error, "Name another.") from error
    written = []
    for name, (facts, each) in found.items():
        with (
            replacing(out / name) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as file,
        ):
            # Nsight Compute quotes every cell; times would be read as text if they were quoted
            quoted = each[0][:1] == ["ID"]
            writer = (
                csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
                if quoted
                else csv.writer(file, lineterminator="\n")
            )
            file.writelines(strike.text(fact) + "\n" for fact in facts)
            writer.writerows(_struck(strike, each))
        written.append(out / name)
    document = {**strike.value(manifest), "redacted": True}
    with replacing(out / MANIFEST) as temporary:
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        temporary.write_text(text, encoding="utf-8")
    written.append(out / MANIFEST)
    copied = {MANIFEST, *(path.name for path in tables)}
    return written, sorted(path.name for path in folder.iterdir() if path.name not in copied)


def _rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the lines of facts above a table of counters (``# ...``), and its rows.

    Rows begin with the header; what programs printed before it is left out.
    """
    from perfml.readers.ncu.page import header_at
    from perfml.readers.source import Source

    text = Source(path).text()
    start = header_at(text.encode())
    if start > 0:
        text = text.encode()[start:].decode()
    lines = text.splitlines(keepends=True)
    facts = list(takewhile(lambda line: line.startswith("# "), lines))
    rows = [row for row in csv.reader(lines[len(facts) :]) if row]
    odd = next((row for row in rows if len(row) != len(rows[0])), None)
    if odd is not None:
        msg = "not a table: its rows have different numbers of cells"
        cure = "Export the profile again, or share the Parquet table instead."
        raise InputError(msg, where=str(path), found=",".join(odd)[:60], cure=cure)
    return [fact.rstrip("\r\n") for fact in facts], rows


def _learn_hosts(strike: Redactor, rows: list[list[str]]) -> None:
    for place, name in enumerate(rows[0]):
        key = name if name in _HOST_COLUMNS[:1] else ""
        for text in {row[place] for row in rows[1:]}:
            strike.learn_from(text, key)


def _struck(strike: Redactor, rows: list[list[str]]) -> Iterator[list[str]]:
    blank = {place for place, name in enumerate(rows[0]) if name in _HOST_COLUMNS}
    yield rows[0]
    for row in rows[1:]:
        yield [
            ("" if not cell else "removed") if place in blank else strike.text(cell)
            for place, cell in enumerate(row)
        ]


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text of a JSON value under the nearest key."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield "", str(name)
            yield from _texts(each, str(name))
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, key)
    elif isinstance(value, str):
        yield key, value


def _number(text: str) -> bool:
    return text.replace(".", "").isdigit()
