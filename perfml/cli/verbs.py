"""The verbs, in one list: group in the help, module, and the types of what ``--json`` prints.

Types are imported when a schema is asked for: the help needs the groups alone. In help no word is
broken, and types are those that people know.

Here to change: a new verb is a line of `VERBS`, its module and its test.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Annotated, Any, NotRequired

from typer.core import TyperGroup

from perfml.util.json_values import Document

_HYPHEN = "\ue000"
"""Stands for a hyphen while lines are folded, which would break ``before.ncu-rep`` there."""

_GROUP, _VERB, _LINE = 8, 9, 80
"""Characters of the columns of groups and of verbs, and of a line."""

_EXAMPLES = re.compile(r"^Example: (.+?)$", re.DOTALL)
_Context: Any = TyperGroup.context_class
_Formatter: Any = _Context.formatter_class


class _WholeWords(_Formatter):  # type: ignore[misc]
    """Folds between words only, and puts each example on a line of its own."""

    def write_text(self, text: str) -> None:
        for number, paragraph in enumerate(text.split("\n\n")):
            if number:
                self.write("\n")
            examples = _EXAMPLES.match(paragraph)
            for line in _single(examples[1]) if examples else (paragraph,):
                super().write_text(line.replace("-", _HYPHEN))

    def write_dl(self, rows: Any, *how: Any, **more: Any) -> None:
        folded = [
            (_plain_type(name).replace("-", _HYPHEN), what.replace("-", _HYPHEN))
            for name, what in rows
        ]
        super().write_dl(folded, *how, **more)

    def getvalue(self) -> str:
        shown: str = super().getvalue()
        return shown.replace(_HYPHEN, "-")


class _Whole(_Context):  # type: ignore[misc]
    formatter_class = _WholeWords


def whole_words(command: Any) -> Any:
    """Return a command whose help breaks no word."""
    command.context_class = _Whole
    return command


def write_verbs(group: Any, ctx: Any, formatter: Any) -> None:
    """Write the help of the whole command line: verbs by group, on a screen of 24 lines."""
    formatter.write_usage(ctx.command_path, "COMMAND [OPTIONS] [ARGS]...")
    lines = [*str(group.help).split("\n\n")[:1], ""]
    for title, verbs in groups().items():
        for place, name in enumerate(verbs):
            room = _LINE - _GROUP - _VERB
            said = group.get_command(ctx, name).get_short_help_str(room)
            lines.append(f"{'' if place else title:{_GROUP}}{name:{_VERB}}{said}")
    grouped = {name for verbs in groups().values() for name in verbs}
    rest = ", ".join(name for name in group.list_commands(ctx) if name not in grouped)
    lines.append(f"{'':{_GROUP}}{rest} (COMMAND --help says more)")
    names = [max(option.opts, key=len) for option in group.get_params(ctx)]
    lines.append(f"options {', '.join(names)}")
    formatter.write("\n".join(lines) + "\n")


def _single(examples: str) -> list[str]:
    return [f"Example: {example}" for example in " ".join(examples.split()).split("; ")]


def _plain_type(name: str) -> str:
    """Return an option with ``<int>`` in place of ``<int range>`` or ``<list[int]>``.

    A list of choices too long for a line goes: the option's own words say how to see them.
    """
    name = re.sub(r"<(?:list\[(\w+)\]|(\w+) range)>", lambda m: f"<{m[1] or m[2]}>", name)
    return re.sub(r" <[^<> ]{40,}>", "", name)


Documents = Callable[[], tuple[Any, ...]]
"""Returns the types of a verb's documents, several where an option asks for something else."""


def _type(name: str) -> Any:
    """Return a document of `perfml.cli.documents`, or a type: ``module:name``."""
    if name.endswith("[]"):
        return [_type(name[:-2])]
    module, _, name = name.rpartition(":")
    if module:
        return getattr(importlib.import_module(module), name)
    return importlib.import_module("perfml.cli.documents").DOCUMENTS[name]


def _types(*names: str) -> Documents:
    return lambda: tuple(map(_type, names))


def _result(called: str, name: str, *others: str, **keys: Any) -> Documents:
    """Return a result with further keys, each by its type or the type's name, and others."""

    def documents() -> tuple[Any, ...]:
        types = {key: _type(kind) if isinstance(kind, str) else kind for key, kind in keys.items()}
        return Document(called, types, _type(name)), *map(_type, others)

    return documents


def _advise() -> tuple[Any, ...]:
    from perfml.account.ranks import Ranks

    keys = {"table": str, "ranks": Ranks | None, "kernels": [_type("KernelLevel")]}
    return Document("Advise", keys, _type(_ADVICE)), _type(_BRIEF)


def _rank() -> tuple[Any, ...]:
    import pandas as pd

    from perfml.modeling.results import Ranking, Score

    keys = {"dataset": str, "unseen": NotRequired[Annotated[pd.DataFrame, Score] | None]}
    return (Document("Rank", keys, Ranking),)


_MERGE = "perfml.ingest.merge.write:MergeResult"
_BRIEF = "perfml.explain.brief:Brief"
_EXPLAIN = "perfml.explain.results:Explanation"
_ADVICE = "perfml.explain.advice.hazards:Advice"
_GATE = "perfml.gate.verdict:GateResult"
_PROVE = "perfml.experiments.proof:Proof"
_TRIAL = "collectors.profilers.trial:Trial[]"
_TWO_SIDES: dict[str, Any] = {"tables": list[str], "promised": "Promised[]"}
_SELECT = "perfml.modeling.selection.metric_set:MetricSet"
_TRAIN = "perfml.modeling.results:Evaluation"
_PREDICT = "perfml.predict.results:Prediction"

VERBS: dict[str, tuple[str, str, Documents]] = {
    "doctor": ("record", "collect", _types("Doctor")),
    "collect": ("record", "collect", _types("Collect")),
    "sweep": ("record", "sweep", _types("Sweep", "SweepPlan")),
    "ingest": ("tables", "tables", _types("Ingest")),
    "merge": ("tables", "tables", _result("Merge", _MERGE, out=str, weights=str)),
    "inspect": ("tables", "tables", _types("Inspect")),
    "metrics": ("tables", "tables", _types("Metrics", "MetricRequest")),
    "report": ("answers", "report", _types("Report")),
    "explain": ("answers", "explain", _result("Explain", _EXPLAIN, _BRIEF, **_TWO_SIDES)),
    "advise": ("answers", "explain", _advise),
    "prove": ("answers", "prove", _result("Prove", _PROVE, trials=_TRIAL)),
    "gate": ("answers", "gate", _result("Gate", _GATE, "GateSaved", promised="Promised[]")),
    "predict": ("answers", "models", _result("Predict", _PREDICT, dataset=str)),
    "roofline": ("answers", "explain", _types("Roofline")),
    "rank": ("study", "models", _rank),
    "train": ("study", "models", _result("Train", _TRAIN, dataset=str)),
    "select": ("study", "models", _result("Select", _SELECT, dataset=str, out=str | None)),
    "attach": ("", "collect", _types("Attached")),
    "datasets": ("", "tables", _types("Datasets", "DatasetPath")),
    "plot": ("", "report", _types("Plot", "PlotList")),
    "reproduce": ("", "models", _types("Reproduce")),
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
