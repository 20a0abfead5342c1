"""Prefill and decode: what a step of each takes, which classes of kernels take it, what to do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfml.account.intervals import union
from perfml.account.phases import DECODE, MIXED, PREFILL, STEP, is_class_layer
from perfml.report.document import Cell, ReportTable, Section, Sentence, numbers, section, words
from perfml.report.labels import capital, listed, percent
from perfml.report.sections.time_spent import WORTH
from perfml.report.tables import amount, share
from perfml.util.words import count, micros

_KINDS = (PREFILL, MIXED, DECODE, STEP)
"""In the order in which a server runs them."""
_REPEATED = (DECODE, STEP, MIXED)
"""Those that a program spends its time in, the first that there is."""
_REMEDIES = {
    "gemm": (
        "Read fewer bytes of weights in a {kind}",
        "With few tokens a product reads all weights for little work. FP8 is half of FP16.",
        "torchao.quantization.quantize_(model, Float8WeightOnlyConfig())  # or vLLM with FP8",
    ),
    "attention": (
        "Read less of the cache in a {kind}",
        "Attention reads all keys and values so far. An FP8 cache or grouped queries are less.",
        "LlamaConfig(num_key_value_heads=8, ...)  # vllm serve MODEL --kv-cache-dtype fp8",
    ),
    "communication": (
        "Let the GPUs of a {kind} exchange less",
        "Small messages take a link's latency. Use fewer GPUs, or a custom all-reduce.",
        "vllm serve MODEL --tensor-parallel-size 2",
    ),
    "sampling": (
        "Sample in fewer kernels",
        "Sorting a vocabulary takes long. One kernel can sample without a sort.",
        "flashinfer.sampling.top_k_top_p_sampling_from_probs(probs, k, p)",
    ),
}
"""Class to what helps where it takes most of a step: a title, why, and a line to type."""
_FUSED = (
    "Fuse the small kernels of a {kind}",
    "Each of them writes what the next one reads. Compiled, several are one.",
    'model = torch.compile(model, mode="reduce-overhead")',
)
_COMPILED = "model = torch.compile(model)"
_BETWEEN = "Sample in the same graph, and launch the next step before the host reads this token."
_AHEAD = (
    "next_token.copy_(sampled)  # no .item() between steps; vllm serve MODEL --async-scheduling"
)
_GRAPH = "with torch.cuda.graph(graph): logits = model(token)  # and graph.replay() in the loop"


@dataclass(frozen=True)
class PhaseTimes:
    """The mean step of one kind; microseconds.

    Attributes
    ----------
    kind
        ``prefill``, ``decode``, ``mixed`` or ``step``.
    steps
        How many were recorded.
    launches
        Kernels of a step.
    wall_us
        From the start of its first kernel to the end of its last; NaN where starts are not known.
    idle_us
        Of `wall_us`, while no kernel runs.
    before_us
        From the end of the step before to its first kernel, which is not of `wall_us`.
    classes
        Time of the kernels of each class, the longest first.
    replayed
        Part of the kernels' time that is replayed from CUDA graphs.
    """

    kind: str
    steps: int
    launches: float
    wall_us: float
    idle_us: float
    before_us: float
    classes: tuple[tuple[str, float], ...]
    replayed: float

    @property
    def name(self) -> str:
        """What a step of it is called."""
        return self.kind if self.kind == "step" else f"{self.kind} step"

    @property
    def kernels_us(self) -> float:
        """What its kernels take, one after another."""
        return math.fsum(us for _, us in self.classes)

    @property
    def whole_us(self) -> float:
        """What a step takes with the wait before it; without a clock its kernels' sum."""
        if math.isnan(self.wall_us):
            return self.kernels_us
        return self.wall_us + (0.0 if math.isnan(self.before_us) else self.before_us)


def phase_times(kernels: pd.DataFrame) -> tuple[PhaseTimes, ...]:
    """Return the mean step of each kind; none where layers are not those of phases."""
    layers = kernels["layer"].dropna().astype(str).unique()
    if not len(layers) or not all(map(is_class_layer, layers)):
        return ()
    kinds = kernels["layer"].str.partition("/")
    rows = kernels.assign(kind=kinds[0], what=kinds[2]).dropna(subset=["kind"])
    for name in ("start_us", "replay"):
        rows[name] = rows.get(name, np.nan)
    steps = _steps(rows)
    times = []
    for kind in [kind for kind in _KINDS if kind in set(rows["kind"])]:
        own, mine = steps[steps["kind"] == kind], rows[rows["kind"] == kind]
        classes = mine.groupby("what")["time_us"].sum().sort_values(ascending=False) / len(own)
        replayed = mine.loc[mine["replay"].notna(), "time_us"].sum() / mine["time_us"].sum()
        means = own[["launches", "wall", "waits", "before"]].mean().tolist()
        named = tuple((str(name), float(us)) for name, us in classes.items())
        times.append(PhaseTimes(kind, len(own), *means, named, float(replayed)))
    return tuple(times)


