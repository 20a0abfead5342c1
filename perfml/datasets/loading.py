"""From what a user names to tables: the one way in for every verb.

A name is a table, a published ``dataset.csv``, a data set, a profile, a folder of profiles, or a
run that ``perfml collect`` wrote; ``FILE@3`` is its fourth launch. Nothing is written.

Here to change: what a name may be, in `_opened`; which launches may be chosen, in ``choosing``.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.account.account import Account, account_in
from perfml.datasets.choosing import LaunchChoice, chosen_launches, only, split_place
from perfml.datasets.parts import part_files, read_parts
from perfml.datasets.registry import DATASETS, fetch, is_dataset, layers_meant, proposal
from perfml.errors import InputError, PerfmlError, did_you_mean
from perfml.kernel_names import setup_note
from perfml.tables import Table, read_table, require_file
from perfml.util.files import files_like
from perfml.util.shared import SharedDict, SharedList
from perfml.util.words import count

DERIVED = "derived"
"""Key of ``DataFrame.attrs``: metrics that another formula stood in for."""

DEVICE_FACTS = "device_facts"
"""Key of ``DataFrame.attrs``: what the profiles say of each device, by its name."""

KERNELS_FILE = "kernels.parquet"
"""The Kernels table of a folder; its layers are merged from it where no Layers table is there."""

UNKNOWN = "unknown"
"""A workload that nobody named."""

_PLACE = "place in its profile"
"""Column that launches have while some of them are chosen."""

_NO_TIMES = {
    "ncu": "Profile again with --section SpeedOfLight: it has the duration (gpu__time_duration).",
    "nvprof": "Read them with a trace of the same program: nvprof --print-gpu-trace, both in one "
    "folder.",
    "trtexec": "Give the folder that has trtexec's --exportProfile of the engine too.",
}
"""What brings durations, by the beginning of a format's name."""


