"""A plugin of pytest: which tests cost how much processor time, children included.

Time on the clock depends on what else the machine does; processor time nearly does not. Used by
``make times`` (``--processor-times=40``). A fixture's cost counts for the test that asked first.
"""

from __future__ import annotations

import resource
from collections import Counter

import pytest

_BEFORE = pytest.StashKey[float]()
_NAME = "processor_s"
_COST = Counter()


def _used():
    own, ended = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


def pytest_addoption(parser):
    parser.addoption(
        "--processor-times", type=int, default=0, metavar="N", help="show the N dearest tests"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    item.stash[_BEFORE] = _used()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.when == "teardown":
        report.user_properties.append((_NAME, _used() - item.stash[_BEFORE]))
    return report


def pytest_runtest_logreport(report):
    """Add up in the process that reports: with pytest-xdist not the one that tests."""
    for name, seconds in report.user_properties:
        if name == _NAME:
            _COST[report.nodeid] += seconds


def pytest_terminal_summary(terminalreporter, config):
    count = config.getoption("--processor-times")
    if not count:
        return
    files = Counter()
    for test, seconds in _COST.items():
        files[test.partition("::")[0]] += seconds
    terminalreporter.section(f"processor time: {sum(_COST.values()):.0f} s in tests")
    for costs in (files, _COST):
        for name, seconds in costs.most_common(count):
            terminalreporter.write_line(f"{seconds:7.2f} s  {name}")
        terminalreporter.write_line("")
