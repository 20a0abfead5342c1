"""Which instruction carries a cause, and which line of the source it is from.

A report with counters of single instructions (`perfml.readers.ncu.instructions`) tells it for the
causes that are a sum over instructions. How much an instruction carries is its part of that sum on
the side where the cause costs time, so it says where to look, not what a change would save.

Here to change: what is summed for a cause, in `_CARRIERS`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from perfml.explain.launches import LABEL
from perfml.explain.reports import Code, Report, code_of, opcode, without_predicate
from perfml.explain.results import Explanation, LayerDiff, Line, file_name
from perfml.explain.speed_of_light import KernelLevels
from perfml.explain.tree.layer_causes import sided_causes
from perfml.ingest.merge.groups import kernel_units
from perfml.kernel_names import kernel_label
from perfml.metrics.expressions import Array
from perfml.readers.ncu.instructions import SAMPLES, SCOREBOARDS, STALLED
from perfml.readers.ncu.report import EXECUTED
from perfml.util.machine_code import Place, own

if TYPE_CHECKING:
    from perfml.explain.advice.hazards import Advice

SIDES = ("baseline", "target")
_LEAST = 0.1  # an instruction that carries less of its cause is not named
_OPERATIONS = 3  # of additional instructions that are named

_MOST_SAMPLED = 400
"""Instructions at which warps wait whose producers are looked up, at most."""

_SECTORS = "memory_l2_theoretical_sectors_global"
_WAVEFRONTS = "memory_l1_wavefronts_shared"
_ACCESS = r"^([\w.]+) [^\[]*\[(U?R\d+)"  # operation and base register of a memory access


@dataclass(frozen=True)
class _Carrier:
    """What is summed over the instructions of a kernel."""

    of: str  # what it is, in words
    weigh: Callable[[pd.DataFrame], Array]  # gives each instruction's part, shape (n,)
    opcodes: tuple[str, ...] = ()  # operations that can carry it; all by default
    reasons: tuple[str, ...] = ()  # why warps wait at it, where it is that

    def weights(self, table: pd.DataFrame) -> Array:
        """Return each instruction's part, 0 for those that cannot carry it."""
        values = np.maximum(self.weigh(table), 0.0)
        if not self.opcodes:
            return values
        return np.where(table["sass"].map(opcode).isin(self.opcodes), values, 0.0)


def _column(name: str) -> Callable[[pd.DataFrame], Array]:
    def values(table: pd.DataFrame) -> Array:
        return table[name].to_numpy(dtype=float) if name in table else np.zeros(len(table))

    return values


def _beyond_ideal(name: str) -> Callable[[pd.DataFrame], Array]:
    whole, ideal = _column(name), _column(f"{name}_ideal")
    return lambda table: whole(table) - ideal(table)


def _idle_lanes(table: pd.DataFrame) -> Array:
    """Return lanes that were launched and idle; those that no thread was launched in are no part.

    Every warp runs the first instruction, with all threads that it has.
    """
    ran, active = _column(EXECUTED)(table), _column("thread_inst_executed")(table)
    launched = active[0] / ran[0] if ran[0] else 0.0
    return launched * ran - active


def _stall(*reasons: str) -> _Carrier:
    def samples(table: pd.DataFrame) -> Array:
        parts = [_column(f"{STALLED}{reason}")(table) for reason in reasons]
        return np.asarray(np.sum(parts, axis=0))

    of = f"the samples of warps waiting ({' + '.join(reasons)})"
    return _Carrier(of, samples, reasons=reasons)


