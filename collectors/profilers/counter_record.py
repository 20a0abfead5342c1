"""Read what the injected range profiler (``injected/range_profiler.cpp``) wrote for one process.

One line a fact, fields parted by tabs. ``T``: a timed kernel. ``M``: the
metrics of a group. ``R``: a measured launch and its values. ``D``: two iterations that launch
different kernels. ``# ``: everything else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from collectors.profilers.process import ProfilerError

_SEPARATOR = "\x1f"
_ROW_FIELDS = 14
_TIMED_FIELDS = 11
"""Of a kernel; a copy or a fill has its bytes as one more."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch, or one copy or fill of memory, as the traced program made it."""

    # Place in the order of launches of its process; launches of one CUDA graph share it
    sequence: int
    profiled: bool  # whether it lay between cudaProfilerStart and cudaProfilerStop
    # start_ns, end_ns: on the GPU's clock
    start_ns: int
    end_ns: int
    # grid, block: like `(4096, 1, 1)`
    grid: str
    block: str
    instance: int  # number of the innermost range's instance, 0 outside every range
    ranges: tuple[str, ...]  # names of the NVTX push/pop ranges around it, outermost first
    kernel: str  # demangled name; of a copy like `Memcpy HtoD (Pageable -> Device)`
    bytes: int | None = None  # that a copy or fill moves; None for a kernel


@dataclass(frozen=True)
class MeasuredLaunch:
    """One kernel launch and its counters; what `Launch` has, too, is the same."""

    set_number: int  # which complete measurement of the iteration it belongs to, from 0
    place: int  # its place among the launches of the iteration
    # context, stream: numbers that tell contexts and streams of a process apart
    context: int
    stream: int
    grid: str
    block: str
    registers: int | None  # a thread's; None where the driver does not say
    # static_shared, dynamic_shared: bytes of shared memory of a block
    static_shared: int | None
    dynamic_shared: int
    blocks_per_multiprocessor: int | None  # as many as fit; None where the driver does not say
    instance: int
    ranges: tuple[str, ...]
    kernel: str
    values: dict[str, float]  # metric to value

    @property
    def identity(self) -> tuple[str, str, str, int]:
        """What the same launch of another iteration has in common with it."""
        return self.kernel, self.grid, self.block, self.context


@dataclass(frozen=True)
class Difference:
    """Where two iterations part: the launch of either at one place."""

    first_iteration: str
    second_iteration: str
    place: int
    first: str
    second: str

    def __str__(self) -> str:
        return (
            f"{self.second_iteration} differs from {self.first_iteration} at launch {self.place}: "
            f"{self.second[:120]} instead of {self.first[:120]}"
        )


@dataclass(frozen=True)
class PassCost:
    """What one counter pass of a group of metrics took.

    Launches, and seconds to start, for the work, and to stop.
    """

    group: int
    number: int
    launches: int
    start_s: float
    work_s: float
    stop_s: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.start_s + self.work_s + self.stop_s


@dataclass(frozen=True)
class Machine:
    """What the library says of the device; the numbers are 0 where the driver did not say."""

    device: str = ""
    capability: str = ""
    chip: str = ""
    cupti: str = ""
    multiprocessors: int = 0
    threads_per_multiprocessor: int = 0


@dataclass
class CounterRecord:
    """What one process left."""

    timed: list[Launch] = field(default_factory=list)  # launches timed without counters
    # Measured launches of all groups, as they were taken
    rows: list[MeasuredLaunch] = field(default_factory=list)
    # group_metrics, group_passes: metrics of each group, and the passes they take
    group_metrics: dict[int, tuple[str, ...]] = field(default_factory=dict)
    group_passes: dict[int, int] = field(default_factory=dict)
    # Groups that were measured as often as was asked
    finished_groups: set[int] = field(default_factory=set)
    # The group of instrumented code, if it is run apart from the hardware's counters
    apart: int | None = None
    # Groups of instrumented code that were measured once, since every measurement executed as many
    # instructions: their values hold for all measurements
    once: set[int] = field(default_factory=set)
    groups: int = 0  # into how many groups the metrics fall; 0 if none was begun
    # Whether the process begins its iterations anew with other work (`injected/parts.h`)
    parts: bool = False
    unit: str = "none"  # `nvtx`, `region`, `program` or `none`: what the process repeats
    region: bool = False  # whether it calls cudaProfilerStart
    # units, outside, launches, all_launches: iterations seen, those outside such a region, launches
    # of the last one, and of all
    units: int = 0
    outside: int = 0
    launches: int = 0
    all_launches: int = 0
    # windows, seen_s: in how many windows a server was recorded, and how long they were together
    windows: int = 0
    seen_s: float = 0.0
    pass_costs: list[PassCost] = field(default_factory=list)  # every pass that was taken, in order
    missing: list[str] = field(default_factory=list)  # metrics that the chip does not have
    # differences, errors: what went wrong
    differences: list[Difference] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    unfinished: str = ""  # how far the last group came
    graph: bool = False  # whether an iteration replays a CUDA graph
    ended: bool = False  # whether the process wrote its last line
    launched: bool = False  # whether it launched anything
    machine: Machine = field(default_factory=Machine)

    @property
    def complete(self) -> bool:
        """Whether every group was measured."""
        return self.groups > 0 and len(self.finished_groups) == self.groups

    @property
    def region_only(self) -> bool:
        """Whether iterations of a further run count in the program's region alone."""
        return self.region and self.unit == "nvtx"


