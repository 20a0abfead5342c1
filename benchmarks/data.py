"""Large exports made of the recorded one: the same cells, other numbers."""

from __future__ import annotations

import csv
import lzma
import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "tests" / "data" / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz"
REPORT = RECORDED.with_name("yolov4tiny_cudnn_b1_fp32.ncu-rep.xz")
IDENTITY = 13
"""Columns before the metrics: ids, process, ranges, kernel, shapes, device."""

_NUMBER = re.compile(r"-?[\d,]+(\.\d+)?")


def recorded_rows() -> tuple[list[str], list[str], list[list[str]]]:
    """Return header, units and rows of the recorded export."""
    text = lzma.decompress(RECORDED.read_bytes()).decode()
    header, units, *rows = csv.reader(text.splitlines())
    return header, units, rows


def chosen_metrics() -> list[str]:
    """Return the 24 metrics of the recording that perfml asks ncu for."""
    from perfml.metrics import load_catalogue

    header, _, _ = recorded_rows()
    wanted = load_catalogue().ncu_request(["published"])
    found = [name for name in dict.fromkeys(wanted) if name in header]
    # a count with thousands separators is what trips a plain reader
    return [*found, "launch__thread_count"][:24]


def write_export(path: Path, kernels: int, metrics: list[str] | None, seed: int = 0) -> None:
    """Write an export of `kernels` launches, in iterations like the recorded one.

    Parameters
    ----------
    metrics
        Columns after the identity; None for all that the recording has.
    """
    header, units, rows = recorded_rows()
    names = header[IDENTITY:] if metrics is None else metrics
    keep = [*range(IDENTITY), *(header.index(name) for name in names)]
    rng = np.random.default_rng(seed)
    noise = 1 - 0.02 * rng.random((1009, len(keep)))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow([header[place] for place in keep])
        writer.writerow([units[place] for place in keep])
        recorded = [[_cell(row[place]) for place in keep] for row in rows]
        varied = [header[place] in set(names) and bool(units[place]) for place in keep]
        for number in range(kernels):
            cells = recorded[number % len(rows)]
            factors = noise[number % len(noise)]
            line = [
                _varied(cell, factor) if vary and cell[1] is not None else cell[0]
                for cell, vary, factor in zip(cells, varied, factors, strict=True)
            ]
            line[0] = str(number)
            line[4] = line[4].replace("iter_0", f"iter_{number // len(rows)}")
            writer.writerow(line)


def _cell(text: str) -> tuple[str, float | None, int, bool]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        return text, None, 0, False
    decimals = len(match.group(1) or ".") - 1
    return text, float(text.replace(",", "")), decimals, "," in text


def _varied(cell: tuple[str, float | None, int, bool], factor: float) -> str:
    _, value, decimals, grouped = cell
    number = (value or 0.0) * factor
    return f"{number:,.{decimals}f}" if grouped else f"{number:.{decimals}f}"