_LOADS, _STORES = ("LDG", "LD"), ("STG", "ST")
_DOUBLES = ("DADD", "DMUL", "DFMA", "DSETP", "DMMA")
_SPECIAL = ("MUFU", "I2F", "F2I", "F2F", "I2I", "FRND", "I2FP", "F2FP")
"""What the unit of special functions executes: conversions between types, too."""
_INTEGERS = (
    *("IADD3", "IADD", "IMAD", "IMUL", "LOP3", "LOP", "SHF", "SHL", "SHR", "LEA", "ISETP"),
    *("IABS", "IMNMX", "PRMT", "POPC", "FLO", "BMSK", "SGXT", "VIADD", "VIMNMX"),
)
_SCATTERED = _beyond_ideal(_SECTORS)
_ASKED = _column(_SECTORS)
_RUNS = _column(EXECUTED)
_BRANCHES = _Carrier(
    "the threads that part from their warp at branches",
    _column("smsp__branch_targets_threads_divergent"),
)
_CONFLICTS = _Carrier("the shared-memory wavefronts beyond the least", _beyond_ideal(_WAVEFRONTS))
_CARRIERS: dict[str, _Carrier] = {
    "uncoalesced_loads": _Carrier("the load sectors beyond the least", _SCATTERED, _LOADS),
    "uncoalesced_stores": _Carrier("the store sectors beyond the least", _SCATTERED, _STORES),
    "uncoalesced_copies": _Carrier("the copied sectors beyond the least", _SCATTERED, ("LDGSTS",)),
    "sectors_per_request": _Carrier("the global sectors beyond the least", _SCATTERED),
    "redundant_traffic": _Carrier("the global sectors asked for", _ASKED),
    "l1_sectors": _Carrier("the global sectors asked for", _ASKED),
    "l2_sectors": _Carrier("the global sectors asked for", _ASKED),
    "dram_bytes": _Carrier("the global sectors asked for", _ASKED),
    "global_requests": _Carrier("the global accesses", _RUNS, (*_LOADS, *_STORES)),
    "narrow_access": _Carrier("the global accesses", _RUNS, (*_LOADS, *_STORES)),
    "async_copy": _stall("long_scoreboard"),
    "narrow_copies": _Carrier("the bulk copies", _RUNS, ("UBLKCP", "UTMALDG")),
    "wavefronts_per_shared_load": _CONFLICTS,
    "bank_conflicts": _CONFLICTS,
    "shared_loads": _Carrier("the shared-memory wavefronts", _column(_WAVEFRONTS)),
    "instructions": _Carrier("the executed instructions", _RUNS),
    "shared_memory_busy_time": _Carrier("the shared-memory wavefronts", _column(_WAVEFRONTS)),
    "local_memory": _Carrier("the local-memory accesses", _RUNS, ("LDL", "STL")),
    "global_atomics": _Carrier("the global atomics", _RUNS, ("RED", "ATOM", "ATOMG", "REDG")),
    "shared_atomics": _Carrier("the shared-memory atomics", _RUNS, ("ATOMS", "ATOMSM")),
    "active_threads_per_warp": _Carrier("the idle lanes of warps", _idle_lanes),
    "special_function_pipe_time": _Carrier("the special functions", _RUNS, _SPECIAL),
    "fp64_pipe_time": _Carrier("the instructions in double precision", _RUNS, _DOUBLES),
    "integer_arithmetic": _Carrier("the integer instructions", _RUNS, _INTEGERS),
    "integer_division": _Carrier(
        "the conversions of divided integers", _RUNS, ("I2F", "F2I", "I2FP")
    ),
    "lsu_pipe_time": _Carrier("the exchanges between lanes", _RUNS, ("SHFL",)),
    "tensor_unused": _Carrier("the multiply-adds", _RUNS, ("FFMA", "HFMA2", "FMUL", "FADD")),
    "stall_inst_fetch": _stall("no_instructions"),
    "stall_exec_dependency": _stall("short_scoreboard", "wait"),
    "stall_memory_dependency": _stall("long_scoreboard"),
    "stall_texture": _stall("tex_throttle"),
    "stall_sync": _stall("barrier", "membar"),
    "stall_constant_memory_dependency": _stall("imc_miss"),
    "stall_pipe_busy": _stall("math_pipe_throttle", "mio_throttle"),
    "stall_memory_throttle": _stall("drain", "lg_throttle"),
    "stall_sleeping": _stall("sleeping"),
    "stall_branch_resolving": _stall("branch_resolving"),
    "stall_gmma": _stall("gmma"),
    "memory_fence": _stall("membar"),
    "math_throttle": _stall("math_pipe_throttle"),
    "mio_throttle": _stall("mio_throttle"),
    "constant_serialization": _Carrier("the reads of indexed constants", _RUNS, ("LDC",)),
}
"""By the id of a cause. Causes that no single instruction has (occupancy, waves) are not here."""


