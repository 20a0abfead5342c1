"""The network as plain data: which layers there are, what each reads, and how large it is."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

from perfml.errors import InputError

from .darknet import Section

IMAGE = -1
ACTIVATIONS = ("linear", "leaky")
LEAKY_SLOPE = 0.1
Shape = tuple[int, int, int]

# Options that change what a layer computes and that no backend here implements: running without
# them would time another network than the user's.
_UNSUPPORTED = {
    "convolutional": ("binary", "xnor", "antialiasing", "share_index", "deform", "stride_x"),
    "maxpool": ("maxpool_depth", "antialiasing", "stride_x"),
    "upsample": (),
    "route": (),
    "yolo": ("new_coords",),
}
# Darknet's section names and the short names that perfml's layers carry.
_SHORT = {
    "convolutional": "conv",
    "maxpool": "pool",
    "route": "route",
    "upsample": "upsample",
    "yolo": "yolo",
}


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer."""

    name: str  # type and number within the type, counted from 1: `conv_01`
    type: str  # `conv`, `pool`, `route`, `upsample` or `yolo`
    index: int  # darknet's layer index, counted from 0
    # Indices of the layers whose outputs it reads; :data:`IMAGE` is the network's input
    inputs: tuple[int, ...]
    # in_shape, out_shape: channels, height, width. A route that concatenates has the sum of its
    # inputs' channels as input.
    in_shape: Shape
    out_shape: Shape
    # filters, size, stride, groups: of a convolution; `size` and `stride` also of a pool, `stride`
    # the factor of an upsample, `groups` the number of parts of a route
    filters: int = 0
    size: int = 0
    stride: int = 0
    pad: int = 0  # zeros (a convolution) or ignored cells (a pool) before the first row and column
    pad_end: int = 0  # the same after the last row and column
    groups: int = 1
    group_id: int = 0  # which part of each of its inputs a route hands on
    in_channels: tuple[int, ...] = ()  # channels of each input of a route
    activation: str = "linear"  # one of :data:`ACTIVATIONS`
    batch_normalize: bool = False
    # classes, anchors, scale_x_y: of a yolo head; `anchors` is their number in this head
    classes: int = 0
    anchors: int = 0
    scale_x_y: float = 1.0

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """Shape of a convolution's weights: filters, input channels of a group, size, size."""
        return self.filters, self.in_shape[0] // self.groups, self.size, self.size

    def flops(self, batch: int = 1) -> int:
        """Return the floating-point operations of a convolution, a multiply-add counted as two.

        Bias and activation are left out, as in the field's usual count; other layers give 0.
        """
        if self.type != "conv":
            return 0
        _, height, width = self.out_shape
        return 2 * batch * math.prod(self.weight_shape) * height * width

    def weight_bytes(self, element: int) -> int:
        """Return the bytes of a convolution's weights and biases with ``element`` bytes each."""
        if self.type != "conv":
            return 0
        return (math.prod(self.weight_shape) + self.filters) * element

    def describe(self, batch: int, element: int) -> dict[str, Any]:
        """Return the layer as JSON values, shapes in height x width x channels."""
        channels, height, width = self.in_shape
        row: dict[str, Any] = {
            "layer": self.name,
            "type": self.type,
            "index": self.index,
            "reads": list(self.inputs),
            "input": f"{height}x{width}x{channels}",
            "output": f"{self.out_shape[1]}x{self.out_shape[2]}x{self.out_shape[0]}",
            "flops": self.flops(batch),
            "weight_bytes": self.weight_bytes(element),
            "input_bytes": math.prod(self.in_shape) * batch * element,
            "output_bytes": math.prod(self.out_shape) * batch * element,
        }
        if self.type in ("conv", "pool"):
            row |= {"size": self.size, "stride": self.stride, "pad": self.pad}
        if self.type == "conv":
            row |= {"filters": self.filters, "groups": self.groups, "activation": self.activation}
        return row


