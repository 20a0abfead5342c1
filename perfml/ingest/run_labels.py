"""Which run a profile belongs to, and the columns that a run's own files give its launches."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePath
from typing import Any

import pandas as pd

from perfml.errors import InputError, PerfmlError, did_you_mean
from perfml.tables import PRODUCT_COLUMNS, Kernels
from perfml.util.files import parse_json, read_document

MANIFEST = "run.json"
SHAPES = "layers.json"
"""Beside loose profiles: the shapes of their layers, under the key ``layers``."""

BACKENDS = {
    "cublas": "cublas",
    "cudnn": "cudnn",
    "inductor": "inductor",
    "tensorrt": "tensorrt",
    "trt": "tensorrt",
    "eager": "eager",
    "jax": "jax",
    "xla": "xla",
    "triton": "triton",
    "cutlass": "cutlass",
}
"""Backend names recognised in file names, and how perfml spells them."""

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")

_WORKLOADS = {"yolov4tiny": "yolov4-tiny"}
_GPUS = frozenset({"b100", "b200", "b300"})
"""GPUs of NVIDIA's that are called as a batch might be."""
_BATCH = re.compile(r"b(?:atch)?_?(\d+)")
_SUFFIXES = re.compile(
    r"(\.(csv|txt|log|ncu-rep|nvvp|nvprof|sqlite|db|gz|xz|bz2|profile|(?:(?:layers|graph)\.)?json|nsys-rep))+$",
    re.IGNORECASE,
)
_DIGEST = re.compile(r"-[0-9a-f]{8,10}$")
_TIMING = re.compile(r"[_\-.]timing$")


@dataclass(frozen=True)
class Identity:
    """What a user may say of a run; None leaves it to the manifest or the file name."""

    workload: str | None = None
    backend: str | None = None
    precision: str | None = None
    batch: int | None = None

    @classmethod
    def from_words(cls, words: Iterable[str]) -> Identity:
        """Read an identity off words such as ``backend=cublas``.

        Raises `PerfmlError` if a word names no part of an identity, or a batch is no number.
        """
        known = [attribute.name for attribute in fields(cls)]
        found: dict[str, Any] = {}
        for word in words:
            name, _, value = word.partition("=")
            if name not in known or not value or (name == "batch" and not value.isdecimal()):
                msg = f"--label needs NAME=VALUE, not {word!r}"
                cure = f"Names are: {', '.join(known)}; a batch is a number."
                raise PerfmlError(msg, cure=did_you_mean(name, known, cure))
            found[name] = int(value) if name == "batch" else value
        return cls(**found)

    def over(self, other: Identity) -> Identity:
        """Return this identity, with `other` where this one says nothing."""
        mine = {field.name: getattr(self, field.name) for field in fields(self)}
        return Identity(**{k: v if v is not None else getattr(other, k) for k, v in mine.items()})


def stem(path: str | Path) -> str:
    """Return a profile's name without the endings of its format.

    Examples
    --------
    >>> stem("yolov4tiny_cublas_fp32_b8.csv.xz")
    'yolov4tiny_cublas_fp32_b8'
    """
    name = Path(path).name
    return _SUFFIXES.sub("", name) or name


def run_name(run_id: object) -> str:
    """Return what a user calls a run: its id without the digest of its file or settings.

    Examples
    --------
    >>> run_name("vectors-aa2946d0")
    'vectors'
    """
    return _DIGEST.sub("", str(run_id))


def pair_key(path: str | Path) -> str:
    """Return what a profile and its timing pass share: the stem without ``_timing``."""
    return _TIMING.sub("", stem(path))


def from_name(path: str | Path) -> Identity:
    """Read a run's identity off a file name; tokens lie between ``_``, ``-`` and ``.``.

    Examples
    --------
    >>> from_name("yolov4tiny_cublas_fp32_b8.csv.xz")
    Identity(workload='yolov4-tiny', backend='cublas', precision='fp32', batch=8)
    """
    backend: str | None = None
    precision: str | None = None
    batch: int | None = None
    rest: list[str] = []
    for token in re.split(r"[_\-.]+", pair_key(path)):
        lower = token.lower()
        number = _BATCH.fullmatch(lower)
        if backend is None and lower in BACKENDS:
            backend = BACKENDS[lower]
        elif precision is None and lower in PRECISIONS:
            precision = lower
        elif batch is None and number and lower not in _GPUS:
            batch = int(number.group(1))
        elif token:
            rest.append(token)
    workload = "-".join(rest) or None
    return Identity(_WORKLOADS.get(workload or "", workload), backend, precision, batch)


def read_manifest(path: Path) -> dict[str, Any]:
    """Read a ``run.json``.

    Raises `InputError` if it is no JSON object, or an identity in it has a wrong type.
    """
    data = read_document(path)
    try:
        manifest = parse_json(data)
    except ValueError as error:
        msg = "not a run manifest"
        cure = "Collect the run again, or remove the file."
        raise InputError(msg, where=str(path), found=str(error), cure=cure) from error
    if not isinstance(manifest, dict):
        msg = "not a run manifest"
        raise InputError(msg, where=str(path), found=type(manifest).__name__, cure="Collect again.")
    for name, kind in (("workload", str), ("backend", str), ("precision", str), ("batch", int)):
        value = manifest.get(name)
        if value is not None and not isinstance(value, kind):
            msg = f"{name} must be {kind.__name__}"
            raise InputError(msg, where=str(path), found=repr(value)[:80], cure="Collect again.")
    return manifest


def from_manifest(manifest: dict[str, Any]) -> Identity:
    """Read a run's identity off its manifest."""
    return Identity(**{field.name: manifest.get(field.name) for field in fields(Identity)})