def carrying_line(
    term: str, code: Mapping[str, pd.DataFrame], launches: Mapping[str, int] | None = None
) -> Line | None:
    """Return what carries most of a cause; None where nothing is counted, or nothing stands out.

    `term` is the id of the cause, `code` the instructions of kernels
    (`perfml.readers.ncu.instructions`), and `launches` how often each kernel was launched, once by
    default.
    """
    # lanes are idle all along a branch that not all take: the branch is where to look
    first = (_BRANCHES,) if term == "active_threads_per_warp" else ()
    carriers = (*first, _CARRIERS[term]) if term in _CARRIERS and code else ()
    lines = (_largest(term, carrier, code, launches or {}) for carrier in carriers)
    return next((line for line in lines if line is not None), None)


def added_operations(
    code: Mapping[str, pd.DataFrame],
    launches: Mapping[str, int],
    other: Mapping[str, pd.DataFrame],
    others: Mapping[str, int],
) -> list[Line]:
    """Return what the instructions are that one version executes more often, the most first.

    They are told apart by operation, since lines of two versions do not answer to each other; a
    line of it is that which executes most of the operation. `other` is the version that executes
    fewer; `launches` and `others` are how often each kernel was launched.
    """
    runs = [_by_operation(*side) for side in ((code, launches), (other, others))]
    added = runs[0].sub(runs[1], fill_value=0.0).clip(lower=0.0)
    shares = (added / added.sum()).nlargest(_OPERATIONS)
    found = []
    for operation, share in shares[shares >= _LEAST].items():
        carrier = _Carrier("the additional instructions", _RUNS, (str(operation),))
        line = _largest("instructions", carrier, code, launches, least=0.0)
        alike = sum((table["sass"].map(opcode) == operation).sum() for table in code.values())
        if line is not None:
            found.append(replace(line, share=float(share), alike=int(alike)))
    return found


def _by_operation(
    code: Mapping[str, pd.DataFrame], launches: Mapping[str, int]
) -> pd.Series[float]:
    """Return how often each operation is executed."""
    runs = [
        pd.Series(_RUNS(table) * launches.get(kernel, 1), table["sass"].map(opcode))
        for kernel, table in code.items()
    ]
    return pd.concat(runs).groupby(level=0).sum()


def _largest(
    term: str,
    carrier: _Carrier,
    code: Mapping[str, pd.DataFrame],
    launches: Mapping[str, int],
    least: float = _LEAST,
) -> Line | None:
    waits = {kernel: _waits(table, carrier) for kernel, table in code.items()}
    rows = pd.concat(
        [
            own_places(table).assign(kernel=kernel, part=waits[kernel][0] * launches.get(kernel, 1))
            for kernel, table in code.items()
        ],
        ignore_index=True,
    )
    whole = float(rows["part"].sum())
    if whole <= 0:
        return None
    alike = rows[rows["part"] > 0].groupby(["kernel", _place(rows)])["part"]
    sums = alike.transform("sum")
    if not sums.max() >= least * whole:
        return None
    row = int(rows["part"].where(sums == sums.max(), -1.0).to_numpy().argmax())
    first = rows.iloc[row].to_dict()
    kernel, offset = str(first["kernel"]), int(first["offset"])
    known = not pd.isna(first["line"])
    return Line(
        term,
        kernel,
        offset,
        str(first["sass"]),
        share=float(sums.max() / whole),
        of=carrier.of,
        alike=int(alike.transform("size").loc[row]),
        file=str(first["file"]) if known else None,
        line=int(first["line"]) if known else None,
        called_at=str(first["called_at"]) if pd.notna(first["called_at"]) else None,
        waits_at=_sampled_at(code[kernel], offset, waits[kernel][1]),
    )


def _sampled_at(table: pd.DataFrame, offset: int, sampled: Array) -> str | None:
    """Say where most of an instruction's part was sampled; None where it was itself."""
    at = int(sampled[int((table["offset"] == offset).to_numpy().argmax())])
    if at < 0:
        return None
    line = table["line"].iloc[at]
    source = "" if pd.isna(line) else f", line {line:.0f}"
    return f"{table['sass'].iloc[at]} at {table['offset'].iloc[at]:#06x}{source}"


