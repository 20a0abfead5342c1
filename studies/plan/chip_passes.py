"""Ask what sets of metrics cost on chips that are not here.

``python -m studies.plan.chip_passes`` writes ``perfml/metrics/passes_cupti.csv``: the sets of
``passes.csv``, what Nsight Compute took for each on an H200, and what CUPTI plans for each chip.
Nothing is measured: the library that CUPTI plans passes with is asked (`chip_passes.cpp`), from
the package ``nvidia-cuda-cupti`` or the CUDA toolkit.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from collectors.profilers.cupti import COMPUTED
from collectors.profilers.inject import toolkit
from perfml.metrics import load_catalogue
from perfml.metrics.passes import read_sets
from perfml.tables import replacing

SOURCE = Path(__file__).with_suffix(".cpp")
TABLE = Path(__file__).parents[2] / "perfml" / "metrics" / "passes_cupti.csv"
CHIPS = {"GH100": "H100, H200", "GA100": "A100", "AD102": "L40, RTX 4090", "GB100": "B200"}
"""Chips as CUPTI names them, and cards that have them."""


def build(folder: Path) -> Path:
    """Compile the program that asks; it needs g++ and CUPTI's headers and libraries."""
    cupti = toolkit()
    program = folder / "chip_passes"
    libraries = cupti.library.parent
    command = ["g++", "-std=c++17", "-O1", "-w", str(SOURCE), "-o", str(program)]
    command += [f"-I{path}" for path in cupti.include]
    command += [str(libraries / "libnvperf_host.so"), f"-Wl,-rpath,{libraries}"]
    subprocess.run(command, check=True, capture_output=True)
    return program


def request(metrics: Sequence[str]) -> list[str]:
    """Return the counters of a set, with the duration that every request holds."""
    names = load_catalogue().ncu_request(tuple(metrics))
    counted = [name for name in names if name not in COMPUTED]
    return list(dict.fromkeys([*counted, "gpu__time_duration.sum"]))


def passes_on(chip: str, requests: Sequence[Sequence[str]], program: Path) -> list[int | None]:
    """Return the passes of each request on a chip; None where it lacks one of the metrics."""
    text = "".join(f"{' '.join(names)}\n" for names in requests)
    answered = subprocess.run(
        [str(program), chip], input=text, check=True, capture_output=True, text=True
    )
    counts = [int(line.split()[0]) for line in answered.stdout.splitlines()]
    return [count if count > 0 else None for count in counts]


def main() -> int:
    """Write the table."""
    sets = read_sets()
    requests = [request(metrics) for _, _, metrics in sets]
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        columns = {chip: passes_on(chip, requests, program) for chip in CHIPS}
    with replacing(TABLE) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        cards = "; ".join(f"{chip}: {names}" for chip, names in CHIPS.items())
        file.write("# Passes of sets of metrics as CUPTI 13 plans them for a chip; not measured.\n")
        file.write(f"# {cards}. Empty: the chip lacks one of the metrics.\n")
        file.write("# by: python -m studies.plan.chip_passes; ncu is what passes.csv has (H200)\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["kind", "ncu", *CHIPS, "metrics"])
        for row, (kind, ncu, metrics) in enumerate(sets):
            counts = ["" if column[row] is None else column[row] for column in columns.values()]
            writer.writerow([kind, ncu, *counts, " ".join(metrics)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
