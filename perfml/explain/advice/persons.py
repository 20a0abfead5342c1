"""Who can do something about a kernel: its author, or who calls a library's or PyTorch's.

Here to change: what a library's kernels are called is in the patterns; what its users can do is in
``perfml/explain/remedies.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

_PYTORCH = re.compile(
    r"\bat::|at_cuda_detail|pytorch|triton_|elementwise_kernel|reduce_kernel|softmax_warp_|cunn_"
)
_LIBRARY = re.compile(
    r"cublas|cudnn|cutlass|xmma|nvjet_|winograd|implicit_convolve|engines_precompiled|gemmSN_|"
    r"gemv2T|splitKreduce|convolve_common_engine|precomputed_convolve|conv2d_c1_k1|fft2d_r2c|"
    r"flash_fwd|flash_bwd|fmha_|"
    # Those take no pointers: ampere_sgemm_64x64_nn, ampere_lstm_tile16<32, 1>(params_t); an
    # author's hopper_gemm(float*) does.
    r"^(void )?(sm\d\d|ampere|volta|turing|maxwell|hopper)_[^*]*$|"
    # cuBLAS: sgemm_128x128x8_NN_vec, sgemm_largek_lds64; an author's sgemm_naive is another's.
    r"^(void )?[cdhsz]gemm_(largek_|sm_heavy_|sm\d\d_|\d+x\d+x\d+_[ntc]{2}(_|\b))",
    re.IGNORECASE,
)


class Person(Enum):
    """Who reads advice about a kernel, and whose the kernel is."""

    AUTHOR = "kernel author"
    LIBRARY = "library user"
    PYTORCH = "PyTorch user"

    @property
    def whose(self) -> str:
        """Whose the kernel is, for a sentence."""
        return {"library user": "a library's", "PyTorch user": "PyTorch's"}.get(self.value, "yours")


def person_of(kernel: str) -> Person:
    """Return who can do something about a kernel, from its name.

    Examples
    --------
    >>> person_of("void at::native::vectorized_elementwise_kernel<4>(int)").value
    'PyTorch user'
    >>> person_of("nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_TNT").value
    'library user'
    >>> person_of("my_kernel(float*)").value
    'kernel author'
    """
    if _PYTORCH.search(kernel):
        return Person.PYTORCH
    return Person.LIBRARY if _LIBRARY.search(kernel) else Person.AUTHOR


def person_of_all(kernels: Iterable[str]) -> Person:
    """Return who can do something about several kernels: their author, if one of them is own."""
    persons = {person_of(name) for name in kernels}
    for person in (Person.AUTHOR, Person.PYTORCH, Person.LIBRARY):
        if person in persons:
            return person
    return Person.AUTHOR


_SAME = ("layer", "precision", "batch")


def place_of(row: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return the layer, precision, batch and backend of a row, as text."""
    return tuple(str(row.get(name)) for name in (*_SAME, "backend"))
