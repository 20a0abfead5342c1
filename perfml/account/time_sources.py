"""Where times come from, in words: a time taken while counters were read is not the program's.

A counter profiler runs launches one by one and, as Nsight Compute does by default, flushes the
caches before each. A table says of every time who took it (`perfml.tables.KERNEL_OPTIONAL`);
whoever shows a time shows this too.

Here to change: which sources are a profiler's own, and what is said of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pandas as pd

SEPARATOR = "+"
"""Between the sources of a layer whose launches were timed in different ways."""

UNDER_PROFILER = {
    "ncu": "Nsight Compute's, launch by launch and (its default) with cold caches",
    "cupti": "CUPTI's, taken while counters were read",
}
"""Sources whose times were taken while counters were read; all others read none meanwhile."""


def joined_sources(sources: Iterable[str]) -> str:
    """Return the source of a layer: that of its launches, each once, by name.

    Examples
    --------
    >>> joined_sources(["timing", "apportioned", "timing"])
    'apportioned+timing'
    """
    return SEPARATOR.join(sorted(set(sources)))


def _sources(table: pd.DataFrame) -> set[str]:
    """Return who took the times of a table; the sources of a layer one by one."""
    told = table["time_source"].dropna().unique() if "time_source" in table.columns else ()
    return {source for each in told for source in str(each).split(SEPARATOR)}


def time_note(table: pd.DataFrame, name: str = "") -> str | None:
    """Say that times of a Kernels or Layers table come from under a profiler; None if none does.

    `name` is that of the table's side, where there are several.
    """
    if "time_source" not in table.columns:
        return None
    timed = table["time_us"].notna() if "time_us" in table.columns else slice(None)
    sources = table.loc[timed, "time_source"]
    return counted_note(Counter(sources.dropna().astype(str)), len(sources), name)


def counted_note(counts: Mapping[str, int], total: int, name: str = "") -> str | None:
    """Say what `time_note` says, of `total` rows of which each source has some."""
    parts = []
    for source, text in UNDER_PROFILER.items():
        rows = sum(int(n) for sources, n in counts.items() if source in sources.split(SEPARATOR))
        if rows:
            parts.append(text if rows == total else f"{text} (in {rows} of {total} rows)")
    if not parts:
        return None
    start = f"{name}: times" if name else "Times"
    return (
        f"{start} from under the profiler: {' and '.join(parts)}. The program's own times "
        "differ; perfml collect or a trace has them, and copies and gaps between kernels too."
    )


def only_kernels(*tables: pd.DataFrame) -> bool:
    """Return whether all times of some tables come from under a profiler that times kernels alone.

    Examples
    --------
    >>> only_kernels(pd.DataFrame({"time_source": ["ncu"]}))
    True
    """
    return all(each and each <= set(UNDER_PROFILER) for each in map(_sources, tables))


def not_comparable(baseline: tuple[str, pd.DataFrame], target: tuple[str, pd.DataFrame]) -> str:
    """Say that times of two sides do not compare, and which to believe; empty where they do.

    A side is a name and a Kernels or Layers table. They do not compare where all times of one side
    come from under a profiler of counters, and none of the other.
    """
    under = set(UNDER_PROFILER)
    for (program, own), (profiler, other) in ((baseline, target), (target, baseline)):
        sources, others = _sources(own), _sources(other)
        if sources and others and not sources & under and others <= under:
            return (
                f"not comparable: believe {program} for the time of the program. In {profiler} a "
                "profiler ran launches one by one, with its own state of caches and clocks"
            )
    return ""


def time_notes(*sides: tuple[str, pd.DataFrame]) -> tuple[str, ...]:
    """Return what `time_note` says of each side, by its name."""
    bare = {time_note(table) for _, table in sides}
    if len(sides) > 1 and len(bare) == 1 and None not in bare:
        return tuple(time_note(table, "both sides") for _, table in sides[:1])  # type: ignore[misc]
    notes = (time_note(table, name) for name, table in sides)
    return tuple(note for note in notes if note is not None)
