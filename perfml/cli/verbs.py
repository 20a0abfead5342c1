"""The verbs, in one list: group in the help, module, and the types of what ``--json`` prints.

Types are imported when a schema is asked for: the help needs the groups alone.

Here to change: a new verb is a line of `VERBS`, its module and its test.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NotRequired

from perfml.util.json_values import Extended

Documents = Callable[[], tuple[Any, ...]]
"""Returns the types of a verb's documents, several where an option asks for something else."""


def _type(name: str) -> Any:
    """Return a type of `perfml.cli.documents`, or of another module: ``module:name``."""
    module, _, name = name.rpartition(":")
    return getattr(importlib.import_module(module or "perfml.cli.documents"), name)


def _types(*names: str) -> Documents:
    return lambda: tuple(map(_type, names))


def _result(called: str, name: str, **keys: Any) -> Documents:
    """Return a result with further keys."""
    return lambda: (Extended(called, _type(name), keys),)


def _ingest() -> tuple[Any, ...]:
    from perfml.ingest.folder import IngestResult

    return _type("Ingest"), Extended("IngestParts", IngestResult, {"out": str})


def _merge() -> tuple[Any, ...]:
    from perfml.ingest.merge.rule import Weights
    from perfml.ingest.merge.write import MergeResult

    return (Extended("Merge", MergeResult, {"out": str, "weights": Weights}),)


def _explain() -> tuple[Any, ...]:
    from perfml.explain.brief import Brief
    from perfml.explain.results import Explanation

    return Extended("Explain", Explanation, {"tables": list[str]}), Brief


def _advise() -> tuple[Any, ...]:
    from perfml.account.ranks import Ranks
    from perfml.explain.advice.hazards import Advice
    from perfml.explain.brief import Brief

    keys = {"table": str, "ranks": Ranks | None, "kernels": list[_type("KernelLevel")]}  # type: ignore[misc]
    return Extended("Advise", Advice, keys), Brief


def _rank() -> tuple[Any, ...]:
    from perfml.modeling.results import Ranking, Score

    keys = {"dataset": str, "unseen": NotRequired[list[Score] | None]}
    return (Extended("Rank", Ranking, keys),)


_SELECT = "perfml.modeling.selection.smallest_set:SufficientSet"
_PLAN = "perfml.modeling.selection.budget_plan:Plan"
_TRAIN = "perfml.modeling.results:Evaluation"
_PREDICT = "perfml.predict.results:Prediction"

VERBS: dict[str, tuple[str, str, Documents]] = {
    "doctor": ("record", "collect", _types("Doctor")),
    "collect": ("record", "collect", _types("Collect")),
    "sweep": ("record", "sweep", _types("Sweep", "SweepPlan")),
    "ingest": ("tables", "tables", _ingest),
    "merge": ("tables", "tables", _merge),
    "inspect": ("tables", "inspected", _types("Inspect", "InspectRun")),
    "metrics": ("tables", "tables", _types("Metrics", "MetricRequest")),
    "report": ("answers", "report", _types("Report")),
    "explain": ("answers", "explain", _explain),
    "advise": ("answers", "advise", _advise),
    "prove": ("answers", "prove", _types("perfml.experiments.proof:Proof")),
    "gate": ("answers", "gate", _types("perfml.gate.verdict:GateResult", "GateSaved")),
    "predict": ("answers", "models", _result("Predict", _PREDICT, dataset=str)),
    "roofline": ("answers", "advise", _types("Roofline")),
    "rank": ("study", "models", _rank),
    "train": ("study", "models", _result("Train", _TRAIN, dataset=str)),
    "select": ("study", "plan", _result("Select", _SELECT, dataset=str)),
    "plan": ("study", "plan", _result("Plan", _PLAN, dataset=str, out=str | None)),
    "attach": ("", "collect", _types("Attached")),
    "datasets": ("", "tables", _types("Datasets", "DatasetPath")),
    "plot": ("", "plot", _types("Plot", "PlotList")),
    "reproduce": ("", "plan", _types("Reproduce")),
    "mcp": ("", "agents", lambda: ()),
}
"""Group in the help (empty: its last line), module of the verb, and its documents."""


def groups() -> dict[str, list[str]]:
    """Return the verbs as ``perfml --help`` groups them."""
    found: dict[str, list[str]] = {}
    for name, (group, _, _) in VERBS.items():
        if group:
            found.setdefault(group, []).append(name)
    return found


def documents_of(verb: str) -> tuple[Any, ...]:
    """Return the types of a verb's documents."""
    return VERBS[verb][2]()


def load() -> None:
    """Import the modules of all verbs, which adds them to the command line."""
    for module in dict.fromkeys(module for _, module, _ in VERBS.values()):
        importlib.import_module(f"perfml.cli.{module}")