def _steps(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each step: its kind, launches, wall, waits in it and before it."""
    ended, found = {}, []
    for (run, _, kind), own in rows.groupby(["run_id", "iteration", "kind"], sort=False):
        starts = own["start_us"].to_numpy(dtype=float)
        ends = starts + own["time_us"].to_numpy(dtype=float)
        begun, wall = starts.min(), ends.max() - starts.min()
        waits = wall - union(starts, ends).length_us if np.isfinite(wall) else np.nan
        before = max(0.0, begun - ended[run]) if run in ended else np.nan
        ended[run] = ends.max()
        found.append((kind, len(own), wall, waits, before))
    return pd.DataFrame(found, columns=["kind", "launches", "wall", "waits", "before"])


def phases_section(phases: Sequence[PhaseTimes]) -> Section | None:
    """Return what a step of each phase takes, and its classes of kernels; None without phases."""
    if not phases:
        return None
    steps = [
        [
            Cell(each.kind),
            Cell(f"{each.steps}"),
            amount(each.whole_us),
            amount(each.kernels_us),
            amount(each.idle_us),
            amount(each.before_us),
            amount(each.launches),
        ]
        for each in phases
    ]
    columns = ("steps", "a step, µs", "kernels, µs", "no kernel in it, µs", "before it, µs")
    names = dict.fromkeys(name for each in phases for name, _ in each.classes)
    by_class = []
    for name in names:
        times = [dict(each.classes).get(name, math.nan) for each in phases]
        parts = [us / each.kernels_us for us, each in zip(times, phases, strict=True)]
        cells = [
            cell
            for us, part in zip(times, parts, strict=True)
            for cell in (amount(us), share(part))
        ]
        by_class.append([Cell(name), *cells])
    heads = [head for each in phases for head in (f"{each.kind}, µs a step", "of its kernels")]
    return section(
        "Prefill and decode" if len(phases) > 1 else f"A {phases[0].kind}",
        ReportTable(
            "Mean step of each phase", (*words("phase"), *numbers(*columns, "kernels")), steps
        ),
        ReportTable("Time by class of kernels", (*words("class"), *numbers(*heads)), by_class),
        summary=phase_sentence(phases).text.removesuffix("."),
        anchor="phases",
        link="Phases",
    )


def phase_sentence(phases: Sequence[PhaseTimes]) -> Sentence:
    """Say what a step of each phase takes."""
    texts = []
    for each in phases:
        text = f"a {each.name} takes {micros(each.whole_us)}"
        if each.kind == "decode":
            text += f" ({1e6 / each.whole_us:,.0f} tokens a second for each sequence)"
        if each.before_us > 0:
            text += f", of which the device waits {micros(each.before_us)} for it to begin"
        texts.append(f"{text} (mean of {each.steps})")
    return Sentence("time", "firm", f"{capital('; '.join(texts))}.")


def phase_steps(phases: Sequence[PhaseTimes]) -> list[Sentence]:
    """Return what to do first: the largest part of the program's time first."""
    whole = math.fsum(each.steps * each.whole_us for each in phases)
    main = next((each for kind in _REPEATED for each in phases if each.kind == kind), None)
    parts = [part for each in phases for part in _waits(each)]
    parts += [] if main is None else _work(main)
    parts.sort(key=lambda part: -part[0])
    return [step for us, step in parts if us >= WORTH * whole]


def _waits(phase: PhaseTimes) -> Iterator[tuple[float, Sentence]]:
    """Return what the device waits for the host in all steps of a phase, and what helps."""
    if phase.before_us > 0 and phase.steps > 1:
        title = f"Start the next {phase.name} sooner"
        step = Sentence("do", "likely", _BETWEEN, title, _gain(phase, "", phase.before_us), _AHEAD)
        yield phase.steps * phase.before_us, step
    if phase.idle_us > 0:
        title, line = f"Launch a {phase.name} in fewer calls", _COMPILED
        if phase.kind in _REPEATED:
            way = "Put all of a" if phase.replayed >= 0.5 else "Record a"
            title, line = f"{way} {phase.name} into one CUDA graph", _GRAPH
        text = (
            f"It launches {count(round(phase.launches), 'kernel')}, and the device waits between."
        )
        step = Sentence("do", "likely", text, title, _gain(phase, "", phase.idle_us), line)
        yield phase.steps * phase.idle_us, step


def _work(phase: PhaseTimes) -> Iterator[tuple[float, Sentence]]:
    """Return the classes of kernels that take the time of all steps of a phase, and what helps."""
    small = [(name, us) for name, us in phase.classes if name not in _REMEDIES and name != "other"]
    parts = [(name, us, _REMEDIES[name]) for name, us in phase.classes if name in _REMEDIES]
    fused = listed([name for name, _ in small[:3]])
    parts.append((fused, math.fsum(us for _, us in small), _FUSED))
    for name, us, (title, text, line) in parts:
        gain = _gain(phase, f"{name}: ", us)
        step = Sentence("do", "likely", text, title.format(kind=phase.name), gain, line)
        yield phase.steps * us, step


def _gain(phase: PhaseTimes, what: str, us: float) -> str:
    part = percent(us / phase.whole_us)
    return f"{what or 'idle '}{micros(us)} of {micros(phase.whole_us)} a {phase.name} ({part})"
