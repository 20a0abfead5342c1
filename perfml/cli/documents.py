"""What ``--json`` prints, as types: `schema_of` turns them into JSON Schema.

Where a result is a dataclass, that is the type (`perfml.cli.verbs`); what a verb alone puts
together stands here, key by key. `perfml.cli.output.VERSION` grows when a key goes or changes
its meaning; new keys come without.

Here to change: add a field to the dataclass, or a key to a verb's output and to its document;
`tests/cli/test_schema.py` validates what every verb prints, and an undeclared key fails there.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from collectors.collect import RunResult
from collectors.doctor import Check
from collectors.sweep.manifest import State
from perfml.account.device_time import DeviceTime
from perfml.cli.output import VERSION
from perfml.cli.verbs import documents_of
from perfml.errors import Failed
from perfml.explain.roofs.peaks import Peaks
from perfml.ingest.merge.write import Run
from perfml.metrics.catalogue import Metric
from perfml.reproduce.claims import Claim
from perfml.util.json_values import Document, json_schema

_OBJECT = dict[str, Any]

_TEXTS = list[str]

_METRIC_RANGE = Document(
    "MetricRange",
    {"metric": str, "rows": int, "low": float, "high": float},
    words="A metric of a table.",
)

_KERNEL_TIMES = Document(
    "KernelTimes",
    {
        "kernel": str,
        "calls": int,
        "total_us": float,
        "mean_us": float,
        "least_us": (float, "null where rows are means of launches"),
        "largest_us": (float, "null where rows are means of launches"),
        "share": (float, "of the time of all kernels"),
    },
    words="How often a kernel was launched, and how long it took.",
)

_DATASET = Document("Dataset", {"name": str, "what": str, "path": str}, words="A data set.")

_PROMISED = Document(
    "Promised",
    {
        "cause": (str, "id of what the answer for the older side named"),
        "layers": _TEXTS,
        "gone": (bool, "whether the newer answer promises less than a tenth of it"),
        "probability": (float, "of being right, as it was said"),
        "low_us": (float, "of the gain that was promised, for all these layers"),
        "high_us": float,
        "measured_us": (float, "what these layers take less, by the clock"),
    },
    words="A finding of the older side's answer, and what came.",
)

_PLANNED_RUN = Document(
    "PlannedRun",
    {"run_id": str, "state": Literal["done", "planned"]},
    words="A run of a sweep's plan.",
)

_KERNEL_LEVEL = Document(
    "KernelLevel",
    {
        "kernel": str,
        "launches": int,
        "time_us": (float, "microseconds of one launch, the mean"),
        "share": (float | None, "of the profile's kernel time"),
        "compute": float | None,
        "memory": float | None,
        "issue": float | None,
        "first_launch": (int, "place in the profile, from 0: FILE@3 names the fourth"),
    },
    words="How near a kernel is to its limits: fractions of the peak, null where not measured.",
)

_ROOF_ROW = Document(
    "RoofRow",
    {
        "layer": str | None,
        "kernel": NotRequired[str],
        "backend": str | None,
        "precision": str | None,
        "batch": int | None,
        "iteration": NotRequired[int],
        "time_us": float,
        "ncu_time_us": NotRequired[float],
        "flops": float,
        "flops_source": Literal["shape", "counted", "derived", "tensor pipe"] | None,
        "flop_rate": float,
        "dram_bytes": NotRequired[float],
        "dram_intensity": NotRequired[float],
        "dram_rate": NotRequired[float],
        "l2_bytes": NotRequired[float],
        "l2_intensity": NotRequired[float],
        "l2_rate": NotRequired[float],
        "l1_bytes": NotRequired[float],
        "l1_intensity": NotRequired[float],
        "l1_rate": NotRequired[float],
        "bound": str,
        "fraction": float,
    },
    words="A layer or a kernel under its device's roofs.",
)

_FIGURE_KIND = Document(
    "FigureKind", {"figure": str, "what": str, "options": str}, words="A figure that can be drawn."
)

_ALONE = (
    _KERNEL_LEVEL,
    Document(
        "Ingest",
        {
            "out": str,
            "kernels": int,
            "backends": _TEXTS,
            "runs": list[Run],
            "metrics": _TEXTS,
            "warnings": _TEXTS,
            "time_notes": _TEXTS,
        },
        words="Profiles read into one table.",
    ),
    Document(
        "Inspect",
        {
            "table": str,
            "kind": Literal["kernels", "layers"],
            "rows": int,
            "runs": list[Run],
            "time_notes": _TEXTS,
            "kernels": ([_KERNEL_TIMES], "the longest in all first; empty of merged layers"),
            "clock": (list[DeviceTime], "of each device, from its first operation to its last one"),
            "metrics": [_METRIC_RANGE],
            "provenance": _OBJECT,
        },
        words="What a table holds.",
    ),
    Document("Metrics", {"metrics": list[Metric]}, words="Metrics of the catalogue."),
    Document("MetricRequest", {"request": _TEXTS}, words="What to ask ncu --metrics for."),
    Document("Datasets", {"datasets": [_DATASET]}, words="The data sets."),
    Document("DatasetPath", {"name": str, "path": str}, words="Where a data set lies."),
    Document(
        "Doctor",
        {"checks": list[Check], "peaks": _OBJECT | None},
        words="What works on this machine.",
    ),
    Document(
        "Collect",
        {"out": str, "runs": list[RunResult], "answers": NotRequired[_OBJECT]},
        words="Runs that were measured, or would be.",
    ),
    Document(
        "Attached",
        {"folder": str},
        words="Where the run of a process lies that was measured while it ran.",
    ),
    Document(
        "SweepPlan", {"out": str, "runs": [_PLANNED_RUN]}, words="What a sweep would measure."
    ),
    Document(
        "Sweep",
        {"file": str, "out": str, "summary": _OBJECT, "runs": list[State]},
        words="What became of a sweep.",
    ),
    Document(
        "Roofline",
        {"table": str, "peaks": Peaks, "rows": [_ROOF_ROW], "time_notes": _TEXTS},
        words="Layers or kernels under their device's roofs.",
    ),
    Document("GateSaved", {"saved": str}, words="A baseline that was kept."),
    Document(
        "Report",
        {"out": str, "bytes": int, "summary": _TEXTS, "warnings": _TEXTS},
        words="A page that was written.",
    ),
    Document(
        "Plot",
        {"figure": str, "datasets": _TEXTS, "out": str, "bytes": int},
        words="A figure that was written.",
    ),
    Document("PlotList", {"figures": [_FIGURE_KIND]}, words="The figures."),
    Document(
        "Reproduce",
        {
            "out": str,
            "claims": list[Claim],
            "verdicts": str,
            "data": _OBJECT,
            "regression": _OBJECT,
            "classification": _OBJECT,
            "baselines": _OBJECT,
            "leakage": _OBJECT,
            "ranges": list[dict[str, Any]],
            "perfml": (str, "perfml's version"),
            "lookup_gld_mape": float,
            "order_shares": _OBJECT,
            "key_metric": _OBJECT,
            "footnotes": _TEXTS,
            "notes": _TEXTS,
        },
        words="The published study repeated; `claims` has a verdict each.",
    ),
    Document("Error", {"error": Failed}, words="A command that failed."),
)

DOCUMENTS = {document.name: document for document in (*_ALONE, _PROMISED)}
"""What verbs put together, by name."""


def schema_of(verb: str, *, strict: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of what a verb prints, errors among it.

    A verb is a key of `VERBS`; `strict` forbids keys that it does not name.
    """
    kinds = (*documents_of(verb), DOCUMENTS["Error"])
    schema = json_schema(kinds, title=f"perfml {verb} --json", strict=strict)
    for kind in kinds:
        name = "error" if kind.__name__ == "Error" else verb
        found = schema["$defs"][kind.__name__]
        document = {"schema": {"const": f"{name}/{VERSION}"}}
        found["properties"] = {**document, **found["properties"]}
        found["required"] = ["schema", *found["required"]]
    return schema