@dataclass(frozen=True)
class Given:
    """What a user named, as tables.

    Attributes
    ----------
    name
        As it was named.
    kernels
        A row a launch; None where only merged layers are known.
    stored
        A Layers table that was read as such; None where layers are merged from `kernels`.
    provenance
        Where it comes from.
    warnings
        What the readers had to say.
    note
        What the user has to know of what was profiled.
    places
        By run, the places of the chosen launches in their profile, from 0; None where all are
        meant.
    """

    name: str
    kernels: pd.DataFrame | None
    stored: pd.DataFrame | None
    provenance: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    note: str | None = None
    places: Mapping[str, frozenset[int]] | None = None

    @property
    def title(self) -> str:
        """What it is called in sentences: the name without folders."""
        return Path(self.name).name

    @property
    def ranged(self) -> bool:
        """Whether layers are known: read as such, or a launch lies in a range."""
        if self.stored is not None or self.kernels is None:
            return True
        return bool(self.kernels["layer"].notna().any())

    @cached_property
    def layers(self) -> pd.DataFrame:
        """The Layers table.

        Raises
        ------
        PerfmlError
            If no launch lies in a range, or a launch in one has no time.
        """
        from perfml.merge.rule import merge

        if self.stored is not None:
            return self._marked(self.stored)
        assert self.kernels is not None
        self._require_times()
        return self._marked(merge(self.kernels))

    @property
    def launches(self) -> pd.DataFrame:
        """The Kernels table.

        Raises
        ------
        PerfmlError
            If only merged layers are known, or no launch has a time.
        """
        kernels = self.untimed
        self._require_times()
        return kernels

    @property
    def timed(self) -> pd.DataFrame:
        """The launches that have a time.

        Of a program that fails while it is profiled, ncu keeps the last launch without values.

        Raises
        ------
        PerfmlError
            If only merged layers are known, or no launch has a time.
        """
        launches = self.launches
        known = launches["time_us"].notna()
        return launches if known.all() else launches[known].reset_index(drop=True)

    @property
    def left_out(self) -> str:
        """What is to be said of launches that `timed` lacks; empty where it has all."""
        lacking = len(self.launches) - len(self.timed)
        one, more = (f"{what} without a duration" for what in ("launch", "launches"))
        are = "is" if lacking == 1 else "are"
        return f"{self.title}: {count(lacking, one, more)} {are} left out." if lacking else ""

    @property
    def untimed(self) -> pd.DataFrame:
        """The Kernels table, with times or without.

        Raises
        ------
        PerfmlError
            If only merged layers are known.
        """
        if self.kernels is not None:
            return self.kernels
        msg = "only merged layers are known"
        cure = "Give the profile or the Kernels table: perfml ingest makes one."
        raise PerfmlError(msg, where=self.name, cure=cure)

    @property
    def table(self) -> pd.DataFrame:
        """The layers, or the launches where none lies in a range."""
        return self.layers if self.ranged else self.launches

    def as_read(self) -> Table:
        """Return the table that was read, unmerged: layers where these were stored."""
        if self.stored is not None:
            return Table(self.stored, "layers", self.provenance)
        return Table(self.untimed, "kernels", self.provenance)

    @property
    def account(self) -> Account | None:
        """The account of a step, of one trace of which every launch is here."""
        return account_in(self.provenance) if self.places is None else None

    @property
    def sources(self) -> list[Mapping[str, Any]]:
        """What is known of each file that it was read from."""
        sources = self.provenance.get("sources", ())
        return [each for each in sources if isinstance(each, Mapping)]

    @property
    def guessed_workload(self) -> bool:
        """Whether the workload is only what the files happen to be called."""
        guessed = [each.get("workload_from") == "file name" for each in self.sources]
        return bool(guessed) and all(guessed)

    def without_guess(self, known: str = UNKNOWN) -> Given:
        """Return it with another workload where the files' names alone told it."""
        if not self.guessed_workload:
            return self
        kept = [
            None
            if frame is None
            else frame.assign(workload=pd.array([known] * len(frame), dtype="string"))
            for frame in (self.kernels, self.stored)
        ]
        return replace(self, kernels=kept[0], stored=kept[1])

    def by_kernel(self) -> Given:
        """Return it with every kernel as a layer, whatever ranges there are."""
        from perfml.merge.by_kernel import kernels_as_layers

        return replace(self, kernels=kernels_as_layers(self.timed), stored=None)

    @property
    def kernel_layers(self) -> pd.DataFrame:
        """The Layers table in which every kernel is a layer, with all its launches in a repeat."""
        from perfml.merge.rule import layers_of_kernels

        return self._marked(layers_of_kernels(self.timed))

    def _marked(self, layers: pd.DataFrame) -> pd.DataFrame:
        layers = with_known_shapes(layers, self.provenance)
        layers.attrs |= _attributes(self.provenance)
        return layers

    def _require_times(self) -> None:
        """Raise if no launch has a time, and say what would bring one."""
        assert self.kernels is not None
        if self.kernels["time_us"].notna().any():
            return
        formats = [str(each.get("format", "")) for each in self.provenance.get("sources", ())]
        start = next((name for name in _NO_TIMES for each in formats if each.startswith(name)), "")
        msg = "no launch in this has a duration"
        found = count(len(self.kernels), "launch", "launches")
        cure = _NO_TIMES.get(start, "Give it together with a timing run of the same program.")
        raise InputError(msg, where=self.name, found=found, cure=cure)


def read_given(
    argument: str | Path,
    *,
    where: Sequence[str] | None = None,
    choice: LaunchChoice | None = None,
) -> Given:
    """Read what a user named.

    Parameters
    ----------
    argument
        See this module; ``FILE@N`` chooses a launch unless a file is called so.
    where
        Conditions ``COLUMN=VALUE`` that rows must meet.
    choice
        Which launches are meant.

    Raises
    ------
    PerfmlError
        If it is no such thing, is damaged, or nothing is left of it.
    """
    name, wanted = _placed(argument, choice)
    return _narrowed(replace(_opened(name), name=str(argument)), where, wanted)


def read_pair(
    arguments: tuple[str, str],
    *,
    where: Sequence[str] | None = None,
    choices: tuple[LaunchChoice, LaunchChoice],
) -> tuple[Given, Given]:
    """Read two sides as `read_given` does; a file that is both is read once.

    Of such a file the second side repeats no warnings.
    """
    placed = [_placed(name, choice) for name, choice in zip(arguments, choices, strict=True)]
    first = _opened(placed[0][0])
    if placed[1][0] == placed[0][0]:
        second = replace(first, warnings=())
    else:
        second = _opened(placed[1][0])
    sides = [
        _narrowed(replace(opened, name=name), where, wanted)
        for opened, name, (_, wanted) in zip((first, second), arguments, placed, strict=True)
    ]
    return sides[0], sides[1]


