"""Where in the program each kernel and copy was launched: its range or module, and its operator.

A launch belongs to the ranges that are open on its thread. Backward runs on a thread of autograd's
own: there the ranges of the main thread around that time hold, and the operator's sequence number
names the forward operator, so that backward belongs to the module that it is the backward of.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from perfml.account.recording import Activity, HostKind, HostSpan, Nesting, Recording
from perfml.account.steps import PROFILER_STEP, Steps, main_thread
from perfml.kernel_names import kernel_class, kernel_label

BACKWARD, RECOMPUTED = "backward", "recomputed"
NODE = "autograd::engine::evaluate_function: "
"""How the operators are called that run a node of the backward pass."""
_WRAPPERS = (
    *("Torch-Compiled Region", "CompiledF", "## Call", "AOTDispatcher", "TorchDynamo"),
    *("DistributedDataParallel.", "Pregraph bytecode", "torch::jit", "record_param_comms"),
)
"""Beginnings of operators that only hold others."""
_DIGEST = re.compile(r"(CompiledFxGraph) \w{16,}")
_PHASE = re.compile(r"\W*(\w+\.)?(forward|fwd)(_pass|_step)?\W*", re.IGNORECASE)
"""Ranges that name the forward pass itself, which no backward belongs to."""


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where an activity was launched.

    Attributes
    ----------
    time
        When its API call began, nanoseconds; without one, when it began on the device.
    call
        The API call; None where it is not in the trace.
    path
        Names of the ranges, modules or operators, outermost first.
    instance
        Tells apart ranges of one path.
    operator
        The outermost operator, of backward that of the forward; None outside every one.
    backward, recomputed
        Whether it runs a node of the backward pass, or a forward operator again within it.
    given
        The innermost operator around it whose operands were recorded; None without one.
    """

    time: int
    call: HostSpan | None
    path: tuple[str, ...]
    instance: object
    operator: str | None
    backward: bool = False
    recomputed: bool = False
    given: HostSpan | None = None


