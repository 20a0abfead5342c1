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
_BETWEEN = "Sample in the same graph, and launch the next step before the host reads this token."
_AHEAD = "token.copy_(sampled)  # no .item() between steps; vllm serve MODEL --async-scheduling"
_GRAPH = "with torch.cuda.graph(graph): logits = model(token)  # and graph.replay() in the loop"
_COMPILED = "model = torch.compile(model)"


@dataclass(frozen=True)
class PhaseTimes:
    """The median step of one kind, such as ``decode``; microseconds.

    Attributes
    ----------
    kind, steps, launches
        What it is for, how many were recorded, and the kernels of one.
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
        return self.kind if self.kind == STEP else f"{self.kind} step"

    @property
    def kernels_us(self) -> float:
        """What its kernels take, one after another."""
        return math.fsum(us for _, us in self.classes)

    @property
    def whole_us(self) -> float:
        """What a step takes with the wait before it; without a clock its kernels' sum."""
        clock = self.wall_us + float(np.nan_to_num(self.before_us))
        return self.kernels_us if math.isnan(clock) else clock


def phase_times(kernels: pd.DataFrame) -> tuple[PhaseTimes, ...]:
    """Return the median step of each kind; none where layers are not those of phases."""
    layers = kernels["layer"].dropna().astype(str).unique()
    if not len(layers) or not all(map(is_class_layer, layers)):
        return ()
    parts = kernels["layer"].str.partition("/")
    rows = kernels.assign(kind=parts[0], what=parts[2]).dropna(subset=["kind"])
    rows["start_us"], rows["replay"] = rows.get("start_us", np.nan), rows.get("replay", np.nan)
    steps, times = _steps(rows), []
    for kind in [kind for kind in (PREFILL, MIXED, DECODE, STEP) if kind in set(rows["kind"])]:
        own, mine = steps[steps["kind"] == kind], rows[rows["kind"] == kind]
        classes = mine.groupby("what")["time_us"].sum().sort_values(ascending=False) / len(own)
        replayed = mine.loc[mine["replay"].notna(), "time_us"].sum() / mine["time_us"].sum()
        launches, wall, waits, before = (
            float(own[name].median()) for name in ("launches", "wall", "waits", "before")
        )
        named = tuple((str(name), float(us)) for name, us in classes.items())
        times.append(
            PhaseTimes(kind, len(own), launches, wall, waits, before, named, float(replayed))
        )
    return tuple(times)


def _steps(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each step: its kind, launches, wall, waits in it and before it."""
    ended: dict[object, float] = {}
    found = []
    for (run, _, kind), own in rows.groupby(["run_id", "iteration", "kind"], sort=False):
        starts = own["start_us"].to_numpy(dtype=float)
        ends = starts + own["time_us"].to_numpy(dtype=float)
        begun, wall = starts.min(), ends.max() - starts.min()
        waits = wall - union(starts, ends).length_us if np.isfinite(wall) else np.nan
        first = own.iloc[int(starts.argmin())] if np.isfinite(wall) else own.iloc[0]
        # before a window of a recording with holes it is not known
        known = run in ended and not pd.isna(first.get("gap_us", 0.0))
        before = max(0.0, begun - ended[run]) if known else np.nan
        ended[run] = ends.max()
        found.append((kind, len(own), wall, waits, before))
    return pd.DataFrame(found, columns=["kind", "launches", "wall", "waits", "before"])


def phases_section(phases: Sequence[PhaseTimes]) -> Section | None:
    """Return what a step of each phase takes, and its classes of kernels; None without phases."""
    if not phases:
        return None
    columns = ("a step, µs", "kernels, µs", "no kernel in it, µs", "before it, µs", "kernels")
    steps = []
    for each in phases:
        sizes = (each.whole_us, each.kernels_us, each.idle_us, each.before_us, each.launches)
        steps.append([Cell(each.kind), Cell(f"{each.steps}"), *map(amount, sizes)])
    by_class = []
    for name in dict.fromkeys(name for each in phases for name, _ in each.classes):
        row = [Cell(name)]
        for each in phases:
            us = dict(each.classes).get(name, math.nan)
            row += [amount(us), share(us / each.kernels_us)]
        by_class.append(row)
    heads = [head for each in phases for head in (f"{each.kind}, µs a step", "of its kernels")]
    head = (*words("phase"), *numbers("steps", *columns))
    return section(
        "Prefill and decode" if len(phases) > 1 else f"A {phases[0].name}",
        ReportTable("Median step of each phase", head, steps),
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
        if each.kind == DECODE:
            text += f" ({1e6 / each.whole_us:,.0f} tokens a second for each sequence)"
        if each.before_us > 0:
            text += f", of which the device waits {micros(each.before_us)} for it to begin"
        texts.append(f"{text} (median of {each.steps})")
    return Sentence("time", "high", f"{capital('; '.join(texts))}.")


def phase_steps(phases: Sequence[PhaseTimes]) -> list[Sentence]:
    """Return what to do first: the largest part of the program's time first."""
    whole = math.fsum(each.steps * each.whole_us for each in phases)
    parts = [part for each in phases for part in (*_waits(each), *_work(each))]
    parts.sort(key=lambda part: -part[0])
    return [step for us, step in parts if us >= WORTH * whole]


def _waits(phase: PhaseTimes) -> Iterator[tuple[float, Sentence]]:
    """Return what the device waits for the host in all steps of a phase, and what helps."""
    if phase.before_us > 0 and phase.steps > 1:
        title = f"Start the next {phase.name} sooner"
        yield _part(phase, "idle", phase.before_us, (title, _BETWEEN, _AHEAD))
    title, line = f"Launch a {phase.name} in fewer calls", _COMPILED
    if phase.kind != PREFILL:
        way = "Put all of a" if phase.replayed >= 0.5 else "Record a"
        title, line = f"{way} {phase.name} into one CUDA graph", _GRAPH
    text = f"It launches {count(round(phase.launches), 'kernel')}, with waits between them."
    if phase.idle_us > 0:
        yield _part(phase, "idle", phase.idle_us, (title, text, line))


def _work(phase: PhaseTimes) -> Iterator[tuple[float, Sentence]]:
    """Return the classes of kernels that take the time of a phase, and what helps."""
    if phase.kind == PREFILL:  # its products compute, and do not wait for the weights
        return
    small = {name: us for name, us in phase.classes if name not in _REMEDIES and name != "other"}
    for name, us in phase.classes:
        if name in _REMEDIES:
            yield _part(phase, f"{name}:", us, _REMEDIES[name])
    yield _part(phase, f"{listed([*small][:3])}:", math.fsum(small.values()), _FUSED)


def _part(
    phase: PhaseTimes, what: str, us: float, remedy: tuple[str, str, str]
) -> tuple[float, Sentence]:
    """Return what a part takes in all steps of a phase, and the sentence with its remedy."""
    title, text, line = remedy
    part = percent(us / phase.whole_us)
    gain = f"{what} {micros(us)} of {micros(phase.whole_us)} a {phase.name} ({part})"
    step = Sentence("do", "medium", text, title.format(kind=phase.name), gain, line)
    return phase.steps * us, step
