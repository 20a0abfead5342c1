"""The workload: from options to a network, its weights and inputs, and to a backend's session."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from collectors.workloads.base import CheckRow, Options, Session, check_options, read_settings
from collectors.workloads.yolov4_tiny import darknet
from perfml.errors import InputError

from .network import Network, build_network
from .reference import Array, forward, relative_error
from .weights import Folded, random_images, random_weights, read_image

_BACKENDS = {
    "cublas": ("fp32", "tf32", "fp16"),
    "cudnn": ("fp32", "tf32", "fp16"),
    "inductor": ("fp32", "tf32", "fp16"),
    "tensorrt": ("fp32", "tf32", "fp16", "int8"),
}
# Largest ‖output - reference‖ / ‖reference‖ that passes. Measured on an H200 with torch 2.11, the
# worst of cublas, cudnn and inductor: fp32 2.0e-6, tf32 8.9e-4, fp16 1.2e-3; int8 with onnxruntime
# on a CPU: 4.6e-2. One kernel flipped upside down gives 0.16.
LIMITS = {"fp32": 1e-4, "tf32": 5e-3, "fp16": 1e-2, "int8": 0.1}
DEFAULTS = {"image": ""}
"""The one setting: a file that every inference gets instead of noise."""
ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "int8": 1}


@dataclasses.dataclass(frozen=True)
class Problem:
    """One network with weights and inputs: the same for every backend of the same options."""

    options: Options  # what the user asked for
    # network, folded: the network and its weights without batch normalisation
    network: Network
    folded: Folded
    images: NDArray[np.float32]  # float32, shape (batch, channels, height, width)

    def layer_names(self) -> tuple[str, ...]:
        """Names of the layers, in order."""
        return tuple(layer.name for layer in self.network.layers)

    def describe(self) -> dict[str, Any]:
        """Return the workload's part of ``run.json``."""
        options = self.options
        element = ELEMENT_BYTES[options.precision]
        layers = [layer.describe(options.batch, element) for layer in self.network.layers]
        return {
            "cfg": str(options.cfg) if options.cfg else f"{darknet.BUILTIN_CFG} of perfml",
            "weights": "random, He-initialised",
            "classes": None if options.cfg else self.network.layers[-1].classes,
            "image": read_settings(options, DEFAULTS)["image"] or "noise",
            "input": list(self.images.shape),
            "flops": sum(layer["flops"] for layer in layers),
            "layers": layers,
        }

    def reference(self) -> dict[str, Array]:
        """Return the outputs in double precision, computed on the CPU."""
        return forward(self.network, self.folded, self.images)

    def compare(self, outputs: dict[str, NDArray[np.floating]]) -> list[CheckRow]:
        """Compare a backend's outputs with the reference."""
        limit = LIMITS[self.options.precision]
        return [
            CheckRow(name, relative_error(outputs[name], expected), limit)
            for name, expected in self.reference().items()
        ]


def build_problem(options: Options) -> Problem:
    """Read the network, make its weights, and make or read its inputs.

    Raises `InputError` if the cfg or the image cannot be used; see the readers.
    """
    sections = darknet.read_cfg(options.cfg) if options.cfg else darknet.builtin_cfg()
    network = build_network(sections)
    image = read_settings(options, DEFAULTS)["image"]
    if image:
        images = read_image(image, network, options.batch)
    else:
        images = random_images(network, options.batch, options.seed)
    return Problem(options, network, random_weights(network, options.seed), images)


class _YoloV4Tiny:
    """The registry's entry."""

    name = "yolov4-tiny"
    summary = "YOLOv4-Tiny inference (21 convolutions, 416x416), or the network of a Darknet cfg"
    check_first = False

    def backends(self) -> tuple[str, ...]:
        return tuple(_BACKENDS)

    def precisions(self, backend: str) -> tuple[str, ...]:
        if backend not in _BACKENDS:
            what = f"{self.name} has no backend of this name"
            cure = f"Choose one of: {', '.join(_BACKENDS)}."
            raise InputError(what, where="--backend", found=backend, cure=cure)
        return _BACKENDS[backend]

    def session(self, options: Options) -> Session:
        check_options(self, options)
        problem = build_problem(options)
        module = importlib.import_module(f"{__package__}.backends.{options.backend}")
        return cast("Session", module.session(problem))


WORKLOAD = _YoloV4Tiny()
