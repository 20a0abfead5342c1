"""What verbs on a dataset share: their options, and the table they name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfml.cli.complete import conditions, datasets
from perfml.cli.output import ALIKE, Output
from perfml.errors import PerfmlError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from perfml.datasets import Given
    from perfml.explain.roofs.peaks import Peaks
    from perfml.tables import Table

Dataset = Annotated[
    str,
    typer.Argument(
        help="Profile, folder of profiles, run, table, dataset.csv, or a dataset's name; "
        "FILE@3: its fourth launch.",
        autocompletion=datasets,
    ),
]
KernelPattern = Annotated[
    str | None,
    typer.Option("--kernel", help="Only kernels with this in their name, or a regular expression."),
]
Skip = Annotated[
    int,
    typer.Option(
        "--skip", min=0, help="Leave out the first launches (of those that --kernel keeps)."
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of splits, models and resamples.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        help="Keep rows where COLUMN=VALUE, such as batch=1; repeatable.",
        autocompletion=conditions,
    ),
]
BriefAnswer = Annotated[
    bool,
    typer.Option("--brief", help="Below 6 kB: verdict, causes, what to do, what is missing."),
]
PeaksFile = Annotated[
    str | None,
    typer.Option(
        "--peaks",
        help="File of perfml doctor --measure-peaks, or: measured, data-sheet. "
        "By default measured ones, completed by the vendor's.",
    ),
]


def read(
    argument: str | Path,
    out_: Output,
    where: list[str] | None = None,
    kernel: str | None = None,
    skip: int = 0,
    *,
    study: bool = False,
) -> Given:
    """Return the tables behind what a verb was given, and pass on what readers warn of."""
    return read_several([argument], out_, where, kernel, skip, study=study)[0]


def read_several(
    arguments: Sequence[str | Path],
    out_: Output,
    where: list[str] | None = None,
    kernel: str | None = None,
    skip: int = 0,
    *,
    study: bool = False,
) -> list[Given]:
    """Return the tables behind each argument, and pass on what readers warn of, once over all.

    What they say of the published study's metrics is passed on where `study` is set: where models
    learn from these metrics.
    """
    from perfml.datasets import LaunchChoice, read_given

    choice = LaunchChoice(kernel, skip)
    with _passing_on(out_):
        given = [read_given(argument, where=where, choice=choice) for argument in arguments]
    _tell(given, out_, study=study)
    return given


def read_both(
    arguments: tuple[str, str],
    out_: Output,
    where: list[str] | None,
    choices: Sequence[tuple[str | None, int]],
) -> tuple[Given, Given]:
    """Return the tables of two sides; kernel and launches to skip stand in `choices`."""
    from perfml.datasets import LaunchChoice
    from perfml.datasets.loading import read_pair, without_guesses

    wanted = (LaunchChoice(*choices[0]), LaunchChoice(*choices[1]))
    with _passing_on(out_):
        pair = read_pair(arguments, where=where, choices=wanted)
    _tell(pair, out_)
    if arguments[0] == arguments[1] and wanted[0] == wanted[1]:
        out_.warn(f"both sides are {pair[0].title}: nothing can differ")
    return without_guesses(pair)


@contextmanager
def _passing_on(out_: Output) -> Iterator[None]:
    """Print what Python warns of as warnings of perfml."""
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for each in caught:
        out_.warn(str(each.message))


def _tell(given: Sequence[Given], out_: Output, *, study: bool = False) -> None:
    """Pass on what readers warn of: of many notes their number alone, of formulas one line."""
    from perfml.ingest.substitutes import substitutes_note
    from perfml.metrics import StudyNote

    study = study or out_.verbose > 0
    formulas = [note for each in given for note in substitutes_note(each.sources)]
    for each in given:
        said = list(each.warnings) if study else StudyNote.without(each.warnings)
        said = [text for text in said if text not in formulas]
        if len(said) > ALIKE and not out_.verbose:
            said = [f"{each.title}: the reader has {len(said)} notes; -v lists them"]
        for text in [*said, *([f"{each.title}: {each.note}"] if each.note else [])]:
            out_.warn(text)
    if study and any(text in formulas for each in given for text in each.warnings):
        for text in substitutes_note(source for each in given for source in each.sources):
            out_.warn(text)


def load_dataset(dataset: str, where: list[str] | None, out_: Output) -> Table:
    """Return the layers of what a verb was given; without ranges every kernel is one."""
    from perfml.tables import Table

    given = by_kernel(read(dataset, out_, where, study=True), out_)
    return Table(given.layers, "layers", given.provenance)


def by_kernel(given: Given, out_: Output, *, repeats: bool = True) -> Given:
    """Return what was given with layers: those of its ranges, or else every kernel as one.

    Parameters
    ----------
    given
        What was read.
    out_
        Where to say so.
    repeats
        Whether every launch of a kernel is shown as a repeat of it.
    """
    if given.ranged:
        return given
    found = given.by_kernel()
    out_.warn(
        f"{given.title}: no launch lies in a range, so every kernel counts as a layer"
        + (", and every launch as a repeat of it" if repeats else "")
    )
    if given.left_out:
        out_.warn(given.left_out)
    return found


def paired(names: Sequence[str], given: Sequence[Given], out_: Output) -> list[Given]:
    """Return two sides whose layers answer to each other by name; without ranges by kernel."""
    from dataclasses import replace

    from perfml.explain.pairing import pair_kernels

    if all(each.ranged for each in given) or any(each.kernels is None for each in given):
        return list(given)
    pairing = pair_kernels((names[0], given[0].timed), (names[1], given[1].timed))
    for sentence in filter(None, (each.left_out for each in given)):
        out_.warn(sentence)
    for sentence in pairing.alignment.said:
        out_.warn(sentence)
    pairs = pairing.alignment.pairs
    called = dict(zip(pairs["target_layer"], pairs["layer"], strict=True))
    before, after = pairing.baseline.kernels, pairing.target.kernels
    assert before is not None
    assert after is not None
    after = after.assign(layer=after["layer"].replace(called))
    return [
        replace(each, kernels=kernels, stored=None)
        for each, kernels in zip(given, (before, after), strict=True)
    ]


def side_names(given: Sequence[Given], *told: str | None) -> list[str]:
    """Return what two sides are called: their files, or what else tells them apart.

    Parameters
    ----------
    given
        Both sides.
    told
        The kernel that was asked for on each side, if any.
    """
    from perfml.datasets.choosing import split_place
    from perfml.ingest.run_labels import stem

    names = []
    for each in given:
        file, nth = split_place(each.name)
        name = stem(file).removesuffix(".parquet")
        names.append(name if nth is None else f"{name}@{nth}")
    if len(set(names)) < len(names) and len(set(told)) > 1:
        names = [f"{name} {kernel}" for name, kernel in zip(names, told, strict=True)]
    if len(set(names)) == len(names):
        return names
    if given[0].name == given[1].name:
        return [names[0], f"{names[1]} (again)"]
    return _tails([each.name for each in given])


def _tails(paths: Sequence[str]) -> list[str]:
    """Return as much from the end of each path as tells them apart."""
    parts = [Path(path).parts for path in paths]
    for length in range(2, max(map(len, parts)) + 1):
        tails = [str(Path(*each[-length:])) for each in parts]
        if len(set(tails)) == len(tails):
            return tails
    return list(paths)


def launches_behind(
    given: Given, kernels: Path | None, where: list[str] | None
) -> pd.DataFrame | None:
    """Return the launches behind layers: those of --kernels, or that came with the layers."""
    from perfml.datasets import read_given
    from perfml.datasets.choosing import only

    if kernels is None:
        return given.kernels
    launches = only(read_given(kernels).launches, where, strict=False)
    # a table of some layers asks about these: the launches of the others have no times beside them
    named = launches["layer"].isin(given.layers["layer"].dropna().unique())
    return launches[named | launches["layer"].isna()]


def peaks_given(given: str | None, table: pd.DataFrame) -> Peaks | None:
    """Return the peaks that --peaks names; None where the device's own are to be taken."""
    from perfml.explain.roofs.peaks import DATA_SHEET, MEASURED, known_peaks, load_peaks

    if given is None:
        return None
    known = ("measured", "data-sheet")
    if given not in known:
        if not Path(given).exists():
            msg = "no such file"
            cure = did_you_mean(given, known, "Give measured, data-sheet or a file.")
            raise PerfmlError(msg, where=given, cure=cure)
        return load_peaks(given)
    devices = sorted(map(str, table["device"].dropna().unique()))
    return known_peaks(", ".join(devices), MEASURED if given == "measured" else DATA_SHEET)