@dataclasses.dataclass(frozen=True)
class Network:
    """A network: the shape of its input (channels, height, width) and its layers in order."""

    input_shape: Shape
    layers: tuple[Layer, ...]

    @property
    def convolutions(self) -> tuple[Layer, ...]:
        """The convolutions, in order."""
        return tuple(layer for layer in self.layers if layer.type == "conv")

    @property
    def outputs(self) -> tuple[Layer, ...]:
        """Layers whose output no other layer reads: the heads."""
        read = {i for layer in self.layers for i in layer.inputs}
        return tuple(layer for layer in self.layers if layer.index not in read)

    def last_reader(self) -> dict[int, int]:
        """Return, for each layer that is read, the index of the last layer that reads it."""
        return {i: layer.index for layer in self.layers for i in layer.inputs}


Make = Callable[..., Layer]
"""Makes a layer whose name, type, index and place in the cfg are known."""


def build_network(sections: list[Section]) -> Network:
    """Derive the layers and all shapes from the sections of a cfg.

    Raises `InputError` with ``file:line``: an unknown section, an option no backend implements, a
    reference to a layer that does not exist, or shapes that do not fit.
    """
    net = sections[0]
    if len(sections) == 1:
        what = "the cfg has no layer"
        raise InputError(what, where=net.where(), cure="Add sections such as [convolutional].")
    shape = (
        net.integer("channels", 3, minimum=1),
        net.integer("height", minimum=1),
        net.integer("width", minimum=1),
    )
    layers: list[Layer] = []
    numbers: collections.Counter[str] = collections.Counter()
    for index, section in enumerate(sections[1:]):
        _check_supported(section)
        short = _SHORT[section.type]
        numbers[short] += 1
        name = f"{short}_{numbers[short]:02d}"
        previous = layers[-1].out_shape if layers else shape
        make = functools.partial(Layer, name, short, index)
        layers.append(_BUILDERS[section.type](make, section, index, previous, layers))
    return Network(shape, tuple(layers))


def _check_supported(section: Section) -> None:
    if section.type not in _SHORT:
        what = f"no backend implements the section [{section.type}]"
        cure = f"Supported sections: {', '.join(f'[{name}]' for name in _SHORT)}."
        raise InputError(what, where=section.where(), cure=cure)
    for key in _UNSUPPORTED[section.type]:
        if section.text(key, "0") not in ("0", "none"):
            what = f"no backend implements {key} of [{section.type}]"
            raise InputError(what, where=section.where(key), found=section.text(key, ""))


