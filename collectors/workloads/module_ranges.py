"""Name the kernels of a PyTorch model by its modules: forward hooks open and close ranges.

Ranges never nest here: what a module launches itself before it calls a submodule is in the range
of its path (``layer1.0.conv1``), what it launches after a submodule is in ``PATH.after_CHILD``
(the addition of a residual block: ``layer1.0.after_bn2``). So every kernel of a forward pass is in
one range, and a kernel between two modules is seen as what it is.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from .backward_ranges import BackwardRanges, in_backward
from .compiled_ranges import listening
from .ranges import Ranges

if TYPE_CHECKING:
    import torch

    Hook = Callable[..., None]


class _Call(threading.local):
    """Where a thread is in the model: several may call it at once."""

    def __init__(self) -> None:
        self.current = ""
        self.calls: list[str] = []
        self.entered: Counter[str] = Counter()
        self.outer = ExitStack()


class ModuleRanges:
    """Ranges around the modules of a model, inside a ``with`` block.

    A module that is compiled (``torch.compile`` of it, or its own ``compile()``) is one graph:
    Python, and so a hook, no longer runs between the modules inside it. What inductor compiles
    inside the block opens their ranges (`compiled_ranges`); all else compiled gets one range.

    Parameters
    ----------
    model
        The model; its forward pass is an ordinary Python call.
    ranges
        Records the ranges; may be replaced between two calls of the model.
    numbered
        Give a range that is entered again in one call a name of its own, ``relu#2``. Without it
        the profile's reader counts.
    around
        Returns what is entered before each call of the whole model and left after it.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        ranges: Ranges,
        *,
        numbered: bool = False,
        around: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        self.ranges = ranges
        self._here = _Call()
        self.opened: dict[str, None] = {}
        self.operators: dict[str, str] = {}
        """Of a range in a compiled module its first kernel's operator, such as ``addmm``."""
        self._model, self._numbered, self._around = model, numbered, around
        self._divided: set[str] = set()
        self._backward = BackwardRanges(lambda: self.ranges)
        self._installed = ExitStack()
        self._modules = tuple(_modules(model))
        self.compiled = tuple(
            path or _root_name(model) for path, module in self._modules if is_compiled(module)
        )

    @property
    def inductor(self) -> bool:
        """Whether torch.compile compiled anything."""
        modules = (module for _, module in self._modules)
        return any(
            hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
            for module in modules
        )

    @property
    def current(self) -> str:
        """The range that is open on this thread; empty outside the model."""
        return self._here.current

    @property
    def _calls(self) -> list[str]:
        return self._here.calls

    @property
    def _entered(self) -> Counter[str]:
        return self._here.entered

    @property
    def _outer(self) -> ExitStack:
        return self._here.outer

    def modules(self) -> tuple[tuple[str, torch.nn.Module], ...]:
        """Return the modules that get ranges, with their paths; the model's own path is empty."""
        return self._modules

    def __enter__(self) -> ModuleRanges:
        if self.inductor:
            self._installed.enter_context(listening(self._inside))
        self._installed.callback(self._backward.stop)
        self._installed.enter_context(_optimizer_steps(self))
        for path, module in self._modules:
            if refuses_hooks(module):
                self._wrap_call(path, module)
            else:
                self._hook(path, module)
        return self

    @property
    def closed(self) -> tuple[str, ...]:
        """Return the compiled modules in which no range was opened: each is one layer."""
        return tuple(path for path in self.compiled if path not in self._divided)

    def __exit__(self, *_: object) -> None:
        self._installed.close()

    def _hook(self, path: str, module: torch.nn.Module) -> None:
        def before(_: Any, *inputs: Any) -> None:
            self._enter(path, inputs)

        def after(_: Any, __: Any, output: Any) -> None:
            self._leave(path, output)

        handles = (
            module.register_forward_pre_hook(before, with_kwargs=True),
            # also when the module raises: a range that stays open would swallow all that follows
            module.register_forward_hook(after, always_call=True),
        )
        for handle in handles:
            self._installed.callback(handle.remove)

    def _wrap_call(self, path: str, module: Any) -> None:
        """Open the range outside the call; torch calls this attribute where it is set."""
        compiled = module._compiled_call_impl
        wrapped = compiled or module._call_impl

        def call(*args: Any, **keywords: Any) -> Any:
            self._enter(path, (args, keywords))
            output = None
            try:
                output = wrapped(*args, **keywords)
            finally:
                self._leave(path, output)
            return output

        module._compiled_call_impl = call
        self._installed.callback(setattr, module, "_compiled_call_impl", compiled)

    def _enter(self, path: str, inputs: Any) -> None:
        if self._calls:
            self._backward.made(inputs, self.current, self._calls[-1])
            self.ranges.pop()
        elif in_backward():
            self._backward.leave()
        else:
            self._backward.known(inputs)
            self._entered.clear()
            if self._around is not None:
                self._outer.enter_context(self._around())
        self._calls.append(path)
        self._open(path or _root_name(self._model))

    def _leave(self, path: str, output: Any) -> None:
        self._backward.made(output, self.current, path)
        self.ranges.pop()
        self._calls.pop()
        if self._calls:
            caller = self._calls[-1]
            child = path.removeprefix(f"{caller}.") if caller else path
            self._open(f"{caller or _root_name(self._model)}.after_{child}")
        else:
            self._here.current = ""
            self._outer.close()

    def _inside(self, path: str, operator: str) -> None:
        """Go on in a module of the compiled one that runs; an empty path is outside all of them."""
        if not self._calls:
            self._backward.inside(path)
            return
        caller = self._calls[-1]
        self._divided.add(caller or _root_name(self._model))
        name = ".".join(filter(None, (caller, path))) or _root_name(self._model)
        if operator:
            self.operators.setdefault(name, operator)
        if self.current.partition("#")[0] != name:
            self.ranges.pop()
            self._open(name)

    def _open(self, name: str) -> None:
        self._entered[name] += 1
        if self._numbered and self._entered[name] > 1:
            name = f"{name}#{self._entered[name]}"
        self._here.current = name
        self.opened[name] = None
        self.ranges.push(name)


