"""The options a sweep may vary from run to run, and what values each may have.

Those of `collectors.settings` are taken from there. Here to change: what makes one run of a sweep
another program than the next.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from collectors.settings import OPTIONS as SETTINGS
from collectors.settings import Settings
from collectors.workloads import parse_settings
from perfml.errors import InputError


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        msg = "a text"
        raise ValueError(msg)
    return value


def _integer(least: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            msg = f"a whole number from {least}"
            raise ValueError(msg)
        return value

    return check


def _choice(*known: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in known:
            msg = f"one of {', '.join(known)}"
            raise ValueError(msg)
        return str(value)

    return check


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        msg = "true or false"
        raise ValueError(msg)
    return value


def _names(value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        msg = "a name or a list of names"
        raise ValueError(msg)
    return tuple(names)


def _pairs(value: Any) -> tuple[str, ...]:
    msg = "KEY=VALUE or a list of them"
    try:
        pairs = dict(parse_settings(_names(value)))
    except (ValueError, InputError) as error:
        raise ValueError(msg) from error
    return tuple(f"{key}={word}" for key, word in sorted(pairs.items()))


def _command(value: Any) -> tuple[str, ...]:
    msg = "a command line, or a list of words"
    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(msg) from error
    if not isinstance(words, list) or not words:
        raise ValueError(msg)
    if not all(isinstance(word, (str, int, float)) for word in words):
        raise ValueError(msg)
    return tuple(str(word) for word in words)


def _setting(name: str) -> Callable[[Any], Any]:
    """Return the check of an option of `collectors.settings`."""
    option, default = SETTINGS[name], getattr(Settings, name)
    if option.choices:
        return _choice(*option.choices)
    if option.least is not None:
        return _integer(option.least)
    return _truth if isinstance(default, bool) else _text


OPTIONS: dict[str, Callable[[Any], Any]] = {
    "workload": _text,
    "command": _command,
    "backend": _text,
    "precision": _text,
    "batch": _integer(1),
    **{name: _setting(name) for name in SETTINGS},
    "metrics": _names,
    "cfg": _text,
    "cudnn_benchmark": _truth,
    "set": _pairs,
    "layer_map": _text,
}
"""What may vary from run to run: the options of ``perfml collect``, and their checks."""
