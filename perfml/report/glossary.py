"""The words of a report, each in one sentence: shown on hover and in the appendix.

Causes (`perfml.explain.TERMS`) and metrics (the catalogue) are read from where they are defined;
what stands here are the words around them. Here to change: an entry of `WORDS` or `CAUSES`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One word."""

    name: str  # the word, as a heading
    sentence: str  # what it means
    spelled: tuple[str, ...] = ()  # how texts spell it else; a plural is known

    @property
    def texts(self) -> tuple[str, ...]:
        """How it is spelled, plurals too."""
        given = (self.name, *self.spelled)
        return (*given, *(f"{text}s" for text in given if text[-1].isalpha() and "_" not in text))

    @property
    def anchor(self) -> str:
        """Its address on a page."""
        kept = "".join(sign if sign.isalnum() or sign == "_" else "-" for sign in self.name.lower())
        return "g-" + "-".join(part for part in kept.split("-") if part)


WORDS = (
    Entry(
        "layer",
        "An NVTX range, such as a layer of a network, that is timed as one; "
        "without ranges, a kernel.",
    ),
    Entry("condition", "What must be equal to compare times: workload, device, precision, batch."),
    Entry("repeat", "The same measurement once more; its scatter says how sure a time is."),
    Entry(
        "wave",
        "As many blocks as fit on all SMs at once. A grid of 0.07 waves leaves most SMs idle. "
        "One of 1.1 waves needs a second round for few blocks.",
        ("wave quantization (tail effect)", "wave quantization"),
    ),
    Entry("occupancy", "Warps that are resident on a multiprocessor, of those that could be."),
    Entry("sector", "32 bytes: the smallest piece that memory and caches move."),
    Entry("request", "One memory instruction of a warp; the best touches 4 sectors."),
    Entry(
        "wavefront",
        "One pass of shared memory; bank conflicts make an instruction take several.",
    ),
    Entry(
        "divergence",
        "Threads of a warp take different paths, so that some wait while the others work.",
    ),
    Entry(
        "stall",
        "A warp is resident and cannot issue; the reason says what it waits for.",
        ("stall reason",),
    ),
    Entry(
        "split-K",
        "The sum of a matrix product is divided among blocks and added up afterwards.",
        ("split_k", "split the reduction"),
    ),
    Entry("implicit GEMM", "A convolution as a matrix product without copying its input first."),
    Entry("im2col", "Copies the input of a convolution so that it becomes a matrix product."),
    Entry(
        "roof",
        "The highest rate that the device allows: of its arithmetic, or of a memory.",
    ),
    Entry("intensity", "Operations for every byte that is moved; it decides which roof is lower."),
    Entry("factor", "What a cause multiplies the time by; all factors multiply to the time ratio."),
    Entry("log ratio", "The logarithm of a factor: causes add up in it, and 0 is no difference."),
    Entry("unexplained", "What no counter separates; it is a rest, not a cause."),
    Entry(
        "MAPE",
        "Mean absolute percentage error: by how much a predicted time is off on average.",
        ("mean absolute percentage error",),
    ),
    Entry(
        "baseline of a model",
        "A prediction without a model, such as a mean; a model that does not beat it has "
        "learned nothing.",
        ("best baseline",),
    ),
    Entry(
        "unseen layers",
        "Every layer is predicted by models that were fitted without it.",
    ),
    Entry("random split", "Tests on repeats of layers that were trained on; it flatters."),
    Entry("resample", "The ranking once more, on layers drawn at random with replacement."),
    Entry(
        "interchangeable",
        "Metrics that rise and fall together; the data cannot tell which of them matters.",
    ),
    Entry(
        "p-value",
        "How often a leading metric does as well when the times are exchanged between layers.",
        ("by chance", "chance alone"),
    ),
    Entry("importance", "How much a model uses a metric; it is no proof of a cause."),
    Entry(
        "Shapley value",
        "A fair share of a model's prediction for every metric; the shares add up.",
    ),
    Entry("95 % interval", "Repeated, 95 of 100 such intervals would hold the true value."),
)
"""Words of the report, in the order of the appendix."""

CAUSES = {
    "active_threads_per_warp": "Threads of a warp that work; the others wait for another path.",
    "sectors_per_request": "Sectors that a memory instruction touches; scattered lanes touch more.",
    "uncoalesced_loads": "Loads move bytes that nobody asked for.",
    "uncoalesced_stores": "Stores move bytes that nobody wrote.",
    "wavefronts_per_shared_load": "Passes that a load of shared memory takes (bank conflicts).",
    "bank_conflicts": "Rounds of shared memory that carry a part of what they could.",
    "l2_sectors_per_l1_sector": "How much of the traffic misses L1 and goes on to L2.",
    "dram_bytes_per_sector": "How much of the traffic misses the caches and goes on to DRAM.",
    "local_memory": "Registers that were spilled, and arrays that registers cannot hold.",
    "narrow_access": "Every request moves few bytes, so that more of them are needed.",
    "redundant_traffic": "The same values are loaded more often.",
    "async_copy": "Copies to shared memory no longer run beside the arithmetic.",
    "tensor_unused": "Tensor cores are idle where the other side uses them.",
    "theoretical_occupancy": "Warps that registers, shared memory and block size allow.",
    "achieved_of_theoretical": "Warps that were resident, of those that the launch allows.",
    "block_slots": "A multiprocessor holds a limited number of blocks, and they are small.",
    "block_imbalance": "Some blocks take longer than others, and their warps end alone.",
    "sm_imbalance": "Some multiprocessors have more to do than others.",
    "kernels_vanished": "Kernels that only the baseline starts; their time is gone.",
    "kernels_appeared": "Kernels that only the target starts; their time is added.",
    "launch_gaps": "Time between launches in which the GPU runs no kernel.",
    "memory_moves": "Time that copies and fills (memset) of memory take.",
    "launch_count": "More or fewer launches of the same kernel.",
    "side_by_side": "Kernels that run at the same time, on several streams.",
    "unprofiled_time": "The time under the profiler against the time without it.",
    "memory_fence": "Warps wait until their writes are visible to others.",
    "math_throttle": "Warps wait for an arithmetic unit that is busy.",
    "mio_throttle": "Warps wait for the queue of shared memory and special functions.",
    "global_atomics": "Atomic operations on global memory, which take turns.",
    "shared_atomics": "Atomic operations on shared memory, which take turns.",
    "constant_serialization": "Lanes read different constants, one after the other.",
    "lsu_pipe_time": "Lanes exchange values through the load/store unit.",
    "integer_arithmetic": "Integer operations, most often addresses and indices.",
    "clock_and_idle_sms": "What clock frequency and idle multiprocessors leave unexplained.",
}
"""Id of a cause to what it means; the others are told by their counters."""


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Return every word, cause and metric that a report may use."""
    from perfml.explain import TERMS
    from perfml.metrics import load_catalogue

    catalogue = load_catalogue()
    found = {entry.name: entry for entry in WORDS}
    spelled = {text for entry in WORDS for text in entry.texts}
    for term in TERMS.values():
        if term.label in spelled or term.label.split(" (")[0] in catalogue.names:
            continue
        known = [catalogue[name].description for name in term.evidence if name in catalogue.names]
        counters = "; ".join(known)
        text = CAUSES.get(term.id) or (
            f"Measured by: {counters}." if counters else "What no counter separates."
        )
        found.setdefault(term.label, Entry(term.label, text))
    for name in catalogue.names:
        description = catalogue[name].description
        found.setdefault(name, Entry(name, f"{description[:1].upper()}{description[1:]}."))
    return tuple(found.values())
