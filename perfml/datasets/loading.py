"""What one name gave, as tables: launches, the layers that are merged from them, the provenance.

Here to change: which table answers what. What a name may be stands in ``opening``; which rows and
launches are meant, in ``selection`` and ``choosing``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.account.account import Account
from perfml.account.ranks import Ranks, account_in, ranks_in, ranks_of_runs
from perfml.datasets.selection import split_place
from perfml.errors import InputError, PerfmlError
from perfml.tables import Table
from perfml.util.typing import SharedDict, SharedList
from perfml.util.words import count

DERIVED = "derived"
"""Key of ``DataFrame.attrs``: metrics that another formula stood in for."""

DEVICE_FACTS = "device_facts"
"""Key of ``DataFrame.attrs``: what the profiles say of each device, by its name."""

EXPERIMENTS = "experiments"
"""Key of ``DataFrame.attrs``: how launches answered to the experiments of ``perfml prove``."""

PROVENANCE = "provenance"
"""Key of ``DataFrame.attrs``: where a table of Python's comes from, and its rows as it was read."""

_SOME = {"where": ["some rows"]}

UNKNOWN = "unknown"
"""A workload that nobody named."""

_NO_TIMES = {
    "ncu": "Profile again with --section SpeedOfLight: it has the duration (gpu__time_duration).",
    "nvprof": "Read them with a trace of the same program: nvprof --print-gpu-trace, both in one "
    "folder.",
    "trtexec": "Give the folder that has trtexec's --exportProfile of the engine too.",
}
"""What brings durations, by the beginning of a format's name."""


@dataclass(frozen=True)
class Input:
    """What a user named, as tables."""

    name: str  # as it was named
    kernels: pd.DataFrame | None  # a row a launch; None where only merged layers are known
    # A Layers table that was read as such; None where layers are merged from `kernels`
    stored: pd.DataFrame | None
    provenance: dict[str, Any] = field(default_factory=dict)  # where it comes from
    warnings: tuple[str, ...] = ()  # what the readers had to say
    note: str | None = None  # what the user has to know of what was profiled
    # by run, the places of the chosen launches in their profile, from 0; None where all are meant
    places: Mapping[str, frozenset[int]] | None = None
    profiled: bool = False  # whether profiles were read, and no table that was made of them before

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

        Raises `PerfmlError` if no launch lies in a range, or a launch in one has no time.
        """
        from perfml.ingest.merge.rule import merge

        if self.stored is not None:
            return self._marked(self.stored)
        assert self.kernels is not None
        self._require_times()
        return self._marked(merge(self.kernels))

    @property
    def launches(self) -> pd.DataFrame:
        """The Kernels table.

        Raises `PerfmlError` if only merged layers are known, or no launch has a time.
        """
        kernels = self.untimed
        self._require_times()
        return kernels

    @property
    def timed(self) -> pd.DataFrame:
        """The launches that have a time.

        Of a program that fails while it is profiled, ncu keeps the last launch without values.
        Raises `PerfmlError` if only merged layers are known, or no launch has a time.
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

        Raises `PerfmlError` if only merged layers are known.
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
        """The account of a step, of one trace or job of which every launch is here."""
        return account_in(self.provenance) if self.places is None else None

    @property
    def ranks(self) -> Ranks | None:
        """The ranks of one job, of traces or runs of which every launch is here."""
        if self.places is not None:
            return None
        runs = [run for run in self.provenance.get("runs", ()) if isinstance(run, Mapping)]
        return ranks_in(self.provenance) or ranks_of_runs(self.kernels, runs)

    @property
    def sources(self) -> list[Mapping[str, Any]]:
        """What is known of each file that it was read from."""
        sources = self.provenance.get("sources", ())
        return [source for source in sources if isinstance(source, Mapping)]

    @property
    def guessed_workload(self) -> bool:
        """Whether the workload is only what the files happen to be called."""
        guessed = [source.get("workload_from") == "file name" for source in self.sources]
        return bool(guessed) and all(guessed)

    def without_guess(self, known: str = UNKNOWN) -> Input:
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

    @cached_property
    def in_layers(self) -> Input:
        """Itself; where no launch lies in a range, with every kernel as a layer.

        Every launch of a kernel is a repeat then.
        """
        if self.ranged:
            return self
        from perfml.ingest.merge.groups import kernels_as_layers

        return replace(self, kernels=kernels_as_layers(self.timed), stored=None)

    def of_layers(self, names: Collection[str]) -> Input:
        """Return it with the rows of some layers alone."""
        kernels, stored = (
            None if frame is None else frame[frame["layer"].isin(names)].reset_index(drop=True)
            for frame in (self.kernels, self.stored)
        )
        return replace(self, kernels=kernels, stored=stored)

    @property
    def reported_layers(self) -> pd.DataFrame:
        """The layers; without ranges every kernel is one, with all its launches in a repeat."""
        from perfml.ingest.merge.rule import layers_of_kernels

        return self.layers if self.ranged else self._marked(layers_of_kernels(self.timed))

    def _marked(self, layers: pd.DataFrame) -> pd.DataFrame:
        layers = with_known_shapes(layers, self.provenance)
        layers.attrs |= table_facts(self.provenance) | experiments_beside(self.name)
        return layers

    def _require_times(self) -> None:
        """Raise if no launch has a time, and say what would bring one."""
        assert self.kernels is not None
        if self.kernels["time_us"].notna().any():
            return
        formats = [str(source.get("format", "")) for source in self.provenance.get("sources", ())]
        start = next((name for name in _NO_TIMES for form in formats if form.startswith(name)), "")
        msg = "no launch in this has a duration"
        found = count(len(self.kernels), "launch", "launches")
        cure = _NO_TIMES.get(start, "Give it together with a timing run of the same program.")
        raise InputError(msg, where=self.name, found=found, cure=cure)


