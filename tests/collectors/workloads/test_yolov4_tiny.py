"""The built-in network: its architecture as published, its weights, its reference, its registry."""

import numpy as np
import pytest

from collectors.workloads import Options, workload, workloads
from collectors.workloads.yolov4_tiny.darknet import builtin_cfg, parse_cfg
from collectors.workloads.yolov4_tiny.network import build_network
from collectors.workloads.yolov4_tiny.reference import forward, relative_error
from collectors.workloads.yolov4_tiny.weights import (
    folded,
    random_images,
    random_weights,
    read_image,
)
from collectors.workloads.yolov4_tiny.workload import LIMITS, build_problem
from perfml.errors import InputError
from studies.reproduction.published import SHAPES


@pytest.fixture(scope="module")
def network():
    return build_network(builtin_cfg())


def test_the_convolutions_are_those_of_the_published_study(network):
    # figure A-1 and table 2.4: filters, size, stride, padding, input and output
    layers = network.convolutions
    assert [layer.name for layer in layers] == [f"conv_{i:02d}" for i in range(1, 22)]
    for layer, shape in zip(layers, SHAPES.values(), strict=True):
        said = layer.describe(1, 4)
        extents = (shape.filters, shape.size, shape.stride, shape.pad)
        assert (said["filters"], said["size"], said["stride"], said["pad"]) == extents
        assert said["input"] == "x".join(map(str, shape.input))
        assert said["output"] == "x".join(map(str, shape.output))


def test_routes_and_pools_read_the_published_layers(network):
    reads = {layer.index: layer.inputs for layer in network.layers}
    published = {3: (2,), 6: (5, 4), 8: (2, 7), 14: (13, 12), 16: (10, 15), 19: (18,)}
    published |= {22: (21, 20), 24: (18, 23), 31: (27,), 34: (33, 23)}
    assert {index: reads[index] for index in published} == published
    types = [layer.type for layer in network.layers]
    assert [types.count(t) for t in ("conv", "route", "pool", "upsample", "yolo")] == [
        21,
        11,
        3,
        1,
        2,
    ]
    assert [layer.name for layer in network.outputs] == ["yolo_01", "yolo_02"]


def test_a_seed_gives_the_same_weights_and_another_seed_others(network):
    a, b, c = (random_weights(network, seed)["conv_20"][0] for seed in (7, 7, 8))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)
    more = random_images(network, 3, 7)
    np.testing.assert_array_equal(more[:1], random_images(network, 1, 7))


def test_folding_equals_normalising_after_the_convolution():
    text = "[net]\nwidth=6\nheight=5\nchannels=2\n[convolutional]\nbatch_normalize=1\nfilters=3\n"
    net = build_network(parse_cfg((text + "size=3\npad=1\nactivation=linear\n").splitlines(), "t"))
    rng = np.random.default_rng(0)
    kernel, bias = rng.normal(size=(3, 2, 3, 3)).astype("f4"), rng.normal(size=3).astype("f4")
    scale, mean, variance = (rng.uniform(0.5, 2, 3).astype("f4") for _ in range(3))
    images = rng.normal(size=(2, 2, 5, 6))
    x = forward(net, {"conv_01": (kernel.astype("f8"), np.zeros(3))}, images)["conv_01"]
    column = (slice(None), None, None)
    expected = (x - mean[column]) / np.sqrt(variance[column].astype("f8") + 1e-5)
    expected = expected * scale[column] + bias[column]
    one = {"conv_01": folded(kernel, bias, scale, mean, variance)}
    np.testing.assert_allclose(forward(net, one, images)["conv_01"], expected, rtol=1e-12)


