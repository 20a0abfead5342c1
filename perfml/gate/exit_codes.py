"""Exit codes of ``perfml gate``: one a verdict, and one for what is no verdict.

Apart from the rule, because the command line shows them before pandas is loaded.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Verdict(StrEnum):
    """What the gate says of a layer or of all, the one that decides first.

    Of all layers the first of these that any layer has is the answer.
    """

    WORSE = "worse"
    SLOWER = "slower"
    NOT_COMPARABLE = "not comparable"
    UNCLEAR = "cannot tell"
    BETTER = "better"
    SAME = "same"


class ExitCode(IntEnum):
    """Exit codes of the command; 2 is a wrong use of it, as for every verb."""

    PASSED = 0
    MORE_WORK = 1
    USAGE = 2
    CANNOT_TELL = 3
    SLOWER = 4
    NOT_COMPARABLE = 5
    UNREADABLE = 6

    @property
    def meaning(self) -> str:
        """What it tells, as a clause."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.PASSED: "the same or less work",
    ExitCode.MORE_WORK: "more work",
    ExitCode.USAGE: "wrong use of the command",
    ExitCode.CANNOT_TELL: "cannot tell",
    ExitCode.SLOWER: "slower on the clock without more work",
    ExitCode.NOT_COMPARABLE: "another GPU or another clock",
    ExitCode.UNREADABLE: "an input that cannot be read",
}

EXIT_CODES = {
    Verdict.SAME: ExitCode.PASSED,
    Verdict.BETTER: ExitCode.PASSED,
    Verdict.WORSE: ExitCode.MORE_WORK,
    Verdict.UNCLEAR: ExitCode.CANNOT_TELL,
    Verdict.SLOWER: ExitCode.SLOWER,
    Verdict.NOT_COMPARABLE: ExitCode.NOT_COMPARABLE,
}
"""Exit code of a verdict."""
