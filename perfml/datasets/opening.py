"""From a selection to tables: the one way in for every verb and every function that takes a name.

A name is a table, a published ``dataset.csv``, a data set, a profile, a folder of profiles, or a
run that ``perfml collect`` wrote; ``FILE@3`` is its fourth launch. Nothing is written.

Here to change: what a name may be, in `_opened`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.datasets.choosing import chosen_launches, layers_named, only
from perfml.datasets.loading import UNKNOWN, Input, experiments_beside, table_facts
from perfml.datasets.registry import DATASETS, fetch, is_dataset, layers_meant, proposal
from perfml.datasets.selection import Selection, Source, split_place
from perfml.datasets.table_files import part_files, read_parts
from perfml.errors import InputError, PerfmlError, did_you_mean
from perfml.kernel_names import setup_note
from perfml.tables import Table, read_table, require_file
from perfml.util.files import files_like, temporary_folder
from perfml.util.words import count

KERNELS_FILE = "kernels.parquet"
"""The Kernels table of a folder; its layers are merged from it where no Layers table is there."""

_PLACE = "place in its profile"
"""Column that launches have while some of them are chosen."""

MANY = 3
"""Notes of one input's readers that are all passed on."""

Where = str | Sequence[str] | Mapping[str, object]
"""Conditions on columns: ``"batch=1"``, several of them, or ``{"batch": 1}``."""


@dataclass(frozen=True)
class Inputs:
    """What a selection gave: a table for each of its names, in order."""

    selection: Selection
    tables: tuple[Input, ...]

    @property
    def first(self) -> Input:
        """The only input, or the baseline."""
        return self.tables[0]

    @property
    def names(self) -> list[str]:
        """What the inputs are called: as the user did, without folders and endings if that does."""
        from perfml.ingest.run_labels import stem

        paths, nths = zip(*map(split_place, self.selection.inputs), strict=True)
        last = ["" if nth is None else f"@{nth}" for nth in nths]
        kernels = [self.selection.kernel_of(place) for place in range(len(paths))]
        if len(set(kernels)) > 1:
            last = [f"{end} {kernel}" for end, kernel in zip(last, kernels, strict=True)]
        lengths = range(1, 1 + max(len(Path(path).parts) for path in paths))
        ways = [
            [stem(path).removesuffix(".parquet") or Path(path).resolve().name for path in paths],
            *([str(Path(*Path(path).parts[-length:])) for path in paths] for length in lengths),
        ]
        named = [[f"{name}{end}" for name, end in zip(way, last, strict=True)] for way in ways]
        apart = next((each for each in named if len(set(each)) == len(each)), None)
        return apart or [
            name if named[0].index(name) == place else f"{name} (again)"
            for place, name in enumerate(named[0])
        ]

    @property
    def comparable(self) -> Inputs:
        """Two inputs whose workloads differ only where more than their files' names says so."""
        both = [
            sorted(map(str, table.as_read().frame["workload"].dropna().unique()))
            for table in self.tables
        ]
        if len(both) != 2 or set(both[0]) & set(both[1]):
            return self
        told = [
            names[0] if len(names) == 1 and not each.guessed_workload else UNKNOWN
            for names, each in zip(both, self.tables, strict=True)
        ]
        left, right = self.tables
        return replace(self, tables=(left.without_guess(told[1]), right.without_guess(told[0])))

    def notes(
        self, *, study: bool = False, in_layers: bool = False, all_of_them: bool = False
    ) -> list[str]:
        """Return what the readers have to say, and what was left out.

        `study` adds what is said of the published study's metrics, which models learn from;
        `in_layers`: an input without ranges is looked at kernel by kernel; `all_of_them`: many
        notes of one input, too.
        """
        from perfml.metrics import StudyNote
        from perfml.metrics.sets import substitutes_note

        notes: list[str] = []
        for table in self.tables:
            said = list(table.warnings) if study else StudyNote.without(table.warnings)
            if len(said) > MANY and not all_of_them:
                said = [f"{table.title}: the reader has {len(said)} notes; -v lists them"]
            notes += [*said, *([f"{table.title}: {table.note}"] if table.note else [])]
            if in_layers and not table.ranged and table.left_out:
                notes.append(table.left_out)
        if study:
            profiled = [table for table in self.tables if table.profiled]
            notes += substitutes_note(source for each in profiled for source in each.sources)
        names = self.selection.inputs
        if len(names) == 2 and names[0] == names[1] and not self.selection.kernel_b:
            notes.append(f"both sides are {self.first.title}: nothing can differ")
        return list(dict.fromkeys(notes))


