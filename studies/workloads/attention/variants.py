"""Versions of the kernels: sources, macros, tiles, and the shared memory they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from collectors.workloads.cuda import Source

FOLDER = Path(__file__).parent
SHARED_LIMIT = 227 * 1024
"""Bytes of shared memory a block may have on compute capability 9.0."""
ROWS = 128
"""Rows of Q a block of the fp32 ladder, one a thread, and what its tokens are a multiple of."""
WMMA_WARPS = 4
Q_TILES = (16, 32, 48, 64)
KV_TILES = (32, 64, 128, 160)
PAD = 8
"""Halves that a row of a tile is longer in shared memory (`wmma`)."""
LAZY = 8
"""Powers of two that a score may be above the number subtracted from its row."""


@dataclass(frozen=True)
class Rung:
    """A version of the fp32 ladder.

    Attributes
    ----------
    kernel
        Name in ``ladder.cu``; empty for the one of five kernels.
    rows, query_in_shared, columns
        Rows of Q a block, whether they lie in shared memory, and rows of K and V a tile, as a
        number over the head dimension (1024 is 16 at 64, 32 at 32); 32 rows where it is 0.
    split
        Whether tiles of Q are spread over blocks.
    step
        What it changes against the version before.
    """

    kernel: str
    step: str
    rows: int = ROWS
    columns: int = 1024
    query_in_shared: bool = True
    split: bool = True

    def tile(self, dim: int) -> int:
        """Return the rows of K and V a tile."""
        return self.columns // dim if self.columns else 32

    def shared_bytes(self, dim: int) -> int:
        """Return dynamic shared memory: tiles of K, V and S, and of Q where it is there."""
        if not self.kernel:
            return 0
        tile = self.tile(dim)
        query = self.rows * dim if self.query_in_shared else 0
        return 4 * (query + 2 * tile * dim + tile * self.rows)


_FREED = (ROWS, 2048, False)
LADDER = {
    "separate": Rung("", "five kernels, scores in global memory", split=False),
    "fused": Rung("fused_tiles", "one kernel, tiles in shared memory", 32, 0, split=False),
    "shared_48k": Rung("shared_48k", "the largest tiles that 48 KiB hold", split=False),
    "split_q": Rung("split_q", "tiles of Q spread over blocks"),
    "float4": Rung("vector_loads", "loads of 16 bytes"),
    "restructured": Rung("restructured", "what does not change moved out of loops"),
    "coalesced": Rung("coalesced", "neighbouring threads load neighbouring words"),
    "lm_registers": Rung("lm_registers", "l and m in registers"),
    "no_conflicts": Rung("no_conflicts", "Q and S by columns in shared memory"),
    "q_registers": Rung("q_registers", "Q in registers, twice the rows of K and V", *_FREED),
    "o_registers": Rung("o_registers", "O in registers, divided by l at the end", *_FREED),
}  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """A tensor-core kernel with its tiles.

    Attributes
    ----------
    source, kernel
        File and name of the kernel.
    defines
        Macros, without those of the problem.
    query_rows, threads
        Rows of Q and threads of a block.
    dims
        Head dimensions that it is made for.
    maps
        Whether it takes tensor maps instead of pointers.
    flags
        Options of the compiler beyond ours.
    """

    source: str
    kernel: str
    defines: Mapping[str, int]
    query_rows: int
    threads: int
    dims: tuple[int, ...] = (64, 128)
    maps: bool = field(default=False)
    flags: tuple[str, ...] = ()

    def shared_bytes(self, dim: int) -> int:
        """Return dynamic shared memory in bytes."""
        kv_rows = self.defines["KV_ROWS"]
        if self.source == "wmma.cu":
            pitch = dim + self.defines.get("PAD", PAD)
            return (self.query_rows + 4 * kv_rows) * pitch * 2
        if self.source == "mma.cu":
            return (self.query_rows + 4 * kv_rows) * dim * 2
        stages = self.defines["STAGES"]
        barriers = 8 * (1 + 4 * stages)
        return (self.query_rows + 2 * stages * kv_rows) * dim * 2 + barriers + 1024

    def fits(self, dim: int) -> bool:
        """Whether it is made for the head dimension and its tiles fit into shared memory."""
        return dim in self.dims and self.shared_bytes(dim) <= SHARED_LIMIT

    def compiled_for(self, dim: int, *, causal: bool) -> Source:
        """Return the source with all macros."""
        macros = {"HEAD_DIM": dim, "CAUSAL": int(causal), **self.defines}
        return Source(FOLDER / self.source, macros, self.flags)


def _wmma(
    q_rows: int,
    kv_rows: int,
    *,
    blocks: int = 0,
    poly: int = 0,
    lazy: int = LAZY,
    flags: tuple[str, ...] = (),
    **more: int,
) -> Variant:
    macros = {
        "Q_ROWS": q_rows, "KV_ROWS": kv_rows, "MIN_BLOCKS": blocks, "POLY": poly, "LAZY": lazy,
        **more,
    }  # fmt: skip
    threads = WMMA_WARPS * 32
    return Variant(
        "wmma.cu", "attention_wmma", macros, WMMA_WARPS * q_rows, threads, flags=flags
    )  # fmt: skip


THESIS_FLAGS = (
    "-maxrregcount=255",
    "-fmad=true",
    "-ftz=true",
    "-prec-div=false",
    "-prec-sqrt=false",
)
"""The thesis' compiler flags, of those that change code: ``-O3`` and ``-v`` are ours already, and
``-expt-relaxed-constexpr`` only allows what our sources do not do."""


def _mma(
    rows: int,
    kv_rows: int,
    warps: int,
    blocks: int,
    keep: int,
    *,
    poly: int = 0,
    lazy: int = LAZY,
    dim: int = 64,
) -> Variant:
    macros = {
        "WARP_ROWS": rows, "KV_ROWS": kv_rows, "WARPS": warps, "MIN_BLOCKS": blocks,
        "KEEP_Q": keep, "POLY": poly, "LAZY": lazy,
    }  # fmt: skip
    return Variant("mma.cu", "attention_mma", macros, rows * warps, warps * 32, (dim,))


def _wgmma(
    kv_rows: int,
    consumers: int,
    stages: int,
    turns: int,
    *,
    poly: int = 0,
    lazy: int = LAZY,
    dim: int = 64,
) -> Variant:
    # Registers of the consumers and the producer: together what the block started with.
    registers, producer = {3: (160, 32), 2: (240, 24)}[consumers]
    macros = {
        "KV_ROWS": kv_rows, "CONSUMERS": consumers, "STAGES": stages, "MIN_BLOCKS": 1,
        "REGISTERS": registers, "PRODUCER_REGISTERS": producer, "PINGPONG": turns, "POLY": poly,
        "LAZY": lazy,
    }  # fmt: skip
    threads = 128 * (consumers + 1)
    return Variant("wgmma.cu", "attention_wgmma", macros, 64 * consumers, threads, (dim,), True)


VARIANTS: dict[str, dict[str, Variant]] = {
    "wmma": {
        "q32_kv64": _wmma(32, 64),
        **{f"q{q}_kv{kv}": _wmma(q, kv) for q in Q_TILES for kv in KV_TILES},
        "q32_kv64_eager": _wmma(32, 64, lazy=0),
        "q32_kv64_poly2": _wmma(32, 64, poly=2),
        "q32_kv64_three": _wmma(32, 64, blocks=3),
        "q32_kv64_three_poly2": _wmma(32, 64, blocks=3, poly=2),
        "q32_kv64_through_l1": _wmma(32, 64, THROUGH_L1=1),
        "q32_kv64_no_pad": _wmma(32, 64, PAD=0),
        "q32_kv64_no_pad_through_l1": _wmma(32, 64, PAD=0, THROUGH_L1=1),
        "q32_kv64_thesis_flags": _wmma(32, 64, flags=THESIS_FLAGS),
    },
    "mma": {
        "r32_kv64_w4": _mma(32, 64, 4, 2, 1),
        "r32_kv64_w4_three": _mma(32, 64, 4, 3, 0),
        "r32_kv64_w4_eager": _mma(32, 64, 4, 2, 1, lazy=0),
        "r32_kv64_w4_reread": _mma(32, 64, 4, 2, 0),
        "r32_kv64_w4_three_poly1": _mma(32, 64, 4, 3, 0, poly=1),
        "r32_kv64_w4_three_poly2": _mma(32, 64, 4, 3, 0, poly=2),
        "r32_kv64_w8": _mma(32, 64, 8, 1, 1),
        "r32_kv32_w4_three": _mma(32, 32, 4, 3, 0),
        "r32_kv128_w4": _mma(32, 128, 4, 2, 0),
        "r16_kv64_w8": _mma(16, 64, 8, 2, 1),
        "r32_kv64_w4_poly1": _mma(32, 64, 4, 2, 1, poly=1),
        "r32_kv64_w4_poly2": _mma(32, 64, 4, 2, 1, poly=2),
        "r32_kv64_w4_poly3": _mma(32, 64, 4, 2, 0, poly=3),
        "d128_r16_kv64_w8": _mma(16, 64, 8, 1, 1, dim=128),
        "d128_r16_kv64_w4": _mma(16, 64, 4, 2, 0, dim=128),
        "d128_r32_kv32_w4": _mma(32, 32, 4, 1, 0, dim=128),
    },
    "wgmma": {
        "kv128_c3_turns": _wgmma(128, 3, 2, 1),
        "kv128_c3": _wgmma(128, 3, 2, 0),
        "kv128_c3_turns_eager": _wgmma(128, 3, 2, 1, lazy=0),
        "kv128_c3_s3_turns": _wgmma(128, 3, 3, 1),
        "kv128_c3_turns_poly1": _wgmma(128, 3, 2, 1, poly=1),
        "kv128_c3_turns_poly2": _wgmma(128, 3, 2, 1, poly=2),
        "kv128_c3_turns_poly3": _wgmma(128, 3, 2, 1, poly=3),
        "kv128_c3_poly2": _wgmma(128, 3, 2, 0, poly=2),
        "kv128_c2_turns": _wgmma(128, 2, 2, 1),
        "kv128_c2_turns_poly2": _wgmma(128, 2, 2, 1, poly=2),
        "kv192_c2_turns": _wgmma(192, 2, 2, 1),
        "kv64_c3": _wgmma(64, 3, 3, 0),
        "d128_kv128_c2_turns": _wgmma(128, 2, 2, 1, dim=128),
        "d128_kv128_c2": _wgmma(128, 2, 2, 0, dim=128),
        "d128_kv64_c3": _wgmma(64, 3, 2, 0, dim=128),
    },
}
"""Backend to its variants."""
FASTEST = {
    ("wmma", 64): "q48_kv64", ("wmma", 128): "q32_kv64",
    ("mma", 64): "r32_kv64_w4", ("mma", 128): "d128_r32_kv32_w4",
    ("wgmma", 64): "kv128_c3_turns", ("wgmma", 128): "d128_kv128_c2_turns",
}  # fmt: skip
"""Backend and head dimension to the variant that was fastest on an H200: the default.

Measured in studies/attention/RESULTS.md.
"""
