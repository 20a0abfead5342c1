"""Gate: is a new version worse, better, the same, or can nobody tell? A verdict for machines.

Counted work decides, because it repeats: instructions, requests and sectors of the same code are
the same to 3e-5 where times differ by 2 to 4 %. Times confirm; alone they are a verdict of its own.

Here to change: which counters are work (`work`), what may be compared (`clock`), the rule
(`verdict`), its times (`clock`), exit codes, tolerances and where named baselines lie
(`policy`).
"""

from __future__ import annotations

from perfml.util.lazy import callable_package, lazily

_HOMES = {
    "judge": "verdict",
    "GateResult": "verdict",
    "LayerVerdict": "verdict",
    "Verdict": "policy",
    "ExitCode": "policy",
    "Policy": "policy",
    "load_policy": "policy",
    "load_baseline": "policy",
    "save_baseline": "policy",
}

__all__ = sorted(_HOMES)

callable_package(__name__, "python", "gate")

# on first use: pandas takes a second
__getattr__, __dir__ = lazily(__name__, globals(), _HOMES)
