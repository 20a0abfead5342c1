"""What ``--json`` prints, verb by verb: the types that ``--json-schema`` turns into JSON Schema.

Where a result is a dataclass, that is the type, `Extended` by what the verb adds; rows of its
frames have their types beside them. A ``TypedDict`` stands here for what a verb alone puts
together. `perfml.cli.output.VERSION` grows when a key goes or changes its meaning; new keys come
without.

Here to change: add a field to the dataclass, or a key to a verb's output and to its type;
`tests/cli/test_schema.py` validates what every verb prints, and an undeclared key fails there.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from perfml.account.ranks import Ranks
from perfml.cli.documents import types
from perfml.cli.output import VERSION
from perfml.errors import Failed
from perfml.experiments.proof import Proof
from perfml.explain.advice.hazards import Advice
from perfml.explain.brief import Brief
from perfml.explain.results import Explanation
from perfml.gate.verdict import GateResult
from perfml.ingest.folder import IngestResult
from perfml.ingest.merge.rule import Weights
from perfml.ingest.merge.write import MergeResult
from perfml.modeling.ranking.weights import WeightsComparison
from perfml.modeling.results import Evaluation, Ranking, Score
from perfml.modeling.selection.budget_plan import Plan
from perfml.modeling.selection.smallest_set import SufficientSet
from perfml.predict.results import Prediction
from perfml.util.json_values import Extended, json_schema


class Error(TypedDict):
    """A command that failed."""

    error: Failed


_ADVISE = {"table": str, "ranks": Ranks | None, "kernels": list[types.KernelLevel]}
_RANK = {
    "dataset": str,
    "unseen": NotRequired[list[Score] | None],
    "weights": NotRequired[WeightsComparison],
}

DOCUMENTS: dict[str, tuple[Any, ...]] = {
    "doctor": (types.Doctor,),
    "collect": (types.Collect,),
    "attach": (types.Attached,),
    "sweep": (types.Sweep, types.SweepPlan),
    "ingest": (types.Ingest, Extended("IngestParts", IngestResult, {"out": str})),
    "merge": (Extended("Merge", MergeResult, {"out": str, "weights": Weights}),),
    "inspect": (types.Inspect, types.InspectRun),
    "metrics": (types.Metrics, types.MetricRequest),
    "datasets": (types.Datasets, types.DatasetPath),
    "train": (Extended("Train", Evaluation, {"dataset": str}),),
    "rank": (Extended("Rank", Ranking, _RANK),),
    "select": (Extended("Select", SufficientSet, {"dataset": str}),),
    "plan": (Extended("Plan", Plan, {"dataset": str, "out": str | None}),),
    "explain": (Extended("Explain", Explanation, {"tables": list[str]}), Brief),
    "advise": (Extended("Advise", Advice, _ADVISE), Brief),
    "roofline": (types.Roofline,),
    "predict": (Extended("Predict", Prediction, {"dataset": str}),),
    "prove": (Proof,),
    "gate": (GateResult, types.GateSaved),
    "report": (types.Report,),
    "plot": (types.Plot, types.PlotList),
    "reproduce": (types.Reproduce,),
}
"""The types of a verb's documents (several where an option asks for something else), by verb."""


def schema_of(verb: str, *, strict: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of what a verb prints, errors among it.

    A verb is a key of `DOCUMENTS`; `strict` forbids keys that it does not name.
    """
    kinds = (*DOCUMENTS[verb], Error)
    schema = json_schema(kinds, title=f"perfml {verb} --json", strict=strict)
    for kind in kinds:
        name = "error" if kind is Error else verb
        found = schema["$defs"][kind.__name__]
        document = {"schema": {"const": f"{name}/{VERSION}"}}
        found["properties"] = {**document, **found["properties"]}
        found["required"] = ["schema", *found["required"]]
    return schema
