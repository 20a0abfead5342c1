"""Attention in fp16 as a Triton kernel: what the compiler makes of FlashAttention-2's loop.

The same loop as ``wmma.cu``, without a hand in shared memory, copies or registers: tiles of Q stay
with a program, tiles of K and V stream by, sums are in fp32. Triton comes with PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

LOG2_E = 1.4426950408889634
TILES = {32: (128, 64, 4), 64: (128, 64, 4), 128: (128, 64, 8)}
"""Head dimension to rows of Q, rows of K and V, and warps of a program."""
STAGES = 3
"""Tiles of K and V that are on their way at once."""


# Triton looks annotations up among the kernel's globals and takes its own types alone.
@triton.jit  # type: ignore[untyped-decorator]
def attention_triton(  # type: ignore[no-untyped-def]
    q,
    k,
    v,
    o,
    tokens,
    factor,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Write ROWS rows of O: program (tile of Q, problem); `factor` is scale * log2(e)."""
    first = tl.program_id(0) * ROWS
    base = tl.program_id(1).to(tl.int64) * tokens * DIM
    rows = first + tl.arange(0, ROWS)
    across = tl.arange(0, DIM)
    inside = rows[:, None] < tokens
    at_rows = base + rows[:, None] * DIM + across[None, :]
    query = tl.load(q + at_rows, mask=inside, other=0.0)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    out = tl.zeros([ROWS, DIM], tl.float32)
    end = tl.minimum(tokens, first + ROWS) if CAUSAL else tokens
    for start in range(0, end, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        at_columns = base + columns[:, None] * DIM + across[None, :]
        there = columns[:, None] < tokens
        keys = tl.load(k + at_columns, mask=there, other=0.0)
        scores = tl.dot(query, tl.trans(keys)) * factor
        seen = columns[None, :] < tokens
        if CAUSAL:
            seen = seen & (columns[None, :] <= rows[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        raised = tl.maximum(largest, tl.max(scores, 1))
        shrink = tl.exp2(largest - raised)
        weights = tl.exp2(scores - raised[:, None])
        total = total * shrink + tl.sum(weights, 1)
        values = tl.load(v + at_columns, mask=there, other=0.0)
        out = tl.dot(weights.to(tl.float16), values, out * shrink[:, None])
        largest = raised
    tl.store(o + at_rows, (out / total[:, None]).to(tl.float16), mask=inside)


def launch_of(problem: Any, values: dict[str, Any]) -> Callable[[], None]:
    """Return the launch of the kernel on the tensors of a problem."""
    rows, columns, warps = TILES[problem.dim]
    grid = (triton.cdiv(problem.tokens, rows), problem.count)
    factor = problem.dim**-0.5 * LOG2_E

    def launch() -> None:
        attention_triton[grid](
            values["q"], values["k"], values["v"], values["o"], problem.tokens, factor,
            DIM=problem.dim, ROWS=rows, COLUMNS=columns, CAUSAL=problem.causal,
            num_warps=warps, num_stages=STAGES,
        )  # fmt: skip

    return launch