def test_the_reference_convolution_equals_its_definition():
    text = "[net]\nwidth=7\nheight=6\nchannels=4\n[convolutional]\nfilters=6\nsize=3\nstride=2\n"
    net = build_network(
        parse_cfg((text + "pad=1\ngroups=2\nactivation=linear\n").splitlines(), "t")
    )
    rng = np.random.default_rng(1)
    x, kernel = rng.normal(size=(1, 4, 6, 7)), rng.normal(size=(6, 2, 3, 3))
    out = forward(net, {"conv_01": (kernel, np.zeros(6))}, x)["conv_01"]
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    for f, i, j in np.ndindex(6, 3, 4):
        group = slice(0, 2) if f < 3 else slice(2, 4)
        window = padded[0, group, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
        assert out[0, f, i, j] == pytest.approx((window * kernel[f]).sum(), rel=1e-12)


def test_relative_error_is_scale_free_and_nan_stays_nan():
    reference = np.array([3.0, 4.0])
    assert relative_error(np.array([3.0, 4.5]), reference) == pytest.approx(0.1)
    assert relative_error(np.array([30.0, 45.0]), 10 * reference) == pytest.approx(0.1)
    assert np.isnan(relative_error(np.array([3.0, np.nan]), reference))
    with pytest.raises(ValueError, match="shape"):
        relative_error(np.zeros(3), reference)


@pytest.mark.slow
@pytest.mark.long
def test_a_wrong_layer_exceeds_the_limit_of_every_precision(network):
    problem = build_problem(Options("cublas", seed=5))
    swapped = dict(problem.folded)
    kernel, bias = swapped["conv_12"]
    swapped["conv_12"] = (kernel[:, :, ::-1], bias)
    wrong = forward(network, swapped, problem.images)
    assert max(row.error for row in problem.compare(wrong)) > max(LIMITS.values())


def test_the_registry_knows_the_workload_and_refuses_what_it_does_not_offer():
    tiny = workload("yolov4-tiny")
    assert "yolov4-tiny" in workloads()
    assert tiny.backends() == ("cublas", "cudnn", "inductor", "tensorrt")
    assert tiny.precisions("cublas") == ("fp32", "tf32", "fp16")
    assert "int8" in tiny.precisions("tensorrt")
    with pytest.raises(InputError, match="no built-in workload"):
        workload("yolo")
    with pytest.raises(InputError, match="no backend of this name"):
        tiny.precisions("caffe")
    for options in (
        Options("cublas", precision="int8"),
        Options("cublas", batch=0),
        Options("cublas", seed=-1),
    ):
        with pytest.raises(InputError):
            tiny.session(options)


def test_the_description_holds_every_layer_and_is_json():
    import json

    described = build_problem(Options("cudnn", precision="fp16", batch=2)).describe()
    again = json.loads(json.dumps(described, allow_nan=False))
    assert len(again["layers"]) == 38
    assert again["flops"] == sum(layer["flops"] for layer in again["layers"])
    assert again["layers"][34 + 1]["input"] == "26x26x384"


def test_one_image_takes_the_place_of_noise_in_every_inference(tmp_path):
    from PIL import Image

    path = tmp_path / "wide.png"
    Image.new("RGB", (200, 100), (255, 0, 51)).save(path)
    problem = build_problem(Options("cudnn", batch=2, settings=(("image", str(path)),)))
    images = problem.images
    assert images.shape == (2, 3, 416, 416)
    assert np.array_equal(images[0], images[1])
    # twice as wide as high: a quarter of the rows is grey above it and below it
    assert np.unique(images[0][:, :104]).tolist() == [0.5]
    assert np.unique(images[0][:, 312:]).tolist() == [0.5]
    inside = images[0][:, 104:312]
    assert [np.unique(each).tolist() for each in inside] == [[1.0], [0.0], [np.float32(0.2)]]
    assert problem.describe()["image"] == str(path)
    assert build_problem(Options("cudnn")).describe()["image"] == "noise"


def test_a_file_that_is_no_image_and_a_network_without_colours_are_refused(tmp_path):
    path = tmp_path / "image.jpg"
    path.write_text("no image")
    for name in (path, tmp_path / "absent.png"):
        with pytest.raises(InputError, match="no image that can be read"):
            read_image(name, build_network(builtin_cfg()), 1)
    grey = parse_cfg(GREY.splitlines(), "grey.cfg")
    with pytest.raises(InputError, match="three channels"):
        read_image(path, build_network(grey), 1)


GREY = """[net]
width=32
height=32
channels=1
[convolutional]
filters=2
size=1
stride=1
activation=linear
"""
