"""The mutations by their ids, and which of them bound the repair of which cause."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from perfml.experiments.mutation import addresses, operations
from perfml.experiments.mutation.ptx import Kernel, counting_blocks, kernel

RECOMPILED = "recompiled"
"""The kernel's PTX as it is, compiled by the driver: what mutants are compared with."""
OFF = "off"
"""Behind the id of a mutant: its control, the same machine code with the switch off."""
MUTATIONS: dict[str, Callable[[Kernel], str | None]] = {
    "dense_loads": addresses.dense_loads,
    "dense_stores": addresses.dense_stores,
    "cached_loads": addresses.cached_loads,
    "no_conflicts": addresses.no_conflicts,
    "alike_constants": addresses.alike_constants,
    "no_global_atomics": operations.no_global_atomics,
    "no_barriers": operations.no_barriers,
    "no_fences": operations.no_fences,
    "no_local_arrays": operations.no_local_arrays,
    "more_registers": operations.more_registers,
    "single_precision": operations.single_precision,
    "cheap_functions": operations.cheap_functions,
    "cheap_division": operations.cheap_division,
}
"""Id of a mutation to what makes its module; it returns None where a kernel has no such habit."""


@dataclass(frozen=True)
class Mutant:
    """A module with one kernel, changed."""

    kernel: str  # as the compiler mangled its name
    mutation: str  # its id, or `RECOMPILED`
    ptx: str
    variables: tuple[str, ...]  # of it, whose values it takes over from the program's module
    switched: bool  # whether it carries the switch, so that it is its own control

    @property
    def counted(self) -> str | None:
        """Its PTX with a count of each basic block; None where these cannot be counted."""
        return counting_blocks(kernel(self.ptx, self.kernel))


def mutants(ptx: str, name: str) -> list[Mutant]:
    """Return the mutants of a kernel, the unchanged one first; none where it cannot be read.

    Parameters
    ----------
    ptx
        A module.
    name
        Of a kernel in it, as the compiler mangled it.
    """
    try:
        unchanged = kernel(ptx, name)
    except ValueError:
        return []
    made = [Mutant(name, RECOMPILED, unchanged.text, unchanged.variables, switched=False)]
    for mutation, make in MUTATIONS.items():
        text = make(unchanged)
        if text is not None:
            switched = addresses.DECLARED in text
            made.append(Mutant(name, mutation, text, unchanged.variables, switched))
    return made


_FILE = tomllib.loads(files(__package__).joinpath("mutations.toml").read_text("utf-8"))

WORDS: dict[str, str] = _FILE["words"]
"""Id of a mutation to its words."""


@cache
def mutations_of() -> dict[str, dict[str, tuple[str, ...]]]:
    """Return ``habits`` and ``bounds``: the mutations of each cause (``mutations.toml``)."""
    return {
        kind: {cause: tuple(names) for cause, names in _FILE[kind].items()}
        for kind in ("habits", "bounds")
    }
