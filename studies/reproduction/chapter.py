"""The chapter's further tables and figures: device, method, fused layers, layers by filter.

Numbers of a device come from its recording and, where a recording has none, from what
`perfml.chips` says of its compute capability.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from perfml.chips import chip
from perfml.report.figures.style import GRID, INK, MUTED, PALETTE, new_axes, plain, styled
from studies.reproduction import published
from studies.reproduction.network import cudnn_version

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNKNOWN = "not recorded"
MARKS = {"fast": " (fast)", "slow": " (slow)", "intermediate": ""}


def device_table(about: dict[str, Any]) -> pd.DataFrame:
    """Return table 2.1 beside the recording's device: ``what, published, recording``."""
    device = chip(capability=str(about.get("compute_capability", "")))
    memory = about.get("memory_bytes")
    ours = {
        "device": about.get("gpu", UNKNOWN),
        "multiprocessors": about.get("multiprocessors", UNKNOWN),
        "CUDA cores": _a_multiprocessor(device.fp32),
        "clock rate": f"{UNKNOWN}; perfml doctor prints that of the moment",
        "shared memory": _a_multiprocessor(device.shared_bytes / 1024, " KiB"),
        "registers": _a_multiprocessor(device.registers),
        "memory": f"{memory / 2**30:.0f} GiB" if memory else UNKNOWN,
        "CUDA": about.get("cuda", UNKNOWN),
        "cuDNN": cudnn_version(int(about["cudnn"])) if about.get("cudnn") else UNKNOWN,
    }
    rows = [(what, published.DEVICE.get(what, ""), str(value)) for what, value in ours.items()]
    return pd.DataFrame(rows, columns=["what", "published", "recording"])


def _a_multiprocessor(number: float, unit: str = "") -> str:
    return UNKNOWN if math.isnan(number) else f"{number:.0f}{unit} per SM"


def filter_cross(filters: pd.DataFrame) -> pd.DataFrame:
    """Return table 2.3 as it was printed: input channels down, filter sizes across.

    ``filters`` is that of `studies.reproduction.network.filter_table`; fast and slow layers are
    marked, and the published layers of a cell stand beside ours.
    """
    rows = []
    for many in (False, True):
        cells: dict[str, str] = {}
        for size in (3, 1):
            text = f"{size}x{size}"
            mine = filters[(filters["filter"] == text) & (filters["many_channels"] == many)]
            marks = mine["speed"].map(MARKS)
            told = [f"{layer}{mark}" for layer, mark in zip(mine["layer"], marks, strict=True)]
            cells[text] = ", ".join(told)
            there = sorted(published.FILTER_CELLS[(size, many)])
            cells[f"{text}, published"] = ", ".join(map(str, there))
        sign = ">=" if many else "<"
        rows.append({"input_channels": f"{sign} {published.MANY_CHANNELS}", **cells})
    return pd.DataFrame(rows)


# ---- figure 2-2 ----------------------------------------------------------------------------------

STEPS = (
    ("Phase I", "network", "all layers, every library", "perfml collect, merge, report"),
    ("Phase I", "layers", "the slowest and the fastest", "perfml explain"),
    ("Phase I", "kernels", "what was launched in them", "perfml inspect, plot kernels"),
    ("Phase II", "data set", "a row a repeat: metrics, library, time", "perfml ingest, merge"),
    ("Phase II", "models", "time from metrics, library from metrics", "perfml train"),
    ("Phase II", "metrics", "which of them the models use", "perfml rank, select"),
)
"""Figure 2-2: phase, step, what is looked at, and the command that does it here."""


def method_table() -> pd.DataFrame:
    """Return the method's steps."""
    return pd.DataFrame(STEPS, columns=["phase", "step", "what", "command"])


@styled
def method_figure() -> Axes:
    """Draw the method (figure 2-2): a box a step, from left to right, a phase a line."""
    ax = new_axes(None, 1000, 330)
    lines = {"Phase I": 1, "Phase II": 0}
    places = dict.fromkeys(lines, 0)
    for phase, step, what, command in STEPS:
        x, y = 1.1 * places[phase] + 0.35, 1.15 * lines[phase]
        places[phase] += 1
        ax.add_patch(_box(x, y, PALETTE[lines[phase]]))
        ax.text(x + 0.5, y + 0.72, step, ha="center", va="center", fontweight="bold", color=INK)
        ax.text(x + 0.5, y + 0.46, what, ha="center", va="center", fontsize=10, color=INK)
        ax.text(x + 0.5, y + 0.2, command, ha="center", va="center", fontsize=9, color=MUTED)
        if places[phase] > 1:
            _arrow(ax, (x - 0.1, y + 0.45), (x, y + 0.45))
    for phase, line in lines.items():
        ax.text(0.28, 1.15 * line + 0.45, phase, ha="right", va="center", fontweight="bold")
    _arrow(ax, (1.95, 1.15), (1.95, 0.9))
    ax.text(2.0, 1.02, "repeated", va="center", fontsize=10, color=MUTED)
    ax.set_xlim(-0.25, 3.6)
    ax.set_ylim(-0.08, 2.1)
    ax.set_axis_off()
    return ax


def _box(x: float, y: float, colour: str) -> Any:
    from matplotlib.patches import FancyBboxPatch

    shape = "round,pad=0,rounding_size=0.06"
    return FancyBboxPatch((x, y), 1.0, 0.9, boxstyle=shape, facecolor="none", edgecolor=colour)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    ax.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "->", "color": MUTED})


# ---- figure 2-3 ----------------------------------------------------------------------------------


def engine_steps() -> dict[str, Any]:
    """Return what `studies.seeds.engine` recorded: ``source``, ``engines`` by precision."""
    text = Path(__file__).with_name("engine_steps.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def fusion_table(document: dict[str, Any]) -> pd.DataFrame:
    """Return one row a step of an engine: ``precision, step, kind, layers``."""
    rows = [
        {"precision": precision, "step": number, "kind": kind, "layers": " + ".join(layers)}
        for precision, steps in document["engines"].items()
        for number, (kind, *layers) in enumerate(steps, start=1)
    ]
    return pd.DataFrame(rows)


@styled
def fusion_figure(document: dict[str, Any], precision: str) -> Axes:
    """Draw which layers an engine makes one step of (figure 2-3): a line a step, a dot a layer."""
    steps = [layers for _, *layers in document["engines"][precision] if layers]
    order = {name: place for place, name in enumerate(_in_order(steps))}
    ax = new_axes(None, 900, 13 * len(steps) + 110)
    for line, layers in enumerate(steps):
        places = [order[name] for name in layers]
        ax.axhline(line, color=GRID, linewidth=0.6)
        colour = PALETTE[5] if len(places) > 1 else PALETTE[0]
        ax.plot([min(places), max(places)], [line, line], color=colour, linewidth=2)
        ax.plot(places, [line] * len(places), "o", color=colour, markersize=5)
    ax.set_xticks(range(len(order)), [plain(name, 12) for name in order], rotation=90, fontsize=9)
    ax.set_yticks([])
    ax.set_ylim(len(steps), -1)
    ax.set_ylabel("steps of the engine, in order")
    ax.xaxis.tick_top()
    return ax


def _in_order(steps: list[list[str]]) -> list[str]:
    """Return the layers in the order of the network, as far as the steps tell it."""
    return list(dict.fromkeys(name for layers in steps for name in layers))
