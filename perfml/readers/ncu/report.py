"""Read ``.ncu-rep`` reports through NVIDIA's ``ncu_report`` package (extra ``ncu``).

The report keeps base units, every NVTX range and every range of the profile, so it is the most
exact source; the package is proprietary and therefore never a hard dependency.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import InputError
from perfml.metrics.expressions import Array
from perfml.readers.frame import text_column
from perfml.readers.ncu.findings import Rule, rules_frame
from perfml.readers.ncu.launches import (
    BLOCK,
    CAPABILITY,
    DEVICE_NAME,
    DURATIONS,
    GRID,
    Launches,
    measured_as_one,
    needed,
    numbers_of,
    shape_of,
    streams_of,
    to_base,
    to_kernels,
)
from perfml.readers.source import ReadOptions, Source
from perfml.tables import Kernels
from perfml.util.installed import import_extra
from perfml.util.ranges import LIBRARIES

NAME = "ncu-report"

_SIGNATURE = b"NVR\x00"
_BUILD = b" (build "
_VERSION = re.compile(rb"(20\d\d\.\d+\.\d+)(?:\.\d+)*$")

DEMANGLED = 1
"""Base of a kernel's name: with its template arguments, and more of them than the CSV shows."""

MANGLED = 2
"""Base of a kernel's name: as the linker knows it."""

EXECUTED = "inst_executed"
"""Counter that every report with counters of single instructions has."""

# Numbers of the package's enumerations, which it gives as plain integers.
_KERNEL = 0
_STRING, _NO_NUMBER = 2, frozenset({0, 1, 2})
_SPARE = frozenset(DURATIONS[1:])
_KINDS = {0: "none", 1: "ok", 2: "optimization", 3: "warning", 4: "error"}
_SCOPES = {1: "local", 2: "global"}


THREADS = "sass__thread_inst_executed_true_per_opcode"
"""Instructions of threads whose predicate is true, by opcode."""

_COUNTER = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"

_INTEGERS = (
    "BMSK", "BREV", "FLO", "IABS", "IADD", "IADD3", "IADD32I", "IDP", "IDP4A", "IMAD", "IMNMX",
    "IMUL", "IMUL32I", "ISCADD", "ISCADD32I", "ISETP", "LEA", "LOP", "LOP3", "LOP32I", "POPC",
    "SHF", "SHL", "SHR", "VABSDIFF", "VABSDIFF4", "VIADD", "VIADDMNMX", "VIMNMX",
)  # fmt: skip

