"""How many examples hypothesis tries: few while developing, many in CI.

The profile is chosen by ``HYPOTHESIS_PROFILE`` (``dev``, the default, or ``ci``) and loaded by
``tests/conftest.py``. A property that needs more or fewer examples than others says so with
`examples`, in examples of the profile ``ci``.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

PROFILES = {"dev": 10, "ci": 100}
_FEWEST = 5


def load_profile():
    """Register the profiles and load the one that the environment names."""
    for name, count in PROFILES.items():
        # the clock of a busy machine says nothing about a test
        settings.register_profile(name, max_examples=count, deadline=None, print_blob=True)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def examples(in_ci, *, suppress=()):
    """Return the settings of a property that is tried `in_ci` times in CI, fewer elsewhere.

    Parameters
    ----------
    in_ci
        Examples under the profile ``ci``.
    suppress
        Health checks to leave out.
    """
    share = settings.default.max_examples / PROFILES["ci"]
    count = min(in_ci, max(_FEWEST, round(in_ci * share)))
    return settings(max_examples=count, suppress_health_check=suppress)


SHARED_FIXTURE = (HealthCheck.function_scoped_fixture,)
