"""Time grows linearly with the length of a name, whatever it repeats."""

import time

import pytest

from perfml.kernel_names import kernel_class, kernel_label, kernel_phase, kernel_traits
from perfml.kernel_names.traits import LONGEST, WORD

FAST = 2.0
"""Seconds of processor time that 20,000 characters may take; at bcf8007a they took 4."""

WORDS = ["k", "triton_", "triton_red_fused_", "copy", "cutlass", "nch", "logits", "moe", "1", "_"]


@pytest.mark.parametrize("between", ["", "::"])
@pytest.mark.parametrize("word", WORDS)
def test_a_name_of_twenty_thousand_characters_takes_no_time(word, between):
    part = word * (400 // len(word)) + between
    name = (part * 20_000)[:20_000]
    start = time.process_time()
    for read in (kernel_traits, kernel_class, kernel_phase, kernel_label):
        read(name)
    assert time.process_time() - start < FAST


def test_both_ends_of_a_long_name_tell():
    filling = "x" * 3 * WORD
    assert kernel_class(f"gemm_{filling}").id == kernel_class(f"{filling}_gemm").id == "product"
    arguments = ", ".join(["int"] * LONGEST)
    traits = kernel_traits(f"void gemm<{arguments}, double>()")
    assert (traits.does, traits.type) == ("product", "double")
    assert kernel_traits(f"align{'1' * 3 * WORD}_").alignment > 0