_OPCODES: Mapping[str, tuple[str, ...]] = {
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


def recognises(source: Source) -> bool:
    """Tell whether the file begins as Nsight Compute's reports do."""
    return source.head.startswith(_SIGNATURE)


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read a report: all launches of all its ranges.

    Raises `MissingExtraError` if the package ``ncu-report`` is not installed, `InputError` if the
    report is damaged, or holds no kernels.
    """
    options = options or ReadOptions()
    with opened(source) as launches:
        found = _collect(launches, options)
    found.facts["tool_version"] = _version(source)
    return to_kernels(found, source, options, NAME)


def rules(source: Source) -> pd.DataFrame:
    """Return every result of Nsight Compute's rules (see `_ncu_rules.Rule` for the columns).

    Raises `MissingExtraError` and `InputError` as `read` does.
    """
    with opened(source) as launches:
        return rules_frame(_rules_in(launches))


@contextmanager
def opened(source: Source) -> Iterator[list[Any]]:
    """Give the results of a report, in order; they live as long as the report is open."""
    ncu_report = import_extra("ncu_report", "ncu", "reading .ncu-rep files", "ncu-report")
    with source.local(".ncu-rep") as path:
        try:
            report = ncu_report.load_report(str(path))
            # A damaged report opens, and only its ranges or results are missing.
            results = [
                report.range_by_idx(place).action_by_idx(index)
                for place in range(report.num_ranges())
                for index in range(report.range_by_idx(place).num_actions())
            ]
            named = all(result.name() for result in results)
        except (AttributeError, TypeError, ValueError, RuntimeError, OSError) as error:
            raise _damaged(source) from error
        if not results:
            raise _damaged(source, "no results of kernels")
        if not named:
            raise _damaged(source, "a result without a name")
        try:
            yield results
        except (AttributeError, TypeError, RuntimeError) as error:
            raise _damaged(source) from error


def _damaged(source: Source, found: str = "parts of it cannot be parsed") -> InputError:
    msg = "no readable Nsight Compute report"
    cure = "Profile again, or copy the report again; it may be cut, or hold no kernels."
    return InputError(msg, where=str(source.path), found=found, cure=cure)


def _version(source: Source) -> str | None:
    """Return the version of ncu that wrote a report, which the package does not tell."""
    # The file is searched for a fixed text, which is far faster than for a pattern.
    data = source.data
    at = data.find(_BUILD)
    match = _VERSION.search(data[max(0, at - 32) : at]) if at >= 0 else None
    return match.group(1).decode() if match is not None else None


def _collect(launches: Sequence[Any], options: ReadOptions) -> Launches:
    counters, devices = _counters(launches, options)
    counters |= counted_by_opcode(launches, counters)
    warnings: list[str] = []
    others = sum(launch.workload_type() != _KERNEL for launch in launches)
    if others:
        warnings.append(measured_as_one(others))
    rows = len(launches)
    identity = {
        "kernel": _texts([launch.name(DEMANGLED) for launch in launches]),
        "grid": shape_of(counters, GRID, rows),
        "block": shape_of(counters, BLOCK, rows),
        "device": _texts(devices),
        "compute_capability": numbers_of(counters, CAPABILITY, rows, ".".join),
        **streams_of([_stream(launch) for launch in launches]),
    }
    ranges = [_ranges(launch) for launch in launches]
    facts: dict[str, Any] = {"instructions": any(map(has_instructions, launches))}
    said = tuple(_rules_in(launches))
    return Launches(identity, counters, ranges, facts, warnings, said)


def _stream(launch: Any) -> str:
    """Return the stream of a launch; empty where the report does not say."""
    stream = launch.metric_by_name("launch__stream_id")
    return "" if stream is None else str(stream.as_uint64())


def has_instructions(launch: Any) -> bool:
    """Tell whether a result has counters of single instructions."""
    counted = launch.metric_by_name(EXECUTED)
    return counted is not None and bool(counted.has_correlation_ids())


def _counters(
    launches: Sequence[Any], options: ReadOptions
) -> tuple[dict[str, Any], list[str | None]]:
    """Return metrics in base units, and device names."""
    wanted = needed()
    columns: dict[str, Array] = {}
    texts: dict[str, list[str | None]] = {}
    factors: dict[str, float] = {}
    devices: list[str | None] = []
    held: tuple[str, ...] = ()
    chosen: list[tuple[str, Array | None]] = []
    for row, launch in enumerate(launches):
        names = launch.metric_names()
        if names != held or row == 1:
            # the second launch, because the first one has made the columns
            held = names
            spare = _SPARE if DURATIONS[0] in names else frozenset()
            chosen = [
                (name, columns.get(name))
                for name in names
                if options.raw or (name in wanted and name not in spare)
            ]
        by_name = launch.metric_by_name
        for name, column in chosen:
            metric = by_name(name)
            if metric is None:
                continue
            if column is None:
                column = columns.get(name)
            if column is None:
                if not metric.has_value():
                    continue
                kind = metric.kind()
                if kind in _NO_NUMBER:
                    if kind == _STRING and options.raw:
                        texts.setdefault(name, [None] * len(launches))[row] = metric.as_string()
                    continue
                column = columns[name] = np.full(len(launches), np.nan)
                factors[name] = to_base(metric.unit())[0]
            number = metric.as_double()
            # A metric without a value gives 0 too, so only a 0 has to be looked into.
            if number or metric.has_value():
                column[row] = number
        device = launch.metric_by_name(DEVICE_NAME)
        devices.append(device.as_string() if device is not None else None)
    scaled = {
        name: column if factors[name] == 1.0 else column * factors[name]
        for name, column in columns.items()
    }
    words = {name: _texts(cells) for name, cells in texts.items() if name not in columns}
    return {**scaled, **words}, devices


def _texts(cells: Sequence[str | None]) -> pd.Series[str]:
    return text_column(np.arange(len(cells)), cells)


def _ranges(launch: Any) -> tuple[str, ...]:
    """Return the NVTX ranges around a launch: start/end ranges outermost, then the stack."""
    state = launch.nvtx_state()
    if state is None:
        return ()
    known = [state.domain_by_id(number) for number in state.domains()]
    # what libraries mark is no layer, unless nothing else is marked
    domains = [domain for domain in known if domain.name() not in LIBRARIES]
    if not any(domain.push_pop_ranges() for domain in domains):
        domains = known
    outer = [name for domain in domains for name in domain.start_end_ranges()]
    inner = [name for domain in domains for name in domain.push_pop_ranges()]
    return (*outer, *inner)


def _rules_in(launches: Sequence[Any]) -> Iterator[Rule]:
    for index, launch in enumerate(launches):
        kernel = ""
        for rule_result in launch.rule_results():
            kernel = kernel or launch.name(DEMANGLED)
            message = rule_result.rule_message() if rule_result.has_rule_message() else {}
            estimate = (
                rule_result.speedup_estimation() if rule_result.has_speedup_estimation() else {}
            )
            yield Rule(
                index,
                kernel,
                rule_result.rule_identifier(),
                rule_result.section_identifier(),
                _KINDS.get(int(message.get("type", 0)), "none"),
                str(message.get("message", "")),
                float(estimate["speedup"]) if "speedup" in estimate else None,
                _SCOPES.get(int(estimate.get("type", 0))),
            )


def counted_by_opcode(launches: Sequence[Any], held: Mapping[str, Any]) -> dict[str, Array]:
    """Return counters of kinds of instructions, as sums over opcodes.

    ``ncu --set full`` collects how many threads executed each opcode, and not the counters of kinds
    of instructions (integers, conversions, exchange between lanes), which are such sums. Counters
    that the report `held` by itself stay as they are. There is one number a launch, NaN for a
    launch without counts by opcode; nothing where no launch has any.
    """
    wanted = {_COUNTER.format(kind): codes for kind, codes in _OPCODES.items()}
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