def without_guesses(pair: tuple[Given, Given]) -> tuple[Given, Given]:
    """Return two sides whose workloads differ only where more than files' names says so."""
    workloads = [
        sorted(map(str, each.as_read().frame["workload"].dropna().unique())) for each in pair
    ]
    if set(workloads[0]) & set(workloads[1]):
        return pair
    told = [
        names[0] if len(names) == 1 and not each.guessed_workload else UNKNOWN
        for names, each in zip(workloads, pair, strict=True)
    ]
    return pair[0].without_guess(told[1]), pair[1].without_guess(told[0])


def _placed(argument: str | Path, choice: LaunchChoice | None) -> tuple[str, LaunchChoice]:
    """Return the name without its ``@N``, and the choice with it."""
    name, wanted = str(argument), choice or LaunchChoice()
    if Path(name).exists():
        return name, wanted
    name, nth = split_place(name)
    return name, wanted if nth is None else replace(wanted, nth=nth)


def _narrowed(found: Given, where: Sequence[str] | None, wanted: LaunchChoice) -> Given:
    """Keep the rows and launches that are meant, and note what was profiled."""
    if (where or wanted) and found.kernels is not None:
        run = found.kernels["run_id"]
        place = found.kernels.groupby(run, sort=False, dropna=False).cumcount()
        found = replace(found, kernels=found.kernels.assign(**{_PLACE: place}))
    if where:
        found = replace(
            found,
            # launches beside stored layers may be of other runs: then none are behind these
            kernels=_only(found.kernels, where, strict=found.stored is None),
            stored=_only(found.stored, where),
            provenance={**found.provenance, "where": list(where)},
        )
    if wanted:
        kernels = chosen_launches(found.untimed, wanted, where=found.name)
        found = replace(found, kernels=kernels, stored=None)
    if found.kernels is not None:
        if _PLACE in found.kernels.columns:
            places = found.kernels.groupby(found.kernels["run_id"].astype(str))[_PLACE]
            kept = {run: frozenset(rows) for run, rows in places}
            found = replace(found, kernels=found.kernels.drop(columns=_PLACE), places=kept)
        assert found.kernels is not None
        found.kernels.attrs |= _attributes(found.provenance)
        found = replace(found, note=setup_note(found.kernels["kernel"]))
    return found


def load(dataset: str | Path) -> Table:
    """Load a Layers table.

    Parameters
    ----------
    dataset
        A Parquet table of ``perfml merge`` or ``perfml ingest``; a CSV in the published schema
        (``type``, the 19 metrics, ``time``); a dataset's name; a profile, or a folder of profiles.

    Returns
    -------
    Table
        Of kind ``layers``.

    Raises
    ------
    PerfmlError
        If it is none of these, or no launch lies in a range.
    """
    given = read_given(dataset)
    return Table(given.layers, "layers", given.provenance)


def derived_metrics(provenance: Mapping[str, Any]) -> frozenset[str]:
    """Return the metrics of a table that another formula stood in for when it was read."""
    sources = provenance.get("sources", ())
    return frozenset(name for source in sources for name in source.get("substituted", ()))


