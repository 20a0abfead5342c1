"""Draw the logo: ``python docs/_site/logo.py`` writes ``docs/logo.svg``.

It is a roofline of recorded data: the convolutions of YOLOv4-Tiny on an H200 (cuDNN, fp32, batch
8) under the two roofs of the device, both axes logarithmic. The three that take longest are orange.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
LOGO = ROOT / "docs/logo.svg"
WHERE = ["batch=8", "backend=cudnn", "precision=fp32"]
_SIZE, _LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 58, 14, 56
_ROOF = 'fill="none" stroke="#fff" stroke-width="3.5" stroke-linejoin="round"'
_INTENSITY, _RATE = (2.0, 800.0), (1e12, 5.1e13)
"""Ends of the axes: FLOP/byte of device memory, FLOP/s."""


def svg() -> str:
    """Return the logo."""
    from perfml.explain import known_peaks, roofline
    from perfml.explain.load import load_tables

    layers, _ = load_tables("h200-yolov4-tiny", WHERE)
    placed = roofline(layers.query("iteration == 0")).sort_values("time_us")
    peaks = known_peaks("NVIDIA H200").values
    ridge = peaks["fp32"] / peaks["dram"]
    roof = [(_INTENSITY[0], _INTENSITY[0] * peaks["dram"]), (ridge, peaks["fp32"])]
    roof.append((_INTENSITY[1], peaks["fp32"]))
    line = " ".join(f"{_x(intensity):.1f},{_y(rate):.1f}" for intensity, rate in roof)
    dots = []
    for rank, row in enumerate(reversed(list(placed.itertuples()))):
        slow = rank < 3
        look = 'r="3.6" fill="#ffb000"' if slow else 'r="2" fill="#9fd8d2"'
        x, y = _x(row.dram_intensity), _y(row.flop_rate)
        dots.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" {look}/>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {_SIZE}" role="img">',
            "<title>perfml: layers of a network under the roofline of an H200</title>",
            f'<rect width="{_SIZE}" height="{_SIZE}" rx="12" fill="#00504a"/>',
            f'<polyline points="{line}" {_ROOF}/>',
            *reversed(dots),
            "</svg>",
            "",
        ]
    )


def _x(intensity: float) -> float:
    low, high = np.log(_INTENSITY)
    return float(_LEFT + (np.log(intensity) - low) / (high - low) * (_RIGHT - _LEFT))


def _y(rate: float) -> float:
    low, high = np.log(_RATE)
    return float(_BOTTOM - (np.log(rate) - low) / (high - low) * (_BOTTOM - _TOP))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    LOGO.write_text(svg(), encoding="utf-8")
