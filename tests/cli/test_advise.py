"""perfml advise: what several layers share is told once."""

import pytest

from tests.support.command_line import run

pytestmark = pytest.mark.long


def test_what_helps_several_layers_is_told_once(recorded):
    shown = run("advise", recorded / "ncu" / "vectors.csv", "-q").stdout
    told = [line for line in shown.splitlines() if "what to do: " in line]
    actions = [line for line in told if "As above, for" not in line]
    assert 0 < len(set(actions)) == len(actions)
