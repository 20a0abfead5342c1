"""Counts by opcode in place of counters that a report does not hold.

``ncu --set full`` collects how many threads executed each opcode, and not the counters of kinds of
instructions (integers, conversions, exchange between lanes), which are sums over opcodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfml.metrics.expressions import Array

THREADS = "sass__thread_inst_executed_true_per_opcode"
"""Instructions of threads whose predicate is true, by opcode."""

_COUNTER = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"

_INTEGERS = (
    "BMSK", "BREV", "FLO", "IABS", "IADD", "IADD3", "IADD32I", "IDP", "IDP4A", "IMAD", "IMNMX",
    "IMUL", "IMUL32I", "ISCADD", "ISCADD32I", "ISETP", "LEA", "LOP", "LOP3", "LOP32I", "POPC",
    "SHF", "SHL", "SHR", "VABSDIFF", "VABSDIFF4", "VIADD", "VIADDMNMX", "VIMNMX",
)  # fmt: skip

_KINDS: Mapping[str, tuple[str, ...]] = {
    "integer": _INTEGERS,
    "conversion": ("F2F", "F2FP", "F2I", "F2IP", "I2F", "I2FP", "I2I", "I2IP", "FRND"),
    "inter_thread_communication": ("SHFL", "VOTE", "MATCH", "REDUX"),
    "fadd": ("FADD", "FADD32I"),
    "fmul": ("FMUL", "FMUL32I"),
    "ffma": ("FFMA", "FFMA32I"),
    "dadd": ("DADD",),
    "dmul": ("DMUL",),
    "dfma": ("DFMA",),
}
"""Opcodes of a kind of instruction: CUDA Binary Utilities, "Instruction Set Reference", tables of
integer, conversion, warp-level and floating-point instructions of Volta to Blackwell."""


def counted_by_opcode(launches: Sequence[Any], held: Mapping[str, Any]) -> dict[str, Array]:
    """Return counters of kinds of instructions, as sums over opcodes.

    Counters that the report `held` by itself stay as they are. There is one number a launch, NaN
    for a launch without counts by opcode; nothing where no launch has any.
    """
    wanted = {_COUNTER.format(kind): codes for kind, codes in _KINDS.items()}
    wanted = {name: codes for name, codes in wanted.items() if name not in held}
    found = {name: np.full(len(launches), np.nan) for name in wanted}
    for row, launch in enumerate(launches):
        counts = _counts(launch)
        if counts is None:
            continue
        for name, codes in wanted.items():
            found[name][row] = sum(count for code, count in counts.items() if code in codes)
    return {name: column for name, column in found.items() if not np.isnan(column).all()}


def _counts(launch: Any) -> dict[str, float] | None:
    """Return instructions of threads by opcode; None where they were not collected."""
    metric = launch.metric_by_name(THREADS)
    if metric is None or not metric.has_correlation_ids():
        return None
    codes = metric.correlation_ids()
    return {codes.as_string(at): metric.as_double(at) for at in range(metric.num_instances())}
