"""What the page of the attention ladder rests on, and no counter says."""

import pytest

from studies.attention.counters import rows_of, tensor_instructions

pytestmark = pytest.mark.page


def test_an_instruction_of_mma_is_counted_once_and_does_4096_operations():
    # so the share of the tensor cores' peak, which is no counter, rests on the right cycles
    row = rows_of("b48_n25600_d64").loc["mma"]
    assert tensor_instructions(row) == pytest.approx(4 * 48 * 25_600**2 * 64 / 4096, rel=1e-3)
