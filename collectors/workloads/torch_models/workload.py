"""The workload: what may be asked of any PyTorch model."""

from __future__ import annotations

import dataclasses

from collectors.workloads.base import Options, Session, check_options, read_settings
from perfml.errors import InputError

from .names import parse_name
from .sources import CONFIG

BACKENDS = ("cudnn", "cublas", "inductor")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
ATTENTION = ("default", "flash", "efficient", "cudnn", "math")
COMPILE = ("model", "layers")
_CHOICES = {"attention": ATTENTION, "compile": COMPILE}
_DEFAULTS = {"input": "", "tokens": "128", "attention": "default", "compile": "model"}


class TorchModel:
    """A PyTorch model with random weights (``torch:LIBRARY/NAME``, ``torch:FILE.py:FUNCTION``).

    Backends: ``cudnn`` is torch as it is, ``cublas`` is torch with cuDNN off, ``inductor`` is
    torch.compile. Settings: ``input`` (shape of one sample), ``tokens`` of a sequence,
    ``attention`` (which of torch's attention kernels may run), ``compile`` (``model``: the whole
    graph, one layer; ``layers``: each leaf module by itself, which fuses nothing across them) and
    ``config.FIELD`` of a transformers model.

    Raises
    ------
    InputError
        If it is neither.
    """

    check_first = True

    def __init__(self, name: str) -> None:
        self.name, self.source = name, parse_name(name)
        self.summary = f"{self.source.name} with random weights, layer by layer"

    def backends(self) -> tuple[str, ...]:
        """Return the backends."""
        return BACKENDS

    def precisions(self, backend: str) -> tuple[str, ...]:
        """Return the precisions of a backend."""
        if backend not in BACKENDS:
            what, cure = "there is no such backend", f"Choose one of: {', '.join(BACKENDS)}."
            raise InputError(what, where="--backend", found=backend, cure=cure)
        return PRECISIONS

    def settings(self, options: Options) -> dict[str, str]:
        """Return the settings, completed by their defaults.

        Raises `InputError` if there is no such setting, or its value is none of its choices.
        """
        fields = {key: text for key, text in options.settings if key.startswith(CONFIG)}
        if fields and self.source.library != "transformers":
            what, cure = "only a transformers model has a configuration", "Leave it out."
            raise InputError(what, where="--set", found=next(iter(fields)), cure=cure)
        own = tuple(pair for pair in options.settings if pair[0] not in fields)
        settings = read_settings(dataclasses.replace(options, settings=own), _DEFAULTS)
        for key, choices in _CHOICES.items():
            if settings[key] not in choices:
                what, cure = "there is no such choice", f"Choose one of: {', '.join(choices)}."
                raise InputError(what, where=f"--set {key}", found=settings[key], cure=cure)
        return settings | fields

    def session(self, options: Options) -> Session:
        """Build the model and its inputs; imports torch."""
        check_options(self, options)
        settings = self.settings(options)
        from .session import TorchModelSession

        return TorchModelSession(self.source, options, settings)