def noted(read: Input, frame: pd.DataFrame) -> dict[str, Any]:
    """Return what a table given to Python keeps of its recording, for `input_of`."""
    chosen = {} if read.places is None else _SOME
    return SharedDict({**read.provenance, **chosen, "rows": len(frame)})


def input_of(name: str, frame: pd.DataFrame) -> Input:
    """Return a table of Python's as an input, with the clock of its recording if no row is gone."""
    provenance = dict(frame.attrs.get(PROVENANCE, {}))
    if provenance.pop("rows", None) != len(frame):
        provenance |= _SOME
    if "kernel_names" in frame.columns:
        return Input(name, None, frame, provenance)
    return Input(name, frame, None, provenance)


def derived_metrics(provenance: Mapping[str, Any]) -> frozenset[str]:
    """Return the metrics of a table that another formula stood in for when it was read."""
    sources = provenance.get("sources", ())
    return frozenset(name for source in sources for name in source.get("substituted", ()))


def table_facts(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a table notes of its sources."""
    facts = SharedDict()
    for source in provenance.get("sources", ()):
        if source.get(DEVICE_FACTS):
            capability = source.get("compute_capability")
            facts[str(source.get("device"))] = {
                **source[DEVICE_FACTS],
                "compute_capability": capability,
            }
    derived = SharedList(sorted(derived_metrics(provenance)))
    return {key: fact for key, fact in ((DERIVED, derived), (DEVICE_FACTS, facts)) if fact}


def beside(name: str, file: str) -> Path | None:
    """Return a file in a run's folder, or in that of a profile; None where there is none."""
    path = Path(split_place(name)[0])
    # perfml collect puts a run into a folder of its own
    nested = path.glob(f"*/{file}") if path.is_dir() else ()
    files = [*(path if path.is_dir() else path.parent).glob(file)] or [*nested]
    # of several runs nothing tells whose file it is
    return files[0] if len(files) == 1 and path.exists() else None


def experiments_beside(name: str) -> dict[str, Any]:
    """Return the experiments in a run's folder, or in that of a file, as a table notes them.

    ``perfml prove --out RUN_FOLDER`` puts them beside what ``perfml collect`` recorded.
    """
    from perfml.experiments.record import FILE, read_experiments
    from perfml.experiments.responses import responses

    path = beside(name, FILE)
    return {} if path is None else {EXPERIMENTS: SharedList(responses(read_experiments(path)))}


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