def read_inputs(selection: Selection) -> Inputs:
    """Read what a selection names, and keep what it means; a file named twice is read once.

    Raises `PerfmlError` if a name is nothing that can be read, is damaged, or nothing is left of
    it.
    """
    if len(selection.inputs) > 2:
        together = _narrowed(_of_ranks(selection), selection, None, selection.kernel)
        return Inputs(selection, (together,))
    opened: dict[str, Input] = {}
    tables = []
    for place, name in enumerate(selection.inputs):
        path, nth = split_place(name)
        if path in opened:
            found = replace(opened[path], name=name, warnings=())
        else:
            opened[path] = _opened(path, selection.layer_map)
            found = replace(opened[path], name=name)
        tables.append(_narrowed(found, selection, nth, selection.kernel_of(place)))
    if selection.launches is not None:
        if len(tables) > 1:
            msg = "two inputs bring their own launches"
            cure = "Leave out --launches, or compare Kernels tables."
            raise PerfmlError(msg, where=str(selection.launches), cure=cure)
        tables = [_with_launches(tables[0], selection)]
    return Inputs(selection, tuple(tables))


def read_input(name: Source, *, where: Where = (), **options: Any) -> Input:
    """Read one input: `read_inputs` of a `Selection` of one name.

    A selection has one input, of whose layers the others are left out; `where` are conditions that
    rows must meet, ``COLUMN=VALUE``, several of them, or a mapping; `options` are further fields of
    `Selection`. Raises `PerfmlError` if `name` is no name, or as `read_inputs`.
    """
    if isinstance(name, Selection):
        if len(name.inputs) != 1:
            msg = "a selection of one input is needed here"
            raise PerfmlError(msg, found=", ".join(name.inputs), cure="Name one.")
        read = read_inputs(name).first
        kept = layers_named(read.in_layers.layers, name.layers)
        return read if kept is None else read.in_layers.of_layers(kept)
    if not isinstance(name, str | Path):
        msg = "a profile, a table or a data set is named by a path or a name"
        cure = "Give one file's path, or a folder of profiles; tables go to merge, rank, advise ..."
        raise PerfmlError(msg, found=f"a {type(name).__name__}", cure=cure)
    if isinstance(where, Mapping):
        where = [f"{column}={value}" for column, value in where.items()]
    conditions = (where,) if isinstance(where, str) else tuple(where)
    return read_inputs(Selection((str(name),), where=conditions, **options)).first


