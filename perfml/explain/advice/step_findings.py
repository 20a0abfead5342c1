"""What could be saved of a step on the clock, as findings over a whole network."""

from __future__ import annotations

from perfml.account.account import Account
from perfml.account.causes import findings
from perfml.account.words import evidence, remedy
from perfml.explain.advice.network import NetworkFinding

_MATTERS = 0.02
"""What saves less of a step is not told."""


def step_findings(account: Account) -> tuple[NetworkFinding, ...]:
    """Return what could be saved of a step, the largest first."""
    return tuple(
        NetworkFinding(
            None,
            None,
            None,
            (finding.cause.id,),
            finding.cause.words,
            evidence(finding, account),
            remedy(finding),
            finding.saved_us / finding.step_us,
            finding.saved_us,
            finding.step_us,
            (),
            "likely",
        )
        for finding in findings(account)
        if finding.saved_us >= _MATTERS * finding.step_us
    )
