"""Gate: is a new version worse, better, the same, or can nobody tell? A verdict for machines.

Counted work decides, because it repeats: instructions, requests and sectors of the same code are
the same to 3e-5 where times differ by 2 to 4 %. Times confirm, and decide nothing alone.

Here to change: which counters are work (`work`), the rule (`verdict`), tolerances (`policy`), and
where named baselines lie (`baselines`).
"""

from __future__ import annotations

from typing import Any

from perfml.util.lazy import resolve

_HOMES = {
    "judge": "verdict",
    "GateResult": "verdict",
    "LayerVerdict": "verdict",
    "Verdict": "verdict",
    "Policy": "policy",
    "load_policy": "policy",
    "load_baseline": "baselines",
    "save_baseline": "baselines",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: pandas takes a second."""
    return resolve(__name__, globals(), _HOMES, name)


def __dir__() -> list[str]:
    return __all__