_BITS = re.compile(r"[a-z]+([0-9]+)")
"""Of a data type such as ``float16``, ``bfloat16``, ``int8`` or ``float8_e4m3fn``."""


def with_products(frame: pd.DataFrame, manifest: dict[str, Any]) -> pd.DataFrame:
    """Return launches with the largest product of their layer, where the manifest has any.

    The manifest of the run (``run.json``) has ``layers`` with ``products``
    (`collectors.workloads.torch_models.work`). `perfml.tables.PRODUCT_COLUMNS` are missing in
    layers without a product.
    """
    rows = manifest.get("layers")
    sizes = {
        str(row["layer"]): (*largest, _flops(row))
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict) and (largest := _largest(row.get("products"))) is not None
    }
    if not sizes:
        return frame
    layers = frame["layer"].astype(object)
    columns = {
        name: pd.to_numeric(layers.map({layer: size[place] for layer, size in sizes.items()}))
        for place, name in enumerate(PRODUCT_COLUMNS)
    }
    return frame.assign(**{name: column.astype("float64") for name, column in columns.items()})


def _flops(row: dict[str, Any]) -> float:
    """Return what a layer computes; NaN where that is not known."""
    flops = row.get("flops")
    return float(flops) if isinstance(flops, int | float) else float("nan")


def _largest(products: Any) -> tuple[float, float, float, float] | None:
    """Return m, n, k and bytes of an element of the product with the most work."""
    known = []
    for product in products if isinstance(products, list) else []:
        if not isinstance(product, dict):
            continue
        bits = _BITS.match(str(product.get("dtype")))
        try:
            m, n, k, count = (float(product[name]) for name in ("m", "n", "k", "count"))
        except (KeyError, TypeError, ValueError):
            continue
        if bits is not None:
            known.append((m * n * k * count, (m, n, k, int(bits.group(1)) / 8)))
    return max(known)[1] if known else None


SHOWN = 60
"""Characters of an argument that a name or a warning holds."""


Started = tuple[tuple[Any, ...], tuple[str, ...]]
"""The condition of a run (workload, backend, precision, batch), and how it was started: its program
and arguments, empty where the profile does not tell. Runs of one condition count as repeats."""


def command_of(manifest: dict[str, Any], profiles: Sequence[Kernels]) -> tuple[str, ...]:
    """Return the program and its arguments, from the manifest or what the profiler wrote."""
    program = manifest.get("program")
    if isinstance(program, list) and all(isinstance(word, str) for word in program):
        return tuple(program)
    for kernels in profiles:
        command = kernels.provenance.get("command")
        if isinstance(command, str) and command.strip():
            try:
                return tuple(shlex.split(command))
            except ValueError:  # quotes that do not end
                return tuple(command.split())
    return ()


CONDITION = ("workload", "backend", "precision", "batch")
"""What runs share that count as repeats."""


def told_apart(runs: Sequence[Started], user: str | None) -> tuple[dict[int, str], list[str]]:
    """Give runs of one program with different arguments workloads of their own.

    `runs` are all that are read together. A `user` who named a workload has said that the runs are
    one. Returned are the workload of each run whose arguments differ, by its place, and a sentence
    a workload on what was done.
    """
    labels = differing_arguments(runs)
    names: dict[int, str] = {}
    warnings = []
    for workload in dict.fromkeys(str(condition[0]) for condition, _ in runs):
        members = [
            place
            for place, (condition, _) in enumerate(runs)
            if labels[place] and condition[0] == workload
        ]
        if not members:
            continue
        arguments = ", ".join(dict.fromkeys(labels[place] for place in members))
        warning = (
            f"{workload}: {len(members)} runs were started with different arguments ({arguments})"
        )
        if user is not None:
            warnings.append(
                f"{warning}; they count as repeats, because --label workload names them all"
            )
            continue
        names |= {place: f"{workload} {labels[place]}" for place in members}
        warnings.append(
            f"{warning}, so they are workloads of their own. If they are repeats of each other, "
            f"add --label workload={workload}"
        )
    return names, warnings


def differing_arguments(runs: Sequence[Started]) -> list[str]:
    """Return, for each run, the arguments that other repeats of it were not started with.

    It is empty for a run that no other run of its condition and program differs from.

    Examples
    --------
    >>> same = ("gemm", "eager", "fp32", 1)
    >>> differing_arguments([
    ...     (same, ("./gemm", "--size", "512")),
    ...     (same, ("./gemm", "--size", "1024")),
    ... ])
    ['--size 512', '--size 1024']
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, (condition, command) in enumerate(runs):
        if command:
            program = PurePath(command[0]).name
            groups.setdefault((*condition, program), []).append(place)
    labels = [""] * len(runs)
    for places in groups.values():
        commands = [runs[place][1][1:] for place in places]
        if len(set(commands)) < 2:
            continue
        for place, arguments in zip(places, commands, strict=True):
            labels[place] = _own(arguments, commands)[:SHOWN] or "no arguments"
    return labels


def _own(arguments: tuple[str, ...], commands: Sequence[tuple[str, ...]]) -> str:
    """Return the arguments of one command that are not the same in all, with their options."""
    if len(set(map(len, commands))) == 1:
        differs = [len({command[at] for command in commands}) > 1 for at in range(len(arguments))]
    else:
        common = set(commands[0]).intersection(*commands[1:])
        differs = [word not in common for word in arguments]
    words: list[str] = []
    for at, word in enumerate(arguments):
        if not differs[at]:
            continue
        before = arguments[at - 1] if at else ""
        if before.startswith("-") and "=" not in before and not differs[at - 1]:
            words.append(before)
        words.append(word)
    return " ".join(words)
