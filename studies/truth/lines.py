"""Which line carries the cause: of each planted family, is it the planted one that is named?

Run: ``python -m studies.truth.lines [--out FILE]``. ``--export BASE LEVEL_3 --folder DIR`` makes
the recorded tables from two reports of Nsight Compute with counters of single instructions: what
perfml reads of them, without the machine's folders and without the sources of CUDA's headers, which
such reports hold too.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.datasets import find
from perfml.explain import explain, make_side
from perfml.explain.lines import with_lines_of
from perfml.explain.results import LayerDiff, file_name
from perfml.readers import Source, read
from perfml.readers.ncu.instructions import Wanted, instructions
from perfml.readers.ncu.report import opened
from perfml.tables import KERNEL_COLUMNS, replacing
from perfml.util.machine_code import Place, of_toolkit
from studies.truth.scores import hand_over
from studies.workloads.planted.families import BY_NAME

SIDES = ("base", "level_3")
PLANTED: dict[str, str] = {
    "load_stride": r"in\[strided\(",
    "store_stride": r"out\[at\] = fmaf",
    "bank_conflicts": r"mine\[32 \* k",
    "divergence": r"switch \(path\)",
    "barriers": r"__syncthreads",
    "dependency": r"a\[c\] = fmaf\(a\[c\]",
    "load_chain": r"load_(l2|row)\(",
    "special": r"exp2_fast\(",
    "doubles": r"wide\[c\] = fma\(wide",
    "code_footprint": r"PIECES64|switch",
    "confound_loads_occupancy": r"in\[strided\(",
    "confound_conflicts_registers": r"mine\[32 \* k",
    "confound_divergence_stores": r"switch \(path\)",
    "confound_special_barriers": r"exp2_fast\(",
    "atomic_contention": r"atomicMax\(",
    "atomic_count": r"atomicMax\(",
    "confound_atomics_occupancy": r"atomicMax\(",
    "shared_atomics": r"atomicAdd\(&bins",
    "local_array": r"a = fmaf\(a,|indexed\[c",
    "spills": r"a\[c\] = fmaf\(a\[c\]",
    "narrow_access": r"to\[at & mask\] = from",
    "redundant_traffic": r"x = wide\[",
    "confound_traffic_arithmetic": r"x = wide\[",
    "reloaded_values": r"load_l2\(from\)",
    "async_copy": r"tile\[0\]\[own\] = in\[",
    "memory_fence": r"__threadfence\(",
    "constant_divergence": r"table\.at\[",
    "conversions": r"static_cast<int>\(x",
    "reciprocal_roots": r"rsqrt_unit\(x",
    "doubles_from_none": r"wide\[c\] = fma\(wide",
    "bit_rotations": r"__funnelshift_l\(",
    "address_arithmetic": r"\(at \^ key\) - k\) \* inverse",
    "lane_exchange": r"__shfl_xor_sync\(",
    "tensor_cores": r"sum\[0\]\[s\]\[e\] = fmaf",
    "bulk_depth": r"barrier_wait\(",
    "bulk_width": r"bulk_copy\(|fetch\(i",
}
"""What stands in the line that costs the time at the slow level. Of the other families no line
carries the cause: occupancy, uneven or tiny blocks, the tail, launches."""


@dataclass(frozen=True)
class Named:
    """The line that was named for a family's planted cause; None where none was."""

    family: str
    term: str | None = None
    place: str | None = None
    called_at: str | None = None
    share: float | None = None
    right: bool = False


def export(reports: Sequence[Path], folder: Path) -> None:
    """Write what perfml reads of the reports of both sides."""
    folder.mkdir(parents=True, exist_ok=True)
    code, lines = [], []
    for side, path in zip(SIDES, reports, strict=True):
        kernels = read(path)
        name = f"kernels_{side}.parquet"
        with replacing(folder / name) as place:
            frame = kernels.frame.assign(run_id=side)
            empty = frame.columns[frame.isna().all()].difference(KERNEL_COLUMNS)
            frame.drop(columns=empty).to_parquet(place, index=False)
        found = instructions(Source(path), Wanted(set(kernels.frame["kernel"])))[0]
        for kernel, table in found.items():
            places = [_written(places) for places in table.pop("callers")]
            files = table["file"].map(_shared, na_action="ignore")
            code.append(table.assign(side=side, kernel=kernel, file=files, callers=places))
        lines.append(pd.DataFrame(_sources(path), columns=["file", "line", "text"]))
    with replacing(folder / "instructions.parquet") as place:
        whole = pd.concat(code, ignore_index=True)
        counted = [name for name in whole if whole[name].dtype == float and whole[name].any()]
        kept = ["side", "kernel", "offset", "sass", "file", "line", "callers"]
        columns = [*kept, *(name for name in counted if name not in kept)]
        whole[columns].to_parquet(place, index=False, compression="zstd", compression_level=19)
    with replacing(folder / "source.csv") as place:
        pd.concat(lines).drop_duplicates(["file", "line"]).to_csv(place, index=False)


