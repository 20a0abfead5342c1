"""What the GPU of a server runs: steps of a decoder, as launches."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from perfml.account.phases import Launches

NORM, ROTARY = "vllm::rms_norm_kernel<T>(int)", "vllm::rotary_embedding_kernel<T>(int)"
CACHE, ATTENTION = "vllm::reshape_and_cache_flash_kernel<T>(int)", "flash::flash_fwd_kernel<T>(P)"
ACTIVATION, EXPERTS = "vllm::act_and_mul_kernel<T>(int)", "fused_moe_kernel"
TOPK, SORT = "at::native::sbtopk::gatherTopK<float>(int)", "at::native::bitonicSortKVInPlace<T>()"
SOFTMAX = "at::native::cunn_SoftMaxForward<4, float>(float*)"
ARGMAX = "at::native::reduce_kernel<512, ReduceOp<float, at::native::ArgMaxOps<float>>>()"
LAYERS = 6


@dataclass
class Server:
    """Runs steps; a launch waits 1 us for the one before, and a step 30 us for the host."""

    rows: list[tuple[str, float, float, int]] = field(default_factory=list)
    replays: int = 0

    def run(self, names: list[str], tokens: int, *, graph: bool, wait: float = 1.0) -> None:
        """Launch kernels for some tokens, in one replay or one by one."""
        self.replays += graph
        for place, name in enumerate(names):
            gap = 1.0 if place else wait
            self.rows.append((name, gap, 128.0 * tokens, self.replays if graph else -1))

    def step(self, tokens: int, *, graph: bool, moe: bool = False, ends: bool = True) -> None:
        """Run one step: its layers, and the sampling outside the graph."""
        self.run(step(tokens, moe=moe), tokens, graph=graph, wait=30.0)
        if ends:
            self.run([SOFTMAX, ARGMAX], 1, graph=False)

    def launches(self) -> Launches:
        """Return what ran."""
        names, gaps, threads, replays = zip(*self.rows, strict=True)
        return Launches(
            names,
            np.array([np.nan, *gaps[1:]]),
            np.array(threads),
            np.ones(len(names)),
            np.array(replays),
        )


def product(tokens: int) -> str:
    """Return the product of a size: libraries take another tile for each."""
    return f"nvjet_tst_{max(64, tokens)}x8_64x16_2x1_v_bz_TNT"


def step(tokens: int, *, moe: bool = False) -> list[str]:
    """Return the kernels of a step up to the logits."""
    gate = product(tokens)
    feed = [product(8), TOPK, SORT, EXPERTS] if moe else [gate, ACTIVATION, gate]
    layer = [NORM, gate, ROTARY, CACHE, ATTENTION, gate, NORM, *feed]
    return [*layer * LAYERS, NORM, product(8)]
