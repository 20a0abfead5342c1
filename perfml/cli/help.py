"""How help is printed: no word is broken, and types are those that people know."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperGroup

from perfml.cli.verbs import groups

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
            for each in _single(examples[1]) if examples else (paragraph,):
                super().write_text(each.replace("-", _HYPHEN))

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
    names = [each.opts[-1] for each in group.get_params(ctx) if each.opts[-1].startswith("--")]
    lines.append(f"options {', '.join(names)}")
    formatter.write("\n".join(lines) + "\n")


def _single(examples: str) -> list[str]:
    return [f"Example: {each}" for each in " ".join(examples.split()).split("; ")]


def _plain_type(name: str) -> str:
    """Return an option with ``<int>`` in place of ``<int range>`` or ``<list[int]>``.

    A list of choices too long for a line goes: the option's own words say how to see them.
    """
    name = re.sub(r"<(?:list\[(\w+)\]|(\w+) range)>", lambda m: f"<{m[1] or m[2]}>", name)
    return re.sub(r" <[^<> ]{40,}>", "", name)
