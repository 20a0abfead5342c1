"""One picture: how the kernels of each planted family answer to each experiment and mutation.

``python -m studies.experiments.measure`` writes it as ``responses.svg``.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from perfml.experiments.mutation.programs import MUTATIONS
from perfml.experiments.responses import Responses
from studies.experiments.repaired import recorded

CONDITIONS = ("sm_most", "sm_half", "sm_quarter", "warps_half", "l1_small", "l2_less", "l2_cold",
              "dram_traffic", "l2_traffic", "atomic_traffic")  # fmt: skip
_WIDTH, _HEIGHT, _LEFT, _TOP = 30, 15, 190, 120
_STYLE = (
    "text{font:9px sans-serif;fill:#222}.n{text-anchor:middle}.r{text-anchor:end}"
    ".h{font-weight:bold}"
)
_DEEPEST = math.log(4)
"""Of a ratio: from 4 on, and to a quarter, the colour does not change."""


def rows() -> dict[str, Responses]:
    """Return the launches of the highest level by family; those with mutants where there are."""
    launches = {**recorded("planted-level_3"), **recorded("repairs-level_3")}
    return {name[:-3]: each for name, each in sorted(launches.items()) if name.endswith("_s0")}


def svg(launches: dict[str, Responses]) -> str:
    """Return the picture; a cell has the time over that of its control."""
    known = {name for each in launches.values() for name in each.by_condition}
    columns = [*CONDITIONS, *(name for name in MUTATIONS if name in known)]
    width = _LEFT + _WIDTH * len(columns) + 60  # the last name leans over the edge
    height = _TOP + _HEIGHT * len(launches) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Time under each experiment, and without each habit, over its control</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for at, name in enumerate(columns):
        x = _LEFT + _WIDTH * at + 18
        words = html.escape(name.replace("_", " "))
        parts.append(f'<text transform="translate({x},{_TOP - 6}) rotate(-55)">{words}</text>')
    for place, (family, launch) in enumerate(launches.items()):
        y = _TOP + _HEIGHT * place
        words = html.escape(family.replace("_", " "))
        parts.append(f'<text class="r" x="{_LEFT - 6}" y="{y + 11}">{words}</text>')
        parts += _cells(launch, columns, y)
    middle = _LEFT + _WIDTH * len(CONDITIONS) - 0.5
    parts.append(f'<path d="M{middle},20V{height}" stroke="#222"/>')
    for x, words in (
        (4, "planted cause"),
        (_LEFT + 4, "less of a resource"),
        (middle + 6, "mutants"),
    ):
        parts.append(f'<text class="h" x="{x}" y="14">{words}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _cells(launch: Responses, columns: Sequence[str], y: int) -> list[str]:
    made = []
    for at, name in enumerate(columns):
        ratio = launch.ratio(name)
        if math.isnan(ratio):
            continue
        x = _LEFT + _WIDTH * at
        size = f'x="{x}" y="{y}" width="{_WIDTH - 1}" height="{_HEIGHT - 1}"'
        made.append(f'<rect {size} fill="{_colour(ratio)}"/>')
        if abs(math.log(ratio)) > 0.05:
            text = f"{ratio:.2f}" if ratio < 9.95 else f"{ratio:.0f}"
            made.append(f'<text class="n" x="{x + _WIDTH // 2}" y="{y + 11}">{text}</text>')
    return made


def _colour(ratio: float) -> str:
    """Return red for longer, blue for shorter, paler the nearer to 1."""
    depth = min(abs(math.log(ratio)) / _DEEPEST, 1.0)
    towards = (214, 96, 77) if ratio > 1 else (67, 147, 195)
    mixed = [round(245 + (each - 245) * depth) for each in towards]
    return "#" + "".join(f"{each:02x}" for each in mixed)