def read_record(path: Path) -> CounterRecord:
    """Read the record of one process.

    Raises `ProfilerError` if a line is damaged, or records of the timed part were lost.
    """
    record = CounterRecord()
    notes: dict[str, str] = {}
    text = path.read_text(encoding="utf-8", errors="replace")
    # a process that was killed may have left half a line
    for line in text[: text.rfind("\n") + 1].split("\n")[:-1]:
        try:
            _read_line(line, record, notes)
        except (ValueError, IndexError, KeyError) as error:
            msg = "a line of the record is damaged"
            cure = "The disk may be full; collect again."
            raise ProfilerError(msg, where=path.name, found=line[:120], cure=cure) from error
    windows, _, seen = notes.get("windows", "0 0").partition(" ")
    record.windows, record.seen_s = int(windows), float(seen)
    if notes.get("dropped", "0") != "0":
        msg = "CUPTI lost records"
        cure = "Time fewer iterations."
        raise ProfilerError(msg, found=f"{notes['dropped']} launches", cure=cure)
    record.machine = Machine(
        device=notes.get("device", ""),
        capability=notes.get("capability", ""),
        chip=notes.get("chip", ""),
        cupti=notes.get("cupti", ""),
        multiprocessors=int(notes.get("multiprocessors", 0)),
        threads_per_multiprocessor=int(notes.get("threads_per_multiprocessor", 0)),
    )
    record.unit = notes.get("unit", "none")
    record.region = notes.get("region") == "1"
    record.units, record.outside = int(notes.get("units", 0)), int(notes.get("outside", 0))
    record.launches, record.groups = int(notes.get("launches", 0)), int(notes.get("groups", 0))
    record.all_launches = int(notes.get("all", 0))
    record.launched = "launched" in notes or record.all_launches > 0
    record.unfinished = notes.get("unfinished", "")
    record.parts = "parts" in notes
    record.graph, record.ended = "graph" in notes, "end" in notes
    record.timed.sort(key=lambda launch: (launch.sequence, launch.start_ns))
    return record


def _read_line(line: str, record: CounterRecord, notes: dict[str, str]) -> None:
    kind, _, rest = line.partition("\t")
    if line.startswith("# "):
        word, _, said = line[2:].partition(" ")
        _read_note(word, said, record)
        notes[word] = said
    elif kind == "T":
        record.timed.append(_read_launch(rest.split("\t")))
    elif kind == "M":
        number, *names = rest.split("\t")
        record.group_metrics[int(number)] = tuple(names)
    elif kind == "D":
        first, second, place, left, right = rest.split("\t")
        record.differences.append(Difference(first, second, int(place), left, right))
    elif kind == "R":
        record.rows.append(_read_row(rest.split("\t"), record))
    else:
        raise ValueError(kind)


def _read_note(word: str, said: str, record: CounterRecord) -> None:
    if word == "error":
        record.errors.append(said)
    elif word == "missing":
        record.missing.append(said)
    elif word == "group":
        number, _, passes = said.split(" ")
        record.group_passes[int(number)] = int(passes)
    elif word == "pass":
        launches, number, *seconds = said.split(" ")
        group = next(reversed(record.group_passes))
        record.pass_costs.append(PassCost(group, int(number), int(launches), *map(float, seconds)))
    elif word == "apart":
        record.apart = int(said)
    elif word == "once":
        record.once.add(int(said))
    elif word == "done":
        record.finished_groups.add(int(said.split(" ")[1]))


def _read_row(cells: list[str], record: CounterRecord) -> MeasuredLaunch:
    names = record.group_metrics[int(cells[0])]
    values = [float(cell) for cell in cells[_ROW_FIELDS:]]
    return MeasuredLaunch(
        set_number=int(cells[1]),
        place=int(cells[2]),
        context=int(cells[3]),
        stream=int(cells[4]),
        grid=cells[5],
        block=cells[6],
        registers=_known(cells[7]),
        static_shared=_known(cells[8]),
        dynamic_shared=int(cells[9]),
        blocks_per_multiprocessor=_known(cells[10]),
        instance=int(cells[11]),
        ranges=tuple(cells[12].split(_SEPARATOR)) if cells[12] else (),
        kernel=cells[13],
        values=dict(zip(names, values, strict=True)),
    )


def _known(cell: str) -> int | None:
    return None if int(cell) < 0 else int(cell)


def _read_launch(cells: list[str]) -> Launch:
    if not _TIMED_FIELDS <= len(cells) <= _TIMED_FIELDS + 1:
        raise ValueError(cells)
    return Launch(
        sequence=int(cells[0]),
        profiled=cells[1] == "1",
        start_ns=int(cells[2]),
        end_ns=int(cells[3]),
        grid=cells[6],
        block=cells[7],
        instance=int(cells[8]),
        ranges=tuple(cells[9].split(_SEPARATOR)) if cells[9] else (),
        kernel=cells[10],
        bytes=int(cells[11]) if len(cells) > _TIMED_FIELDS else None,
    )
