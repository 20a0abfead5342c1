"""What the tests of the command line share."""

import functools
import os

import pytest

from collectors import doctor


@pytest.fixture(scope="session", autouse=True)
def asked_once():
    """Let doctor ask a program once: torch alone takes seconds to say which version it is."""
    ask = doctor._ask

    @functools.cache
    def answer(command, path, timeout_s):
        return ask(list(command), timeout_s)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            doctor,
            "_ask",
            lambda command, timeout_s=120: answer(tuple(command), os.environ["PATH"], timeout_s),
        )
        yield
