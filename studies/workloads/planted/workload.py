"""The workload: backends are levels of the knobs, layers are families at their sizes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collectors.workloads.base import Options, Session, check_options, read_settings
from collectors.workloads.cuda import Kernel, Module, Source, build
from collectors.workloads.session import KernelSession, Layer
from perfml.errors import InputError

from .definition import (
    LEVELS,
    LOG_COUNT,
    SIZES,
    TRUTH_FILE,
    WIDE_VECTORS,
    Call,
    Family,
    Plan,
    truth_document,
)
from .families import BY_NAME, FAMILIES
from .plans import macros, plan, source_macros
from .reference import expected

_HERE = Path(__file__).parent
_HOPPER = 9
_DEFAULTS = {"families": "all", "sizes": str(len(SIZES))}
LIMIT = 1e-3
"""Largest relative error. The chains of up to 77,000 dependent fp32 multiply-adds need most of it:
their rounding errors add up."""
FORGETFUL = (
    "dependency", "divergence", "doubles", "code_footprint", "advance", "waves", "local_array",
    "spilled", "constant_table", "fences", "doubles_or_none", "exchanges", "uneven",
)  # fmt: skip
"""Kernels whose chains add so much that other inputs from -1 to 0 change their output by 6e-5 to
5e-2 only, part of it less than the limit. They are linear in their inputs, so large ones show."""
ENLARGED = 4096.0


def chosen_families(options: Options) -> tuple[tuple[Family, ...], int]:
    """Return the families and the number of sizes that the settings ask for.

    Raises
    ------
    InputError
        If there is no such family, or no such number of sizes.
    """
    settings = read_settings(options, _DEFAULTS)
    sizes = settings["sizes"]
    if not sizes.isdigit() or not 1 <= int(sizes) <= len(SIZES):
        what = f"sizes is a number from 1 to {len(SIZES)}"
        raise InputError(what, where="--set sizes", found=sizes)
    if settings["families"] == "all":
        return FAMILIES, int(sizes)
    names = [name.strip() for name in settings["families"].split(",")]
    for name in names:
        if name not in BY_NAME:
            what, cure = "there is no such family", f"There are: {', '.join(BY_NAME)}."
            raise InputError(what, where="--set families", found=name, cure=cure)
    return tuple(BY_NAME[name] for name in dict.fromkeys(names)), int(sizes)


class _Planted:
    """The registry's entry."""

    name = "planted"
    summary = "families of kernels, each with one planted cause, at four levels"
    check_first = True

    def backends(self) -> tuple[str, ...]:
        return LEVELS

    def default_backends(self) -> tuple[str, ...]:
        return LEVELS

    def precisions(self, backend: str) -> tuple[str, ...]:
        if backend not in LEVELS:
            what, cure = f"{self.name} has no level of this name", f"Levels: {', '.join(LEVELS)}."
            raise InputError(what, where="--backend", found=backend, cure=cure)
        return ("fp32",)

    def session(self, options: Options) -> Session:
        check_options(self, options)
        import torch

        families = chosen_families(options)[0]
        able = torch.cuda.get_device_properties(0)
        families = _for_device(families, able.major >= _HOPPER)
        modules = build(sources(LEVELS.index(options.backend), families))
        return Bench(options, modules, "cuda", able.multi_processor_count, families).session()


def sources(level: int, families: tuple[Family, ...] = FAMILIES) -> dict[str, Source]:
    """Return what to compile for some families at a level."""
    used = {plan(family, level, 0, 1).calls[0].source for family in families}
    return {
        name: Source(_HERE / f"{name}.cu", given)
        for name, given in source_macros(level).items()
        if name in used
    }


def _for_device(families: tuple[Family, ...], has_bulk_copies: bool) -> tuple[Family, ...]:
    """Return the families that the GPU can run."""
    found = tuple(family for family in families if has_bulk_copies or not family.hopper)
    if not found:
        what = "bulk copies (cp.async.bulk) need a GPU of compute capability 9.0 or more"
        raise InputError(what, where="--set families", cure="Choose other families.")
    return found