def _awaited(table: pd.DataFrame) -> Callable[[int, str], tuple[int, ...]]:
    """Return what tells the places that an instruction waits for: its code, else registers."""
    scoreboards = table.attrs.get(SCOREBOARDS)
    if scoreboards is None:
        code = Code(table["sass"].tolist())
        return lambda place, reason: () if (at := code.awaited(place, reason)) is None else (at,)
    offsets = table["offset"].tolist()
    places = {offset: place for place, offset in enumerate(offsets)}
    return lambda place, reason: tuple(
        places[offset] for offset in scoreboards.awaited(offsets[place], reason) if offset in places
    )


def _waits(table: pd.DataFrame, carrier: _Carrier) -> tuple[Array, Array]:
    """Return each instruction's part, and where most of it was sampled; -1 where it was itself.

    Samples of waiting are of what is waited for, where the code tells it.
    """
    own = np.full(len(table), -1)
    if not carrier.reasons:
        return carrier.weights(table), own
    awaited = _awaited(table)
    parts, most = np.zeros(len(table)), np.zeros(len(table))
    for reason in carrier.reasons:
        samples = np.maximum(_column(f"{STALLED}{reason}")(table), 0.0)
        for rank, place in enumerate(np.argsort(-samples, kind="stable")):
            if samples[place] <= 0:
                break
            found = awaited(int(place), reason) if rank < _MOST_SAMPLED else ()
            for at in found or (int(place),):
                parts[at] += samples[place] / (len(found) or 1)
                if samples[place] > most[at]:
                    most[at], own[at] = samples[place], place if found else -1
    return parts, own


def own_places(table: pd.DataFrame) -> pd.DataFrame:
    """Return instructions with the line that is a person's own, and what calls it."""
    if "callers" not in table:
        return table.assign(called_at=None)
    places = [
        own([] if pd.isna(line) else [Place(file, int(line)), *callers])
        for file, line, callers in zip(table["file"], table["line"], table["callers"], strict=True)
    ]
    found = {
        "file": [stack[0].file if stack else None for stack in places],
        "line": [stack[0].line if stack else math.nan for stack in places],
        "called_at": [
            f"{file_name(stack[1].file)}:{stack[1].line}" if len(stack) > 1 else None
            for stack in places
        ],
    }
    return table.assign(**pd.DataFrame(found, index=table.index))


def _place(rows: pd.DataFrame) -> pd.Series[str]:
    """Return what instructions that count as one have in common."""
    line = rows["file"].astype(str) + ":" + rows["line"].astype(str)
    base = rows["sass"].map(without_predicate).str.extract(_ACCESS)
    unrolled = base[0] + " " + base[1]
    single = rows["offset"].astype(str)
    return line.where(rows["line"].notna(), unrolled.fillna(single))


def with_lines(
    explanation: Explanation, baseline: Sequence[Report], target: Sequence[Report]
) -> Explanation:
    """Return an explanation whose layers name the instructions that carry their causes.

    `baseline` and `target` are the reports behind each side.
    """
    kernels = [
        {name for detail in explanation.details for name in _kernels(detail, side)}
        for side in SIDES
    ]
    code = code_of((baseline, kernels[0]), (target, kernels[1]))
    return with_lines_of(explanation, *code)


def with_lines_of(
    explanation: Explanation, before: Mapping[str, pd.DataFrame], after: Mapping[str, pd.DataFrame]
) -> Explanation:
    """Return the same from the instructions of each side's kernels."""
    details = []
    for detail in explanation.details:
        lines: list[Line | None] = []
        sides = [
            ({name: code[name] for name in count if name in code}, count)
            for side, code in zip(SIDES, (before, after), strict=True)
            for count in [_kernels(detail, side)]
        ]
        for total in sided_causes(detail.time, detail.causes)[0]:
            own, other = sides[:: -1 if total.log_ratio > 0 else 1]
            if total.term.id == "instructions" and own[0] and other[0]:
                lines += added_operations(*own, *other)
            else:
                lines.append(carrying_line(total.term.id, *own))
        details.append(replace(detail, lines=tuple(line for line in lines if line is not None)))
    return replace(explanation, details=tuple(details))