class Origins:
    """Finds where activities of a recording were launched."""

    def __init__(self, recording: Recording, steps: Steps) -> None:
        self.steps = steps
        self._main = main_thread(recording)
        self._ranges = Nesting(recording.spans(HostKind.RANGE, HostKind.MODULE))
        operators = recording.spans(HostKind.OPERATOR)
        self._operators = Nesting(operators)
        self.calls: dict[int | None, HostSpan] = {}
        for span in recording.spans(HostKind.CALL):
            if span.correlation is not None and span.correlation >= 0:
                self.calls.setdefault(span.correlation, span)
        nodes = [span for span in operators if _is_node(span)]
        self._autograd = {span.thread for span in nodes} - {self._main}
        forward = [span for span in operators if span.sequence is not None and not _is_node(span)]
        self._made = {(span.thread, span.sequence): span for span in forward}
        self._names = {span.name for span in operators if span.thread not in self._autograd}
        # nodes within nodes are those of what runs again in backward
        outer = Counter(
            span.forward_thread
            for thread in self._operators.threads
            for span in self._operators.outermost(thread)
            if span.forward_thread > 0
        )
        self._main_id = max(outer, key=lambda number: outer[number], default=0)

    def all(self, activities: Sequence[Activity]) -> list[Origin]:
        """Return the origin of each activity."""
        return [self.of(activity) for activity in activities]

    def of(self, activity: Activity) -> Origin:
        """Return where an activity was launched."""
        call = self.calls.get(activity.correlation)
        time, thread = (activity.start, None) if call is None else (call.start, call.thread)
        around = self.around(thread, time)
        operators = self._operators.around(thread, time)
        node = next((o for o in operators[::-1] if _is_node(o)), None)
        again = None if node is None else self.recomputed(operators)
        forward = None if node is None or again is not None else self._maker(node)
        if again is not None or node is None:
            operator = again.name if again is not None else _outermost(operators)
            names, instance = _names(around), around[-1:]
            names = (*names, RECOMPUTED) if again is not None and names else names
        else:
            operator = self._operator_of(forward, node)
            names, instance = self._backward(around, forward)
        backward = node is not None and again is None
        if all(span in self.steps.marks for span in instance) and operator is not None:
            kind = BACKWARD if backward else RECOMPUTED if again is not None else None
            names = (*_names(around), operator, *((kind,) if kind else ()))
            first = operators[0] if forward is None else forward
            instance = [first if first.kind is HostKind.OPERATOR else operators[0]]
        key: object = id(instance[-1]) if instance else None
        if replay_of(call):
            made = kernel_class(activity.name)
            layer = made.layer if made.id else kernel_label(activity.name)
            names, key = (*names, layer), (key, layer)
        given = next((o for o in operators[::-1] if any(o.operands)), None)
        return Origin(time, call, names, key, operator, backward, again is not None, given)

    def around(self, thread: int | None, time: int) -> list[HostSpan]:
        """Return the ranges and modules around a launch, outermost first."""
        own = self._ranges.around(thread, time)
        if thread is None or (thread != self._main and (thread in self._autograd or not own)):
            return [*self._ranges.around(self._main, time), *own]
        return own

    def recomputed(self, operators: Sequence[HostSpan]) -> HostSpan | None:
        """Return the operator of the forward pass that runs again within a node of backward."""
        node = max((at for at, each in enumerate(operators) if _is_node(each)), default=None)
        if node is None:
            return None
        again = operators[node + 1 :]
        return next((o for o in again if o.sequence is not None and o.name in self._names), None)

    def repeats_forward(self, operator: HostSpan) -> bool:
        """Return whether an operator of the forward pass runs again within backward."""
        if operator.thread not in self._autograd or operator.sequence is None:
            return False
        around = self._operators.around(operator.thread, operator.start)
        return self.recomputed(around) is operator

    def innermost(self, call: HostSpan) -> str:
        """Return the innermost operator around an API call; empty without one."""
        around = self._operators.around(call.thread, call.start)
        return around[-1].name if around else ""

    def _maker(self, node: HostSpan) -> HostSpan | None:
        """Return the operator of the forward pass that made a node of backward."""
        thread = self._main if node.forward_thread == self._main_id else node.thread
        return None if thread is None else self._made.get((thread, node.sequence))

    def _operator_of(self, forward: HostSpan | None, node: HostSpan) -> str:
        if forward is None:
            return node.name.removeprefix(NODE)
        around = self._operators.around(forward.thread, forward.start)
        inner = max((at for at, each in enumerate(around) if _is_node(each)), default=-1)
        return _outermost(around[inner + 1 :]) or forward.name

    def _backward(
        self, around: Sequence[HostSpan], forward: HostSpan | None
    ) -> tuple[tuple[str, ...], list[HostSpan]]:
        """Return the path of backward, and the range or module that it is the backward of."""
        there = [] if forward is None else self.around(forward.thread, forward.start)
        shared = 0
        while shared < min(len(around), len(there)) and around[shared] is there[shared]:
            shared += 1
        rest = there[shared:]
        if len(around) > shared:
            modules = [span for span in rest if not _PHASE.fullmatch(span.name)]
            return (*_names(around), *_names(modules)), [*around[-1:], *modules[-1:]][-1:]
        if rest:
            return (*_names(around), *_names(rest), BACKWARD), [rest[-1]]
        return _names(around), list(around[-1:])


def replay_of(call: HostSpan | None) -> int | None:
    """Return the number of the replay of a CUDA graph that a call starts; None for another call."""
    return call.correlation if call is not None and "GraphLaunch" in call.name else None


def _is_node(span: HostSpan) -> bool:
    return span.name.startswith(NODE) or span.forward_thread > 0


def _names(spans: Sequence[HostSpan]) -> tuple[str, ...]:
    return tuple(range_name(span.name) for span in spans)


def range_name(name: str) -> str:
    """Return the name of a range; that of a profiler's step numbers an iteration."""
    step = PROFILER_STEP.fullmatch(name)
    # torch.compile's graphs are called by a digest, which the next run need not share
    return f"step_{step.group(1)}" if step else _DIGEST.sub(r"\1", name)


def _outermost(operators: Sequence[HostSpan]) -> str | None:
    names = [span.name for span in operators]
    return next((name for name in names if not name.startswith(_WRAPPERS)), next(iter(names), None))


def numbered(instances: Sequence[object]) -> list[int]:
    """Return a number for each instance; equal ones have the same."""
    numbers: Mapping[object, int]
    numbers = {key: place for place, key in enumerate(dict.fromkeys(instances))}
    return [numbers[key] for key in instances]
