"""What ``--json`` prints, verb by verb: the types that ``perfml schema`` turns into JSON Schema.

Every document has the key ``schema``, such as ``explain/1``: the verb and the version of what it
prints. A version grows when a key goes or changes its meaning; new keys come without.

Here to change: add a key to a verb's output and to its type; `tests/cli/test_schema.py` validates
what every verb prints on recorded data, and an undeclared key fails there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from perfml.cli.documents import answers, machines, models, predicted, proven, tables
from perfml.cli.documents.common import Failed
from perfml.util.json_schema import json_schema


@dataclass(frozen=True)
class Printed:
    """What a verb prints.

    Attributes
    ----------
    kinds
        The types of its documents; several where an option asks for something else.
    version
        Of these types.
    """

    kinds: tuple[Any, ...]
    version: int = 1


class Schema(TypedDict):
    """Verbs and the versions of their documents."""

    verbs: dict[str, int]


class Error(TypedDict):
    """A command that failed."""

    error: Failed


ERROR = "error"
"""Name of the document that a failed command prints instead of its own."""

DOCUMENTS = {
    "doctor": Printed((machines.Doctor,)),
    "collect": Printed((machines.Collect,)),
    "sweep": Printed((machines.Sweep, machines.SweepPlan)),
    "ingest": Printed((tables.Ingest, tables.IngestParts)),
    "merge": Printed((tables.Merge,)),
    "inspect": Printed((tables.Inspect, tables.InspectRun)),
    "metrics": Printed((tables.Metrics, tables.MetricRequest)),
    "datasets list": Printed((tables.Datasets,)),
    "datasets path": Printed((tables.DatasetPath,)),
    "datasets fetch": Printed((tables.DatasetPath,)),
    "train": Printed((models.Train,)),
    "rank": Printed((models.Rank,)),
    "select": Printed((models.Select,)),
    "plan": Printed((models.Plan,)),
    "explain": Printed((answers.Explain, answers.Brief)),
    "advise": Printed((answers.Advise, answers.Brief)),
    "roofline": Printed((answers.Roofline,)),
    "predict": Printed((predicted.Predict,)),
    "prove": Printed((proven.Prove,)),
    "gate": Printed((answers.Gate, answers.GateSaved)),
    "report": Printed((answers.Report,)),
    "plot": Printed((answers.Plot, answers.PlotList)),
    "reproduce": Printed((answers.Reproduce,)),
    "schema": Printed((Schema,)),
    ERROR: Printed((Error,)),
}
"""By verb, in the order of the command line."""


def marked(verb: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with its schema's name as the first key."""
    return {"schema": f"{verb}/{DOCUMENTS[verb].version}", **document}


def schema_of(verb: str, *, strict: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of what a verb prints; `strict` forbids keys that it does not name."""
    printed = DOCUMENTS[verb]
    name = f"{verb}/{printed.version}"
    schema = json_schema(printed.kinds, title=f"perfml {verb} --json", strict=strict)
    for kind in printed.kinds:
        found = schema["$defs"][kind.__name__]
        found["properties"] = {"schema": {"const": name}, **found["properties"]}
        found["required"] = ["schema", *found["required"]]
    return schema
