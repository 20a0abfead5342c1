"""Walks of all recordings, of which `make test` takes some and .ci/run the others."""

from collections.abc import Sequence
from typing import Any

import pytest


def sampled(values: Sequence[Any], quick: int) -> list[Any]:
    """Return the values as parameters: `quick` of them, spread evenly, and the others as slow."""
    step = max(1, len(values) // quick)
    return [
        value
        if at % step == 0 and at // step < quick
        else pytest.param(value, marks=pytest.mark.slow)
        for at, value in enumerate(values)
    ]
