"""What follows ``torch:``: a model of a library, or a function in a file of the user's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from perfml.errors import InputError

PREFIX = "torch:"
LIBRARIES = ("torchvision", "timm", "transformers")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""No colon and no slash: those are names of hubs, from which a library would download."""


@dataclass(frozen=True)
class ModelName:
    """Where a model comes from."""

    library: str | None  # one of `LIBRARIES`; None for a file
    name: str  # the library's name of the model, or the function in the file
    file: Path | None = None  # the Python file; None for a library


def parse_name(text: str) -> ModelName:
    """Read a workload's name; raise if it is neither a library's model nor a file's function."""
    rest = text.removeprefix(PREFIX)
    file, colon, function = rest.rpartition(":")
    if colon and file.endswith(".py"):
        return _function(Path(file), function)
    library, _, name = rest.partition("/")
    if library in LIBRARIES and _MODEL.fullmatch(name):
        return ModelName(library, name)
    what = "this names no PyTorch model"
    cure = f"Write {', '.join(f'{PREFIX}{library}/NAME' for library in LIBRARIES)} "
    cure += f"or {PREFIX}FILE.py:FUNCTION, for example {PREFIX}torchvision/resnet18."
    raise InputError(what, where="WORKLOAD", found=text, cure=cure)


def _function(file: Path, function: str) -> ModelName:
    if not function.isidentifier():
        what, cure = "this is no name of a function", "Write torch:FILE.py:FUNCTION."
        raise InputError(what, where=str(file), found=function, cure=cure)
    if not file.is_file():
        what, cure = "there is no such file", "Check the path; it starts where you are now."
        raise InputError(what, where="WORKLOAD", found=str(file), cure=cure)
    return ModelName(None, function, file)
