"""Which datasets there are, where they lie, and how the ones we may not ship are fetched.

`DATASETS` is what comes with perfml or is fetched. In a checkout the recordings of the studies,
folders of ``studies/data``, are found by their names too; nothing lists or proposes them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from perfml.errors import PerfmlError, did_you_mean
from perfml.util import installed
from perfml.util.files import sha256_of_file


@dataclass(frozen=True)
class Dataset:
    """One dataset.

    Attributes
    ----------
    name, what
        For people.
    url, sha256, file
        Of a dataset that is fetched; None for one that ships with perfml.
    variable
        Environment variable that names a local copy.
    layers
        What the names of its layers match, where launches of other layers lie between them.
    """

    name: str
    what: str
    url: str | None = None
    sha256: str | None = None
    file: str | None = None
    variable: str | None = None
    layers: str | None = None


DATASETS = {
    each.name: each
    for each in (
        Dataset(
            "atlas",
            "layers of many PyTorch networks on an H200: backends x precisions x batch sizes",
        ),
        Dataset(
            "h200-yolov4-tiny",
            "YOLOv4-Tiny on an H200: cublas, cudnn, inductor x fp32, tf32, fp16 x batch 1 and 8",
            layers="conv_.*",
        ),
        Dataset(
            "nazir2024",
            "the published dataset.csv (GTX 1050 Ti, layers 3 and 20; no licence given)",
            url=(
                "https://raw.githubusercontent.com/zhumakhan/CNN_Cuda_libraries_performance/"
                "af408278b82a5144c596cb0dc382b907861fa105/dataset.csv"
            ),
            sha256="205d2fcbf0df74f1b7c88dcdb356b5859f7d6800f328a7817bc89a4c4a80acbb",
            file="dataset.csv",
            variable="PERFML_DATA",
        ),
    )
}


_RECORDED = re.compile(r"h[12]00-")
"""How the names of recordings begin."""


def is_dataset(name: str) -> bool:
    """Return whether `find` knows a name: a data set's, or a study's in a checkout."""
    return name in DATASETS or _of_studies(name) is not None


def get(name: str) -> Dataset:
    """Return a dataset's description.

    Raises `PerfmlError` if there is none of that name.
    """
    if name in DATASETS:
        return DATASETS[name]
    folder = _of_studies(name)
    if folder is not None:
        card = (folder / "README.md").read_text(encoding="utf-8")
        return Dataset(name, card.partition("\n")[0].lstrip("# "))
    msg = f"no dataset is called {name!r}"
    raise PerfmlError(msg, cure=did_you_mean(name, DATASETS, proposal(name)))


def proposal(name: str) -> str:
    """Return what to do about a name that is no dataset's: which there are, and where others."""
    known = f"Datasets are: {', '.join(DATASETS)}."
    recorded = _RECORDED.match(name) and installed.studies() is None
    return f"{known} {installed.NEEDS_CHECKOUT}" if recorded else known


def layers_meant(name: str) -> str | None:
    """Return what names of layers match in a recorded dataset; None where all are meant."""
    return DATASETS[name].layers if name in DATASETS else None


def find(name: str) -> Path | None:
    """Return where a dataset lies on this machine, or None.

    Raises
    ------
    PerfmlError
        If there is none of that name, or the environment names a file that is not there.
    """
    dataset = get(name)
    if dataset.file is None:
        return next((place for place in _shipped(name) if place.is_dir()), None)
    if dataset.variable and (named := os.environ.get(dataset.variable)):
        if not Path(named).is_file():
            msg = f"{dataset.variable} names a file that does not exist"
            raise PerfmlError(msg, found=named, cure=f"Correct or unset {dataset.variable}.")
        return Path(named)
    cached = _cache() / dataset.file
    return cached if cached.is_file() and sha256_of_file(cached) == dataset.sha256 else None


def fetch(name: str, *, url: str | None = None) -> Path:
    """Return a dataset's path, downloading it first where it is not here.

    Parameters
    ----------
    name
        The dataset.
    url
        Another place to get the same bytes from; the hash is checked all the same.

    Raises
    ------
    PerfmlError
        If it cannot be downloaded, or what arrives has another sha256.
    """
    dataset = get(name)
    path = find(name)
    if path is not None:
        return path
    if dataset.url is None or dataset.file is None:
        msg = f"dataset {name} should lie beside perfml and does not"
        raise PerfmlError(msg, cure="Install perfml again, or clone its repository.")
    import pooch

    # its own message would come between progress and results; errors are ours to word
    pooch.get_logger().setLevel("WARNING")
    try:
        return Path(
            pooch.retrieve(
                url or dataset.url,
                known_hash=f"sha256:{dataset.sha256}",
                fname=dataset.file,
                path=_cache(),
                progressbar=False,
            )
        )
    except (OSError, ValueError) as error:
        msg = f"cannot download dataset {name}"
        variable = f" and set {dataset.variable} to its path" if dataset.variable else ""
        raise PerfmlError(
            msg,
            where=url or dataset.url,
            found=_why(error),
            cure=f"Get the file by other means{variable} (sha256 {dataset.sha256}).",
        ) from error


def _shipped(name: str) -> list[Path]:
    if (folder := _of_studies(name)) is not None:
        return [folder]
    package = Path(str(resources.files("perfml.datasets")))
    # an installed wheel carries the recordings inside the package, a checkout beside it
    return [package / "recorded" / name, package.parent.parent / "datasets" / name]


def _of_studies(name: str) -> Path | None:
    """Return the folder of a study's recording in this checkout; None where there is none."""
    studies = installed.studies()
    if studies is None or not _RECORDED.match(name) or Path(name).name != name:
        return None
    folder = studies / "data" / name
    return folder if (folder / "README.md").is_file() else None


def _cache() -> Path:
    import pooch

    return Path(pooch.os_cache("perfml"))


def _why(error: Exception) -> str:
    """Say in a line why a download failed; libraries name their objects and addresses."""
    kind = type(error).__name__
    return f"no connection: {kind}" if "Conn" in kind else str(error).splitlines()[0][:200]
