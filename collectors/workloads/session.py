"""A session made of layers that launch CUDA kernels: ranges, poisoned outputs, checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from collectors.workloads.base import CheckRow
from perfml.errors import PerfmlError

from .ranges import Ranges


@dataclass(frozen=True)
class Layer:
    """One problem: what is launched inside its range, and what has to come out."""

    name: str  # of the range; letters, digits and `_` (`n2048_d64`)
    launch: Callable[[], None]  # runs it once, on torch's current stream, into `outputs`
    # Name to the tensor that `launch` writes. Filled with NaN before a check, so that what is not
    # written is seen.
    outputs: Mapping[str, Any]
    # Returns the outputs in higher precision, from the inputs as they are when it is called
    reference: Callable[[], Mapping[str, Any]]
    limit: float  # largest `|output - reference| / |reference|` (norms over the tensor) that passes
    # Fills the inputs with new random values from a seed; called before a check
    renew: Callable[[int], None] | None = None
    # JSON values for `run.json`, such as `flops, input_bytes, output_bytes`
    about: Mapping[str, Any] = field(default_factory=dict)
    # What is checked beside the inputs as they are drawn: name to a change of them, made right
    # after `renew`, to values that random ones hardly ever are
    changes: Mapping[str, Callable[[], None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.changes and self.renew is None:
            msg = "inputs that nothing renews would stay changed after a check"
            raise PerfmlError(msg, where=self.name, found=", ".join(self.changes))


class KernelSession:
    """Layers run one after another, each in its range.

    `files` are JSON documents by name, kept with the run beside ``run.json``. The inputs were drawn
    from `seed`; the check's are drawn from ``seed + 1`` on, so they are not those of the warm-up.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        settings: Mapping[str, Any],
        *,
        files: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        self._layers, self._settings, self._seed = tuple(layers), dict(settings), seed
        self._files = dict(files or {})
        names = [layer.name for layer in layers]
        if not names or len(set(names)) < len(names):
            msg = "a session has layers of different names"
            raise PerfmlError(msg, found=", ".join(names)[:200])

    def layer_names(self) -> tuple[str, ...]:
        """Names of all ranges that :meth:`run` opens, in order."""
        return tuple(layer.name for layer in self._layers)

    def describe(self) -> dict[str, Any]:
        """Everything about the layers and the settings, as JSON values."""
        layers = [{"layer": layer.name, **layer.about} for layer in self._layers]
        return {"settings": self._settings, "layers": layers}

    def files(self) -> dict[str, Any]:
        """Documents to keep with the run."""
        return dict(self._files)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Run without gradients."""
        import torch

        with torch.no_grad():
            yield

    def run(self, ranges: Ranges) -> None:
        """Run every layer once in its range."""
        for layer in self._layers:
            with ranges.range(layer.name):
                layer.launch()

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        import torch

        torch.cuda.synchronize()

    def check(self) -> list[CheckRow]:
        """Run every layer on fresh inputs into poisoned outputs and compare with the reference.

        Changed inputs come first, the ones as they are drawn last. What runs afterwards finds the
        session's own inputs again, and the memory of the references free.
        """
        import torch

        rows: list[CheckRow] = []
        for number, layer in enumerate(self._layers):
            for change in (*layer.changes, ""):
                if layer.renew is not None:
                    layer.renew(self._seed + 1 + number)
                if change:
                    layer.changes[change]()
                rows += self._compared(layer, f", {change}" if change else "")
        # layers that share their inputs share what renews them
        for renew in dict.fromkeys(layer.renew for layer in self._layers if layer.renew):
            renew(self._seed)
        torch.cuda.empty_cache()
        return rows

    def _compared(self, layer: Layer, suffix: str) -> list[CheckRow]:
        for output in layer.outputs.values():
            poison(output)
        layer.launch()
        self.synchronize()
        expected = layer.reference()
        return [
            CheckRow(
                f"{layer.name}/{name}{suffix}",
                relative_error(output, expected[name]),
                layer.limit,
            )
            for name, output in layer.outputs.items()
        ]


def poison(tensor: Any) -> None:
    """Fill a tensor with NaN, or an integer one with its smallest value."""
    import torch

    if tensor.is_floating_point():
        tensor.fill_(float("nan"))
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).min)


def relative_error(output: Any, expected: Any) -> float:
    """Return ``|output - expected| / |expected|`` in double precision; NaN if a value is NaN.

    The tensors have one shape, and are compared in parts: a large one needs no double copy.
    """
    if tuple(output.shape) != tuple(expected.shape):
        msg = "an output has another shape than its reference"
        raise PerfmlError(msg, found=f"{tuple(output.shape)} and {tuple(expected.shape)}")
    off = whole = 0.0
    left, right = output.reshape(-1), expected.reshape(-1)
    for start in range(0, left.numel(), _PART):
        want = right[start : start + _PART].double()
        have = left[start : start + _PART].to(want.device).double()
        off += float((have - want).square().sum())
        whole += float(want.square().sum())
    if whole == 0.0:
        return 0.0 if off == 0.0 else float("inf")
    return float((off / whole) ** 0.5)


_PART = 1 << 26
"""Elements compared at once: half a gibibyte of doubles."""