def _conv(make: Make, section: Section, index: int, shape: Shape, _: list[Layer]) -> Layer:
    filters = section.integer("filters", 1, minimum=1)
    size = section.integer("size", 1, minimum=1)
    stride = section.integer("stride", 1, minimum=1)
    groups = section.integer("groups", 1, minimum=1)
    if section.integer("dilation", 1) != 1:
        what = "no backend implements dilation of [convolutional]"
        raise InputError(what, where=section.where("dilation"))
    if shape[0] % groups or filters % groups:
        what = "groups must divide the input channels and the filters"
        found = f"{shape[0]} channels, {filters} filters, {groups} groups"
        raise InputError(what, where=section.where("groups"), found=found)
    pad = size // 2 if section.integer("pad", 0) else section.integer("padding", 0, minimum=0)
    side = [(edge + 2 * pad - size) // stride + 1 for edge in shape[1:]]
    _check_sides(section, side, size, shape)
    return make(
        inputs=(index - 1,),
        in_shape=shape,
        out_shape=(filters, side[0], side[1]),
        filters=filters,
        size=size,
        stride=stride,
        pad=pad,
        pad_end=pad,
        groups=groups,
        activation=_activation(section, "logistic"),
        batch_normalize=section.integer("batch_normalize", 0) != 0,
    )


def _check_sides(section: Section, sides: list[int], size: int, shape: Shape) -> None:
    if min(sides) < 1:
        what = f"the window of [{section.type}] is larger than its padded input"
        found = f"size {size} on {shape[1]}x{shape[2]}"
        raise InputError(what, where=section.where("size"), found=found)


def _activation(section: Section, default: str) -> str:
    activation = section.text("activation", default)
    if activation not in ACTIVATIONS:
        what = "no backend implements this activation"
        cure = f"Supported: {', '.join(ACTIVATIONS)}."
        raise InputError(what, where=section.where("activation"), found=activation, cure=cure)
    return activation


def _pool(make: Make, section: Section, index: int, shape: Shape, _: list[Layer]) -> Layer:
    stride = section.integer("stride", 1, minimum=1)
    size = section.integer("size", stride, minimum=1)
    # Darknet pads a pool by size - 1 in total, the smaller half in front.
    total = section.integer("padding", size - 1, minimum=0)
    side = [(edge + total - size) // stride + 1 for edge in shape[1:]]
    _check_sides(section, side, size, shape)
    # Only the padding that some window reaches: a pad nobody reads would force a copy in torch.
    end = max((side[i] - 1) * stride + size - shape[i + 1] - total // 2 for i in (0, 1))
    return make(
        inputs=(index - 1,),
        in_shape=shape,
        out_shape=(shape[0], side[0], side[1]),
        size=size,
        stride=stride,
        pad=total // 2,
        pad_end=max(0, end),
    )


def _upsample(make: Make, section: Section, index: int, shape: Shape, _: list[Layer]) -> Layer:
    stride = section.integer("stride", 2, minimum=1)
    if section.number("scale", 1.0) != 1.0:
        what = "no backend implements scale of [upsample]"
        raise InputError(what, where=section.where("scale"), found=section.text("scale", ""))
    channels, height, width = shape
    out = (channels, height * stride, width * stride)
    return make((index - 1,), shape, out, stride=stride)


def _resolve(section: Section, key: str, index: int) -> tuple[int, ...]:
    """Turn a list of layer numbers, negative ones relative to this layer, into indices."""
    resolved = []
    for number in section.integers(key):
        source = index + number if number < 0 else number
        if not 0 <= source < index:
            what = f"[{section.type}] {key} names a layer that does not come before this one"
            found = f"{number} in layer {index}"
            cure = f"Use a negative number down to -{index}, or an index from 0 to {index - 1}."
            raise InputError(what, where=section.where(key), found=found, cure=cure)
        resolved.append(source)
    return tuple(resolved)


def _route(make: Make, section: Section, index: int, _: Shape, layers: list[Layer]) -> Layer:
    inputs = _resolve(section, "layers", index)
    shapes = [layers[i].out_shape for i in inputs]
    if len({shape[1:] for shape in shapes}) > 1:
        what = "a route can only join layers of the same height and width"
        found = ", ".join(
            f"{layers[i].name} {s[1]}x{s[2]}" for i, s in zip(inputs, shapes, strict=True)
        )
        raise InputError(what, where=section.where("layers"), found=found)
    groups = section.integer("groups", 1, minimum=1)
    group_id = section.integer("group_id", 0, minimum=0)
    if group_id >= groups or any(shape[0] % groups for shape in shapes):
        what = "groups must divide the channels of every routed layer, and group_id be under groups"
        found = f"groups {groups}, group_id {group_id}, channels {[s[0] for s in shapes]}"
        raise InputError(what, where=section.where("groups"), found=found)
    channels = sum(shape[0] for shape in shapes)
    height, width = shapes[0][1:]
    return make(
        inputs=inputs,
        in_shape=(channels, height, width),
        out_shape=(channels // groups, height, width),
        groups=groups,
        group_id=group_id,
        in_channels=tuple(shape[0] for shape in shapes),
    )


def _yolo(make: Make, section: Section, index: int, shape: Shape, _: list[Layer]) -> Layer:
    classes = section.integer("classes", 20, minimum=1)
    anchors = len(section.integers("mask"))
    if shape[0] != anchors * (classes + 5):
        what = f"a head of {anchors} anchors and {classes} classes needs a convolution in front"
        what += f" with {anchors * (classes + 5)} filters"
        raise InputError(what, where=section.where("classes"), found=f"{shape[0]} filters")
    return make(
        inputs=(index - 1,),
        in_shape=shape,
        out_shape=shape,
        classes=classes,
        anchors=anchors,
        scale_x_y=section.number("scale_x_y", 1.0),
    )


_BUILDERS: dict[str, Callable[[Make, Section, int, Shape, list[Layer]], Layer]] = {
    "convolutional": _conv,
    "maxpool": _pool,
    "route": _route,
    "upsample": _upsample,
    "yolo": _yolo,
}