def _sources(path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield the lines of the planted sources that a report holds; not those of CUDA's headers."""
    with opened(Source(path)) as launches:
        texts = {name: text for each in launches for name, text in each.source_files().items()}
    for name, text in texts.items():
        if file_name(name).endswith((".cu", ".cuh")):
            for number, line in enumerate(text.splitlines(), 1):
                if line.strip():
                    yield file_name(name), number, line.strip()


def _written(places: Sequence[Place]) -> str:
    return " ".join(f"{_shared(place.file)}:{place.line}" for place in places)


def _shared(file: str) -> str:
    """Return a file's name without the machine's folders; of a header of CUDA it is still told."""
    return f"/cuda/include/{file_name(file)}" if of_toolkit(file) else file_name(file)


def _read(text: str) -> tuple[Place, ...]:
    parts = (each.rpartition(":") for each in text.split())
    return tuple(Place(file, int(line)) for file, _, line in parts)


def details(folder: Path) -> tuple[LayerDiff, ...]:
    """Return the explanations of all families of a recording, with lines."""
    frames = [pd.read_parquet(folder / f"kernels_{side}.parquet") for side in SIDES]
    sides = [make_side(name, frame) for name, frame in zip(SIDES, frames, strict=True)]
    layers = list(dict.fromkeys(frames[0]["layer"].dropna()))
    table = pd.read_parquet(folder / "instructions.parquet")
    table["callers"] = table["callers"].map(_read)
    code = [
        {str(kernel): rows.reset_index(drop=True) for kernel, rows in part.groupby("kernel")}
        for _, part in table.groupby("side")
    ]
    explained = explain(sides[0], sides[1], layers=layers, model=None)
    return with_lines_of(explained, code[0], code[1]).details


def named(detail: LayerDiff, texts: dict[str, str]) -> Named | None:
    """Return the line named for a family's planted cause; None where no line can carry it."""
    family = detail.layer.rsplit("_s", 1)[0]
    if family not in PLANTED:
        return None
    accepted = BY_NAME[family].cause.terms
    line = next((line for line in detail.lines if line.term in accepted), None)
    if line is None:
        return Named(family)
    place = None if line.file is None else f"{file_name(line.file)}:{line.line}"
    said = [texts.get(each, "") for each in (place, line.called_at) if each]
    right = any(re.search(PLANTED[family], text) for text in said)
    return Named(family, line.term, place, line.called_at, line.share, right)


def measure(folder: Path) -> list[Named]:
    """Return the line that is named for each family of a recording."""
    source = pd.read_csv(folder / "source.csv")
    texts = {
        f"{file}:{line}": str(text)
        for file, line, text in zip(source["file"], source["line"], source["text"], strict=True)
    }
    found = (named(detail, texts) for detail in details(folder))
    return [each for each in found if each is not None]


def recordings() -> list[Path]:
    """Return the folders with recorded instructions."""
    folder = find("h200-planted-causes")
    assert folder is not None
    return sorted(path.parent for path in folder.glob("lines*/instructions.parquet"))


def summary() -> dict[str, Any]:
    """Return how often the planted line is named, and every answer."""
    rows = [row for folder in recordings() for row in measure(folder)]
    return {
        "cases": len(rows),
        "right": sum(row.right for row in rows),
        "rows": [asdict(row) for row in rows],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or export."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--export", type=Path, nargs=2, metavar=("BASE", "LEVEL_3"))
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args(arguments)
    if given.export:
        if given.folder is None:
            parser.error("--export needs --folder")
        export(given.export, given.folder)
        return 0
    hand_over(summary(), given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
