"""Write the network as an ONNX model, straight from its data: torch is not involved."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perfml.util.installed import import_extra

from .network import IMAGE, LEAKY_SLOPE, Layer, Network
from .quantize import MaxCalibrator, quantize_kernel
from .weights import Folded

if TYPE_CHECKING:
    import onnx

# The oldest versions that have all operators used here, so that old TensorRT parsers read it too.
OPSET = 17
IR_VERSION = 8
INPUT = "images"


def onnx_model(
    network: Network,
    folded: Folded,
    batch: int,
    *,
    half: bool = False,
    calibrator: MaxCalibrator | None = None,
) -> onnx.ModelProto:
    """Build the model of a network with fixed shapes: `batch` images in one inference.

    Every node is called after its layer: ``conv_01`` is the convolution, ``conv_01/leaky`` its
    activation. Routes that only hand a tensor on have no node. With `half`, weights, activations,
    input and outputs are float16 instead of float32; with a calibrator, inputs and kernels of all
    convolutions pass through int8 (``QuantizeLinear`` / ``DequantizeLinear`` with its scales).
    """
    onnx = import_extra("onnx", "tensorrt", "writing an ONNX model")
    writer = _Writer(folded, batch, np.float16 if half else np.float32, calibrator)
    heads = {layer.index for layer in network.outputs}
    for layer in network.layers:
        inputs = [writer.values[i] for i in layer.inputs]
        output = _WRITE[layer.type](writer, layer, inputs)
        if layer.index in heads:
            output = writer.node("Identity", layer, "output", [output], name=layer.name)
        writer.values[layer.index] = output
    helper = onnx.helper
    element = helper.np_dtype_to_tensor_dtype(np.dtype(writer.dtype))
    graph = helper.make_graph(
        writer.nodes,
        "perfml",
        [helper.make_tensor_value_info(INPUT, element, (batch, *network.input_shape))],
        [
            helper.make_tensor_value_info(layer.name, element, (batch, *layer.out_shape))
            for layer in network.outputs
        ],
        writer.constants,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="perfml"
    )


def layer_of_node(node: str) -> str:
    """Return the layer that a node of :func:`onnx_model` belongs to."""
    return node.split("/", 1)[0]


class _Writer:
    """Nodes and constants so far, and the tensor that holds each layer's output."""

    def __init__(
        self, folded: Folded, batch: int, dtype: type[Any], calibrator: MaxCalibrator | None
    ) -> None:
        self.folded, self.batch, self.dtype, self.calibrator = folded, batch, dtype, calibrator
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.values: dict[int, str] = {IMAGE: INPUT}

    def node(
        self,
        operator: str,
        layer: Layer,
        part: str,
        inputs: list[str],
        name: str | None = None,
        **attributes: Any,
    ) -> str:
        """Add a node and return its output's name; ``part`` is empty for the layer's main node."""
        import onnx

        node = f"{layer.name}/{part}" if part else layer.name
        output = name or f"{node}:out"
        self.nodes.append(
            onnx.helper.make_node(operator, inputs, [output], name=node, **attributes)
        )
        return output

    def constant(self, layer: Layer, part: str, values: NDArray[Any]) -> str:
        """Add a constant and return its name."""
        import onnx

        name = f"{layer.name}/{part}"
        self.constants.append(onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def integers(self, layer: Layer, part: str, *values: int) -> str:
        return self.constant(layer, part, np.array(values, dtype=np.int64))

    def slice(self, layer: Layer, part: str, x: str, axis: int, start: int, stop: int) -> str:
        bounds = [
            self.integers(layer, f"{part}/{bound}", value)
            for bound, value in (("start", start), ("stop", stop), ("axis", axis))
        ]
        return self.node("Slice", layer, part, [x, *bounds])

    def activate(self, layer: Layer, x: str) -> str:
        if layer.activation == "leaky":
            return self.node("LeakyRelu", layer, "leaky", [x], alpha=LEAKY_SLOPE)
        return x

    def quantized(self, layer: Layer, part: str, x: str, scale: NDArray[np.float32]) -> str:
        scales = self.constant(layer, f"{part}/scale", scale)
        zero = self.constant(layer, f"{part}/zero", np.zeros(scale.shape, np.int8))
        small = self.node("QuantizeLinear", layer, f"{part}/quantize", [x, scales, zero])
        return self.node("DequantizeLinear", layer, f"{part}/dequantize", [small, scales, zero])


def _conv(writer: _Writer, layer: Layer, inputs: list[str]) -> str:
    kernel, bias = writer.folded[layer.name]
    x = inputs[0]
    if writer.calibrator is None:
        weights = writer.constant(layer, "kernel", kernel.astype(writer.dtype))
    else:
        step = np.array(writer.calibrator.scale(layer.inputs[0]), np.float32)
        x = writer.quantized(layer, "input", x, step)
        small, scales = quantize_kernel(kernel)
        parts = [
            writer.constant(layer, "kernel", small),
            writer.constant(layer, "kernel/scale", scales),
            writer.constant(layer, "kernel/zero", np.zeros(scales.shape, np.int8)),
        ]
        weights = writer.node("DequantizeLinear", layer, "kernel/dequantize", parts, axis=0)
    output = writer.node(
        "Conv",
        layer,
        "",
        [x, weights, writer.constant(layer, "bias", bias.astype(writer.dtype))],
        kernel_shape=[layer.size] * 2,
        strides=[layer.stride] * 2,
        pads=[layer.pad] * 2 + [layer.pad_end] * 2,
        group=layer.groups,
    )
    return writer.activate(layer, output)


def _pool(writer: _Writer, layer: Layer, inputs: list[str]) -> str:
    return writer.node(
        "MaxPool",
        layer,
        "",
        inputs,
        kernel_shape=[layer.size] * 2,
        strides=[layer.stride] * 2,
        pads=[layer.pad] * 2 + [layer.pad_end] * 2,
    )


def _route(writer: _Writer, layer: Layer, inputs: list[str]) -> str:
    parts = inputs
    if layer.groups > 1:
        parts = [
            _part(writer, layer, k, x, channels)
            for k, (x, channels) in enumerate(zip(inputs, layer.in_channels, strict=True))
        ]
    if len(parts) == 1:
        return parts[0]
    return writer.node("Concat", layer, "", parts, axis=1)


def _part(writer: _Writer, layer: Layer, k: int, x: str, channels: int) -> str:
    width = channels // layer.groups
    start = layer.group_id * width
    return writer.slice(layer, f"part_{k}", x, 1, start, start + width)


def _upsample(writer: _Writer, layer: Layer, inputs: list[str]) -> str:
    factors = np.array([1, 1, layer.stride, layer.stride], np.float32)
    scales = writer.constant(layer, "scales", factors)
    return writer.node(
        "Resize",
        layer,
        "",
        [inputs[0], "", scales],
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )


def _yolo(writer: _Writer, layer: Layer, inputs: list[str]) -> str:
    channels, height, width = layer.in_shape
    entries = layer.classes + 5
    shape = writer.integers(layer, "boxes", writer.batch, layer.anchors, entries, height, width)
    boxes = writer.node("Reshape", layer, "split", [inputs[0], shape])
    centre = writer.slice(layer, "centre", boxes, 2, 0, 2)
    size = writer.slice(layer, "size", boxes, 2, 2, 4)
    scores = writer.slice(layer, "scores", boxes, 2, 4, entries)
    centre = writer.node("Sigmoid", layer, "centre/sigmoid", [centre])
    scores = writer.node("Sigmoid", layer, "scores/sigmoid", [scores])
    if layer.scale_x_y != 1.0:
        factor = np.array(layer.scale_x_y, writer.dtype)
        offset = np.array(-0.5 * (layer.scale_x_y - 1.0), writer.dtype)
        factor_name = writer.constant(layer, "centre/factor", factor)
        offset_name = writer.constant(layer, "centre/offset", offset)
        centre = writer.node("Mul", layer, "centre/scale", [centre, factor_name])
        centre = writer.node("Add", layer, "centre/shift", [centre, offset_name])
    joined = writer.node("Concat", layer, "", [centre, size, scores], axis=2)
    flat = writer.integers(layer, "channels", writer.batch, channels, height, width)
    return writer.node("Reshape", layer, "join", [joined, flat])


_WRITE: dict[str, Callable[[_Writer, Layer, list[str]], str]] = {
    "conv": _conv,
    "pool": _pool,
    "route": _route,
    "upsample": _upsample,
    "yolo": _yolo,
}