class Bench:
    """Kernels and tensors of a session; the layers share them, since they run one by one.

    `modules` are the compiled `sources`; `device` is where the tensors live.
    """

    def __init__(
        self,
        options: Options,
        modules: Mapping[str, Module],
        device: str,
        multiprocessors: int,
        families: tuple[Family, ...] | None = None,
    ) -> None:
        import torch

        self.level = LEVELS.index(options.backend)
        self.options, self.multiprocessors = options, multiprocessors
        chosen, self.sizes = chosen_families(options)
        self.families = chosen if families is None else families
        self.compiler = next(iter(modules.values())).compiler
        self._modules = modules
        self._kernels: dict[str, Kernel] = {}
        self._wide: Any = None
        self.device = torch.device(device)
        self.inputs = torch.empty(1 << LOG_COUNT, device=self.device)
        self.outputs = torch.empty(1 << LOG_COUNT, device=self.device)
        self.tables: dict[int, tuple[Any, Any]] = {}

    def fill(self, seed: int) -> None:
        """Draw new inputs, and new orders of the rows of every table there is."""
        import torch

        generator = torch.Generator(self.device).manual_seed(seed)
        self.inputs.uniform_(-1.0, 0.0, generator=generator)
        if self._wide is not None:
            self._wide.uniform_(-1.0, 0.0, generator=generator)
        for rows, (order, table) in self.tables.items():
            order.copy_(torch.randperm(rows, device=self.device, generator=generator))
            table.copy_(order.to(torch.int32).repeat_interleave(32))

    def enlarge(self) -> None:
        """Make the inputs outweigh what the chains add to them."""
        self.inputs.mul_(ENLARGED)

    def table(self, rows: int) -> tuple[Any, Any]:
        """Return the order of a table's rows, and the table itself."""
        import torch

        if rows not in self.tables:
            order = torch.empty(rows, dtype=torch.int64, device=self.device)
            table = torch.empty(rows * 32, dtype=torch.int32, device=self.device)
            self.tables[rows] = order, table
        return self.tables[rows]

    def wide(self) -> Any:
        """Return the input that L2 cannot hold; it is as large as the GPU is."""
        import torch

        if self._wide is None:
            threads = 2048 * self.multiprocessors
            self._wide = torch.empty(WIDE_VECTORS * threads * 4, device=self.device)
        return self._wide

    def kernel(self, call: Call) -> Kernel:
        """Return the kernel of a launch."""
        if call.kernel not in self._kernels:
            self._kernels[call.kernel] = self._modules[call.source].kernel(call.kernel)
        return self._kernels[call.kernel]

    def pause(self, microseconds: float) -> None:
        """Wait for the device, and then as long as told; 0 does neither.

        Without the first wait the launches of earlier layers, which the device has yet to run,
        would hide the second.
        """
        import torch

        if microseconds > 0:
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            wait(microseconds)

    def layer(self, family: Family, size: int) -> Layer:
        """Return one family at one size."""
        import torch

        planned = plan(family, self.level, size, self.multiprocessors)
        tensors = {"in": self.inputs, "out": self.outputs}
        if planned.rows:
            tensors["rows"], tensors["next"] = self.table(planned.rows)
        if "wide" in planned.calls[0].arguments:
            tensors["wide"] = self.wide()
        calls = [_ready(self.kernel(call), call, tensors) for call in planned.calls]

        def launch() -> None:
            for kernel, call, arguments in calls:
                self.pause(call.pause_us)
                kernel(call.grid, call.block, *arguments, shared=call.shared)

        def reference() -> dict[str, Any]:
            return {"out": expected(planned, macros(self.level), tensors)}

        outputs = {"out": torch.narrow(self.outputs, 0, 0, planned.outputs)}
        return Layer(
            family.layer(size),
            launch,
            outputs,
            reference,
            LIMIT,
            self.fill,
            _about(family, planned),
            {"large inputs": self.enlarge} if planned.calls[0].kernel in FORGETFUL else {},
        )

    def session(self) -> KernelSession:
        """Return the session."""
        layers = [
            self.layer(family, size) for family in self.families for size in range(self.sizes)
        ]
        self.fill(self.options.seed)
        truth = truth_document(self.level, self.families)
        settings = {
            "compiler": self.compiler,
            "macros": macros(self.level),
            "multiprocessors": self.multiprocessors,
            "truth": truth,
            "resources": {
                name: vars(kernel.resources()) for name, kernel in sorted(self._kernels.items())
            },
        }
        return KernelSession(layers, settings, files={TRUTH_FILE: truth}, seed=self.options.seed)


def wait(microseconds: float) -> None:
    """Keep the host busy; to sleep would take longer than the pauses are."""
    end = time.perf_counter_ns() + round(1000 * microseconds)
    while time.perf_counter_ns() < end:
        pass


def _ready(
    kernel: Kernel, call: Call, tensors: dict[str, Any]
) -> tuple[Kernel, Call, tuple[Any, ...]]:
    arguments = [tensors[each] if isinstance(each, str) else each for each in call.arguments]
    return kernel, call, tuple(arguments)


def _about(family: Family, planned: Plan) -> dict[str, Any]:
    return {
        "family": family.name,
        "kernel": planned.calls[0].kernel,
        "launches": len(planned.calls),
        "grid": planned.calls[0].grid,
        "block": planned.calls[0].block,
        "rounds": planned.rounds,
    }


WORKLOAD = _Planted()
