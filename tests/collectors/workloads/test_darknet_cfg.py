"""The Darknet cfg reader: what it accepts, and what its errors say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.workloads.yolov4_tiny.darknet import parse_cfg, read_cfg
from collectors.workloads.yolov4_tiny.network import build_network
from perfml.errors import InputError
from tests.support.examples import examples
from tests.support.paths import ROOT

SMALL = ROOT / "tests" / "data" / "darknet" / "every-layer.cfg"
NET = "[net]\nwidth=8\nheight=8\nchannels=3\n"
CONV = "[convolutional]\nfilters=4\nsize=3\nstride=1\npad=1\nactivation=leaky\n"


def network(text):
    return build_network(parse_cfg(text.splitlines(), "my.cfg"))


def error_of(text):
    with pytest.raises(InputError) as caught:
        network(text)
    return caught.value


def test_a_cfg_with_every_section_has_the_shapes_darknet_gives_it():
    layers = build_network(read_cfg(SMALL)).layers
    assert [layer.name for layer in layers] == [
        "conv_01", "pool_01", "conv_02", "pool_02", "conv_03", "route_01", "upsample_01",
        "conv_04", "yolo_01",
    ]  # fmt: skip
    shapes = {layer.name: layer.out_shape for layer in layers}
    assert shapes["pool_01"] == (8, 20, 24)
    assert shapes["pool_02"] == (8, 10, 12)
    assert shapes["route_01"] == (10, 10, 12)
    assert shapes["conv_04"] == (14, 10, 12)


def test_comments_and_blank_lines_do_not_shift_the_line_in_an_error():
    error = error_of("# a comment\n\n" + NET + "; another\n" + CONV.replace("size=3", "size=x"))
    assert error.where == "my.cfg:10"
    assert error.found == "x"


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        (NET + "[lstm]\n", "my.cfg:5", "no backend implements the section [lstm]"),
        (NET + "[convolutional\n", "my.cfg:5", "between square brackets"),
        (NET + CONV + "dilation=2\n", "my.cfg:11", "dilation"),
        (NET + CONV + "xnor=1\n", "my.cfg:11", "xnor"),
        (NET + CONV + "filters=8\n", "my.cfg:11", "twice, first on line 6"),
        (NET + CONV + "nonsense\n", "my.cfg:11", "key=value"),
        (NET + CONV.replace("leaky", "gelu"), "my.cfg:10", "activation"),
        (NET + CONV.replace("stride=1", "stride=0"), "my.cfg:8", "at least 1"),
        (NET + CONV + "groups=3\n", "my.cfg:11", "groups must divide"),
        (NET + CONV + "[route]\nlayers=-2\n", "my.cfg:12", "does not come before"),
        (NET + CONV + "[route]\nlayers=1\n", "my.cfg:12", "does not come before"),
        (NET + CONV + "[route]\n", "my.cfg:11", "has no layers"),
        (NET + CONV + "[route]\nlayers=-1\ngroups=2\ngroup_id=2\n", "my.cfg:13", "group_id"),
        (NET + CONV + "[maxpool]\nstride=2\n" + "[route]\nlayers=0,1\n", "my.cfg:14", "height"),
        (NET + CONV + "[shortcut]\nfrom=-1\n", "my.cfg:11", "implements the section [shortcut]"),
        (NET + CONV + "[yolo]\nmask=0\nclasses=2\n", "my.cfg:13", "7 filters"),
        (NET + CONV.replace("size=3", "size=11").replace("pad=1", "pad=0"), "my.cfg:7", "larger"),
        (NET, "my.cfg:1", "no layer"),
        (CONV, "my.cfg:1", "starts with the section [net]"),
        ("width=8\n", "my.cfg:1", "before the first section"),
        ("", "my.cfg:1", "no section at all"),
    ],
)  # fmt: skip
def test_a_wrong_cfg_is_refused_with_file_and_line(text, where, message):
    error = error_of(text)
    assert error.where == where
    assert message in str(error)


@examples(40)
@given(st.text(max_size=200))
def test_any_text_is_either_a_network_or_an_input_error(text):
    try:
        build_network(parse_cfg(text.splitlines(), "x"))
    except InputError as error:
        where = error.where
    else:
        where = "x:1"
    assert where.startswith("x:")


def test_a_missing_file_and_a_binary_file_are_input_errors(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_cfg(tmp_path / "none.cfg")
    (tmp_path / "w.weights").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="is text"):
        read_cfg(tmp_path / "w.weights")
