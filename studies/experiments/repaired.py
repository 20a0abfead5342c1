"""Measured repairs beside real ones: pairs of kernels, and planted kernels beside their base."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfml.experiments.mutation.programs import mutations_of
from perfml.experiments.record import read_experiments
from perfml.experiments.repairs import habit_of, repair_of
from perfml.experiments.responses import Responses, responses
from perfml.experiments.verdicts import verdict
from studies.experiments.recorded import DATA, FOLDER

PAIRS = {
    "hist": ("v1", "shared_atomics"), "lnorm": ("v1", "stall_sync"),
    "gemmt": ("v2", "uncoalesced_loads"), "spmv": ("v1", "uncoalesced_loads"),
    "amax": ("v1", "global_atomics"), "energy": ("v1", "uncoalesced_loads"),
    "record": ("v2", "dram_bytes"), "price": ("v2", "fp64_pipe_time"),
    "permute": ("v1", "integer_arithmetic"), "accum": ("v2", "local_memory"),
    "mapf": ("v1", "wave_quantization"), "fir": ("v2", "stall_sync"),
    "hgemm": ("v2", "tensor_unused"), "nhwc": ("v1", "uncoalesced_stores"),
    "ray": ("v1", "theoretical_occupancy"), "gamma": ("v2", "constant_serialization"),
}  # fmt: skip
"""The slower side and the cause of each of 16 pairs: labels of 2026-11-25, frozen before anything
was recorded, by the ids of this program. Three further pairs are equal."""
FAMILIES = {
    "load_stride": "uncoalesced_loads", "store_stride": "uncoalesced_stores",
    "bank_conflicts": "bank_conflicts", "barriers": "stall_sync",
    "load_chain": "stall_memory_dependency", "special": "special_function_pipe_time",
    "doubles": "fp64_pipe_time", "confound_loads_occupancy": "uncoalesced_loads",
    "confound_conflicts_registers": "bank_conflicts",
    "confound_special_barriers": "special_function_pipe_time",
    "atomic_contention": "global_atomics", "atomic_count": "global_atomics",
    "shared_atomics": "shared_atomics", "local_array": "local_memory", "spills": "local_memory",
    "redundant_traffic": "redundant_traffic", "reloaded_values": "redundant_traffic",
    "memory_fence": "memory_fence", "constant_divergence": "constant_serialization",
    "confound_traffic_arithmetic": "redundant_traffic",
    "conversions": "special_function_pipe_time", "reciprocal_roots": "special_function_pipe_time",
    "doubles_from_none": "fp64_pipe_time",
}  # fmt: skip
"""Planted families whose kernels have PTX of this recording, and their cause."""


@dataclass(frozen=True)
class Case:
    """A slow launch of known cause, and the same without it."""

    name: str
    cause: str
    slow: Responses
    fast: Responses

    @property
    def real(self) -> float:
        """Time of the real repair over that of the slow launch."""
        return self.fast.time_us / self.slow.time_us


def recorded(name: str, folder: Path = FOLDER) -> Mapping[str, Responses]:
    """Return the launches of a recording by the names of their layers."""
    launches = responses(read_experiments(folder / f"{name}.csv.xz"))
    return {each.launch.ranges[-1]: each for each in launches}


def pairs() -> list[Case]:
    """Return the pairs that differ."""
    sides = {name: recorded(f"pairs-{name}") for name in ("v1", "v2")}
    other = {"v1": "v2", "v2": "v1"}
    return [
        Case(name, cause, sides[slow][name], sides[other[slow]][name])
        for name, (slow, cause) in PAIRS.items()
    ]


def planted(gpu: str = "h100") -> list[Case]:
    """Return the planted kernels of the highest level beside those of none."""
    folder = DATA / f"{gpu}-experiments"
    base = "repairs-base" if gpu == "h100" else "planted-base"
    slow, fast = recorded("repairs-level_3", folder), recorded(base, folder)
    layers = {name: f"{name}_s0" for name in FAMILIES}
    return [Case(n, FAMILIES[n], slow[layer], fast[layer]) for n, layer in layers.items()]


def gains(cases: list[Case]) -> dict[str, Any]:
    """Return the measured repair of each case beside the real one, and how far they lie apart."""
    rows, times, saved = [], [], []
    for case in cases:
        said = verdict(case.slow, case.cause, 1 - case.real)
        row = {"case": case.name, "cause": case.cause, "verdict": said.verdict,
               "real": round(case.real, 3)}  # fmt: skip
        repair = repair_of(case.slow, case.cause)
        if repair is not None:
            times.append(abs(repair.factor / case.real - 1))
            saved.append(abs(repair.factor - case.real) / (1 - case.real))
            row |= {"mutation": repair.mutation, "measured": round(repair.factor, 3)}
            row |= {"interval": [round(repair.low, 3), round(repair.high, 3)]}
        rows.append(row)
    return {
        "cases": len(cases),
        "with a measured gain": len(times),
        "median error of the time": round(statistics.median(times), 3),
        "median error of the saving": round(statistics.median(saved), 3),
        "verdicts": dict(Counter(row["verdict"] for row in rows)),
        "habits of other causes": dict(Counter(_others(cases))),
        "rows": rows,
    }


def _others(cases: list[Case]) -> Iterator[str]:
    """Yield the verdicts on causes whose habit the slow kernel has, too, and that are not its."""
    habits = mutations_of()["habits"]
    for case in cases:
        mine = set(habits.get(case.cause, ()))
        for cause, mutations in habits.items():
            if not mine.intersection(mutations) and habit_of(case.slow, cause) is not None:
                yield verdict(case.slow, cause, 1 - case.real).verdict