def _kernels(detail: LayerDiff, side: str) -> Counter[str]:
    """Return how often each kernel of a layer ran on one side."""
    launches = detail.launches
    if launches.empty:
        return Counter()
    return Counter(launches.loc[launches["side"].isin([side, "both"]), "kernel"].astype(str))


def advice_with_lines(
    advice: Advice, launches: pd.DataFrame | None, reports: Sequence[Report]
) -> Advice:
    """Return advice whose findings name the instruction that carries them, in their evidence.

    `launches` is the Kernels table behind it, `reports` are those that it was read from.
    """
    found = advice.of_layers
    if not reports or launches is None or not found:
        return advice
    names = {kernel_label(name, LABEL): name for name in launches["kernel"].dropna().astype(str)}
    wanted = {one.where.kernel: names.get(one.where.kernel, "") for one in found}
    (code,) = code_of((reports, set(filter(None, wanted.values()))))
    lined = []
    for one in found:
        kernel = wanted[one.where.kernel]
        term = next((rule for rule in one.rules if rule in _CARRIERS), None)
        line = carrying_line(term, {kernel: code[kernel]}) if term and kernel in code else None
        text = one.evidence if line is None else f"{one.evidence}; {line.sentence()}"
        lined.append(replace(one, evidence=text))
    return replace(advice, of_layers=tuple(lined))


_KERNELS, _LINES = 5, 5
"""The longest kernels, and the lines of each with most samples."""

_SHOWN_FROM = 0.02
"""A line with less of the kernel's samples is not shown."""

_ISSUING = "selected"
"""Nsight Compute's reason of a warp that issues, and so waits for nothing."""


@dataclass(frozen=True)
class SampledLine:
    """A line of the source, or an instruction of a kernel without ``-lineinfo``."""

    place: str  # ``kernels.cu:42``, or ``0x0120``
    share: float  # of the samples of its kernel
    stall: str  # why most of the sampled warps did not issue; empty where most did
    sass: str  # its instruction with most samples


def sampled_lines(
    kernels: pd.DataFrame, levels: Sequence[KernelLevels], reports: Sequence[Report]
) -> dict[str, tuple[SampledLine, ...]]:
    """Return the lines of the longest kernels by their label, most samples first.

    `kernels` is the table behind `levels`, `reports` are the files that it was read from.
    """
    names = {unit.label: unit.kernel for unit in kernel_units(kernels)[0]}
    wanted = {each.kernel: names[each.kernel] for each in levels[:_KERNELS] if each.kernel in names}
    if not reports or not wanted:
        return {}
    (code,) = code_of((list(reports), set(wanted.values())))
    found = {label: _lines(code[name]) for label, name in wanted.items() if name in code}
    return {label: lines for label, lines in found.items() if lines}


def _lines(table: pd.DataFrame) -> tuple[SampledLine, ...]:
    if SAMPLES not in table or not table[SAMPLES].sum() > 0:
        return ()
    rows = own_places(table)
    place = [
        f"{offset:#06x}" if pd.isna(line) else f"{file_name(str(file))}:{line:.0f}"
        for file, line, offset in zip(rows["file"], rows["line"], rows["offset"], strict=True)
    ]
    stalls = [name for name in rows.columns if name.startswith(STALLED)]
    sums = rows.groupby(place)[[SAMPLES, *stalls]].sum().nlargest(_LINES, SAMPLES)
    hottest = rows.assign(place=place).sort_values(SAMPLES, ascending=False, kind="stable")
    sass = hottest.drop_duplicates("place").set_index("place")["sass"]
    shares = sums[SAMPLES] / rows[SAMPLES].sum()
    reasons = sums[stalls].idxmax(axis=1) if stalls else pd.Series("", sums.index)
    found = zip(sums.index, shares, reasons, sass.reindex(sums.index), strict=True)
    return tuple(
        SampledLine(str(at), float(part), _stalled_by(str(reason)), str(code))
        for at, part, reason, code in found
        if part >= _SHOWN_FROM
    )


def _stalled_by(name: str) -> str:
    reason = name.removeprefix(STALLED)
    return "" if reason == _ISSUING else reason.replace("_", " ")
