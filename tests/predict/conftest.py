"""A reference of made-up networks, and a network with two layers that are slower than its law."""

import pytest

from perfml.predict import prepare_layers
from tests.support.modeling_data import networks_with_law

SLOW = "layer3"
"""An activation that takes three times its time, for no reason that was counted."""

WASTEFUL = "layer8"
"""A convolution that executes four times the instructions, and takes two and a half times."""


@pytest.fixture(scope="session")
def reference():
    return prepare_layers(networks_with_law(networks=8, layers=48))


@pytest.fixture(scope="session")
def network():
    layers = networks_with_law(networks=1, layers=40, seed=9)
    layers["workload"] = "torch:mine/net"
    layers["device"] = "NVIDIA H200"
    layers.loc[layers["layer"] == SLOW, "time_us"] *= 3.0
    layers.loc[layers["layer"] == WASTEFUL, "time_us"] *= 2.5
    layers.loc[layers["layer"] == WASTEFUL, "inst_executed"] *= 4.0
    return layers