def _attributes(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a table notes of its sources."""
    facts = SharedDict()
    for source in provenance.get("sources", ()):
        if source.get(DEVICE_FACTS):
            capability = source.get("compute_capability")
            facts[str(source.get("device"))] = {
                **source[DEVICE_FACTS],
                "compute_capability": capability,
            }
    return {DERIVED: SharedList(sorted(derived_metrics(provenance))), DEVICE_FACTS: facts}


def with_known_shapes(layers: pd.DataFrame, provenance: Mapping[str, Any]) -> pd.DataFrame:
    """Add the shapes that the provenance tells of these layers; return them as they are else."""
    from perfml.modeling.layer_shapes import AMOUNTS, shapes_of_runs, with_shapes

    shapes = shapes_of_runs(provenance)
    if shapes is None or all(name in layers.columns for name in AMOUNTS):
        return layers
    if not set(shapes["layer"]) & set(layers["layer"].dropna()):
        # shapes of other layers than these: names alone align them
        return layers
    return with_shapes(layers, shapes)


def _only(
    frame: pd.DataFrame | None, where: Sequence[str], *, strict: bool = True
) -> pd.DataFrame | None:
    if frame is None:
        return None
    kept = only(frame, where, strict=strict)
    return None if kept.empty else kept


def _opened(name: str) -> Given:
    path = Path(name)
    if not path.exists() and is_dataset(name):
        path = fetch(name)
    if path.is_dir():
        return _folder(name, path)
    if not path.exists():
        msg = "no such file or dataset"
        known = f"Give a profile, a table, a dataset.csv or a dataset. {proposal(name)}"
        cure = did_you_mean(name, [*DATASETS, *files_like(path)], known)
        raise InputError(msg, where=name, cure=cure)
    require_file(path)
    with path.open("rb") as stream:
        parquet = stream.read(4) == b"PAR1"
    if parquet or path.suffix == ".parquet":
        table = read_table(path)
        kernels = table.frame if table.kind == "kernels" else None
        stored = table.frame if table.kind == "layers" else None
        return Given(name, kernels, stored, table.provenance)
    return _file(name, path)


def _folder(name: str, path: Path) -> Given:
    """Read a folder: tables that lie there, what ``ingest --partition`` wrote, or profiles."""
    from perfml.ingest.folder_index import COMMON
    from perfml.merge.batches import merge_files

    if part_files(path, "layers"):
        table = read_parts(path, "layers")
        kernels = read_parts(path, "kernels").frame if part_files(path, "kernels") else None
        return Given(name, kernels, table.frame, table.provenance)
    tables = sorted(path.glob("*layers*.parquet"))
    if len(tables) == 1:
        table = read_table(tables[0], kind="layers")
        beside = sorted(path.glob("*kernels*.parquet"))
        kernels = read_table(beside[0], kind="kernels").frame if len(beside) == 1 else None
        return Given(name, kernels, table.frame, table.provenance)
    # a data set of few launches: merging them takes as long as reading their layers would
    if not tables and part_files(path, "kernels"):
        table = read_parts(path, "kernels")
        return Given(name, table.frame, None, table.provenance)
    if not tables and (path / KERNELS_FILE).is_file():
        table = read_table(path / KERNELS_FILE, kind="kernels")
        return Given(name, table.frame, _layers_of(path.name, table.frame), table.provenance)
    if (path / COMMON).is_file():
        # larger than memory, perhaps: merged file by file
        with tempfile.TemporaryDirectory(prefix="perfml-") as folder:
            out = Path(folder) / "layers.parquet"
            merge_files(path, out)
            table = read_table(out, kind="layers")
        return Given(name, None, table.frame, table.provenance)
    return _ingested(name, path)


def _layers_of(name: str, kernels: pd.DataFrame) -> pd.DataFrame | None:
    """Return the layers that a recorded data set is about; None where all of its launches are."""
    from perfml.merge.rule import merge

    pattern = layers_meant(name)
    if pattern is None:
        return None
    return merge(kernels[kernels["layer"].str.fullmatch(pattern, na=False)])


def _file(name: str, path: Path) -> Given:
    from perfml.datasets.csv_tables import read_csv_table
    from perfml.datasets.published import COLUMNS, from_published
    from perfml.ingest.archives import is_archive_of_profiles
    from perfml.readers import Source, recognise

    if is_archive_of_profiles(path):
        return _ingested(name, path)
    source = Source(path)
    try:
        recognise(source)
    except InputError:
        header = re.split(r"[,;\t]", source.head_text().partition("\n")[0])
        if (table := read_csv_table(source)) is not None:
            kernels = table.frame if table.kind == "kernels" else None
            stored = table.frame if table.kind == "layers" else None
            return Given(name, kernels, stored, table.provenance)
        if len({word.strip(" \"'\r") for word in header} & set(COLUMNS)) < 2:
            raise
        return Given(name, None, from_published(path), {"source": path.name})
    return _ingested(name, path)


def _ingested(name: str, path: Path) -> Given:
    from perfml.ingest.profiles import ingest

    found = ingest([path])
    return Given(name, found.frame, None, found.provenance, found.warnings)