def load(dataset: Source) -> Table:
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
        If it is none of these, or no launch has a time.
    """
    read = read_input(dataset)
    return Table(read.layers, "layers", read.provenance)


def _with_launches(read: Input, selection: Selection) -> Input:
    """Return layers with the launches behind them that stand in another table."""
    assert selection.launches is not None
    launches = only(read_input(selection.launches).launches, selection.where, strict=False)
    layers = read.layers
    # a table of some layers asks about these: the launches of the others have no times beside them
    named = launches["layer"].isin(layers["layer"].dropna().unique())
    kept = launches[named | launches["layer"].isna()]
    return replace(read, kernels=kept, stored=layers)


def _narrowed(read: Input, selection: Selection, nth: int | None, kernel: str | None) -> Input:
    """Keep the rows and launches that are meant, and note what was profiled."""
    where, skip = selection.where, selection.skip
    fewer = nth is not None or kernel is not None or skip > 0
    if (where or fewer) and read.kernels is not None:
        run = read.kernels["run_id"]
        place = read.kernels.groupby(run, sort=False, dropna=False).cumcount()
        read = replace(read, kernels=read.kernels.assign(**{_PLACE: place}))
    if where:
        read = replace(
            read,
            # launches beside stored layers may be of other runs: then none are behind these
            kernels=_only(read.kernels, where, strict=read.stored is None),
            stored=_only(read.stored, where),
            provenance={**read.provenance, "where": list(where)},
        )
    if fewer:
        kernels = chosen_launches(read.untimed, nth=nth, kernel=kernel, skip=skip, where=read.name)
        read = replace(read, kernels=kernels, stored=None)
    if read.kernels is None:
        return read
    kernels = read.kernels
    if _PLACE in kernels.columns:
        places = kernels.groupby(kernels["run_id"].astype(str))[_PLACE]
        kept = {run: frozenset(rows) for run, rows in places}
        kernels = kernels.drop(columns=_PLACE)
        read = replace(read, places=kept)
    kernels.attrs |= table_facts(read.provenance) | experiments_beside(read.name)
    return replace(read, kernels=kernels, note=setup_note(kernels["kernel"]))


def _only(
    frame: pd.DataFrame | None, where: Sequence[str], *, strict: bool = True
) -> pd.DataFrame | None:
    if frame is None:
        return None
    kept = only(frame, where, strict=strict)
    return None if kept.empty else kept


def _opened(name: str, layer_map: Path | None) -> Input:
    path = Path(name)
    if not path.exists() and is_dataset(name):
        path = fetch(name)
    if path.is_dir():
        return (None if layer_map else _folder(name, path)) or _ingested(name, [path], layer_map)
    if not path.exists():
        msg = "no such file or dataset"
        known = f"Give a profile, a table, a dataset.csv or a dataset. {proposal(name)}"
        cure = did_you_mean(name, [*DATASETS, *files_like(path)], known)
        raise InputError(msg, where=name, cure=cure)
    require_file(path)
    table = _table(path)
    if table is None:
        return _ingested(name, [path], layer_map)
    if layer_map is not None:
        msg = "a layer map gives layers to profiles, and this is a table"
        raise InputError(msg, where=name, cure="Give the profile, or leave out --layer-map.")
    return _of_table(name, table)


def _of_ranks(selection: Selection) -> Input:
    """Read the profiles of the ranks of one job as one."""
    names = selection.inputs
    for path in map(Path, names):
        if not path.is_dir():
            require_file(path)
    title = f"{names[0]} and {len(names) - 1} more"
    read = _ingested(title, [Path(name) for name in names], selection.layer_map)
    if read.ranks is None:
        msg = "these are not the ranks of one job"
        cure = (
            "Give two files to compare, a folder of profiles, or traces of torch.profiler of "
            "different ranks. perfml inspect FILE shows what one holds."
        )
        raise InputError(msg, where=title, found=count(len(names), "file"), cure=cure)
    return read


def _of_table(name: str, table: Table) -> Input:
    kernels, stored = (
        table.frame if table.kind == kind else None for kind in ("kernels", "layers")
    )
    return Input(name, kernels, stored, table.provenance)


def _folder(name: str, path: Path) -> Input | None:
    """Read a folder: tables that lie there, parts that a Parquet writer left, or profiles."""
    from perfml.ingest.merge.batches import merge_files

    if part_files(path, "layers"):
        table = read_parts(path, "layers")
        kernels = read_parts(path, "kernels").frame if part_files(path, "kernels") else None
        return Input(name, kernels, table.frame, table.provenance)
    tables = sorted(path.glob("*layers*.parquet"))
    if len(tables) == 1:
        table = read_table(tables[0], kind="layers")
        beside = sorted(path.glob("*kernels*.parquet"))
        kernels = read_table(beside[0], kind="kernels").frame if len(beside) == 1 else None
        return Input(name, kernels, table.frame, table.provenance)
    # a data set of few launches: merging them takes as long as reading their layers would
    if not tables and part_files(path, "kernels"):
        table = read_parts(path, "kernels")
        return _of_table(name, table)
    if not tables and (path / KERNELS_FILE).is_file():
        table = read_table(path / KERNELS_FILE, kind="kernels")
        return Input(name, table.frame, _layers_of(path.name, table.frame), table.provenance)
    if (path / "_common_metadata").is_file():
        # larger than memory, perhaps: merged file by file
        with temporary_folder() as folder:
            out = folder / "layers.parquet"
            merge_files(path, out)
            return _of_table(name, read_table(out, kind="layers"))
    return None


def _layers_of(name: str, kernels: pd.DataFrame) -> pd.DataFrame | None:
    """Return the layers that a recorded data set is about; None where all of its launches are."""
    from perfml.ingest.merge.rule import merge

    pattern = layers_meant(name)
    if pattern is None:
        return None
    return merge(kernels[kernels["layer"].str.fullmatch(pattern, na=False)])


def _table(path: Path) -> Table | None:
    """Return the table that a file is, as Parquet or as text; None where it is a profile."""
    from perfml.datasets.published import COLUMNS, from_published
    from perfml.datasets.table_files import read_csv_table
    from perfml.readers import Source, recognise

    with path.open("rb") as stream:
        parquet = stream.read(4) == b"PAR1"
    if parquet or path.suffix == ".parquet":
        return read_table(path)
    source = Source(path)
    try:
        recognise(source)
    except InputError:
        header = re.split(r"[,;\t]", source.head_text().partition("\n")[0])
        if (table := read_csv_table(source)) is not None:
            return table
        if len({word.strip(" \"'\r") for word in header} & set(COLUMNS)) < 2:
            raise
        return Table(from_published(path), "layers", {"source": path.name})
    return None


def _ingested(name: str, paths: Sequence[Path], layer_map: Path | None) -> Input:
    from perfml.ingest.layer_map import read_layer_map
    from perfml.ingest.profiles import IngestSettings, ingest

    settings = IngestSettings(layer_map=read_layer_map(layer_map) if layer_map else None)
    found = ingest(paths, settings=settings)
    return Input(name, found.frame, None, found.provenance, found.warnings, profiled=True)