@contextmanager
def _optimizer_steps(model: ModuleRanges) -> Iterator[None]:
    """Put every optimizer's step into the range ``optimizer`` while a ``with`` block runs."""
    from torch.optim import optimizer

    steps = ExitStack()

    def before(*_: Any) -> None:
        steps.close()  # of a step that raised
        steps.enter_context(model.ranges.range("optimizer"))

    handles = (
        optimizer.register_optimizer_step_pre_hook(before),
        optimizer.register_optimizer_step_post_hook(lambda *_: steps.close()),
    )
    try:
        yield
    finally:
        steps.close()
        for handle in handles:
            handle.remove()


def refuses_hooks(module: Any) -> bool:
    """Return whether a module would trace a hook (compiled in place) or has none (TorchScript)."""
    import torch

    compiled = getattr(module, "_compiled_call_impl", None) is not None
    return compiled or isinstance(module, torch.jit.ScriptModule)


def is_compiled(module: Any) -> bool:
    """Return whether a module runs as a compiled graph: by torch.compile or by TorchScript."""
    return refuses_hooks(module) or hasattr(module, "_orig_mod")


def _root_name(model: Any) -> str:
    return type(getattr(model, "_orig_mod", model)).__name__


def _modules(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield each module once with its first path, and nothing inside a compiled one."""
    seen: set[int] = set()
    waiting = [("", model)]
    while waiting:
        path, module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield path, module
        if not is_compiled(module):
            children = [
                (f"{path}.{name}" if path else name, child)
                for name, child in module.named_children()
            ]
            waiting += reversed(children)
