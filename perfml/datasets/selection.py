"""What a user asks about: inputs by name, and which of their rows, launches and layers are meant.

The command line makes a `Selection` of its options, Python of its arguments;
`perfml.datasets.opening.read_inputs` turns it into tables. No pandas here: options are known, and
completed, before anything is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_NTH = re.compile(r"(?P<name>.+)@(?P<nth>[0-9]{1,9})")


@dataclass(frozen=True)
class Selection:
    """What is asked about.

    Attributes
    ----------
    names
        Profiles, folders of profiles, runs, tables, or data sets; ``FILE@3`` is the fourth launch
        of a file. Of two the first is the baseline; three or more are the ranks of one job.
    where
        Conditions ``COLUMN=VALUE`` that rows must meet.
    kernel
        Part of a kernel's name, or a regular expression; None for every kernel.
    kernel_b
        The same of the target, where it differs.
    skip
        Launches left out at the start of every run, counted among those that `kernel` leaves (as
        Nsight Compute's ``--launch-skip`` does).
    launches
        The Kernels table behind a Layers table.
    layer_map
        Ordered kernel patterns that give layers to profiles without ranges.
    layers
        Layers that the answer is about, by name or pattern; empty for all.
    by, baseline, target
        A column, and two of its values: the sides of one table.
    """

    names: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    kernel: str | None = None
    kernel_b: str | None = None
    skip: int = 0
    launches: Path | None = None
    layer_map: Path | None = None
    layers: tuple[str, ...] = ()
    by: str = "backend"
    baseline: str | None = None
    target: str | None = None

    def kernel_of(self, place: int) -> str | None:
        """Return the kernel that is meant of the first input (0) or of a later one."""
        return self.kernel if place == 0 or self.kernel_b is None else self.kernel_b

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names to read: one profile is named twice where two of its kernels are meant."""
        if len(self.names) == 1 and self.kernel_of(0) != self.kernel_of(1):
            return self.names * 2
        return self.names


Source = str | Path | Selection
"""What functions take in place of a table: a name, or a selection of one."""


def split_place(argument: str) -> tuple[str, int | None]:
    """Split ``FILE@3`` into the file and the launch's place, from 0.

    Examples
    --------
    >>> split_place("a.ncu-rep@3")
    ('a.ncu-rep', 3)
    >>> split_place("me@host.ncu-rep")
    ('me@host.ncu-rep', None)
    """
    match = None if Path(argument).exists() else _NTH.fullmatch(argument)
    return (match["name"], int(match["nth"])) if match else (argument, None)
