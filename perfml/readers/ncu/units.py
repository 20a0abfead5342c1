"""Units as Nsight Compute prints them, brought to base units (ns, byte, hz, counts a second).

ncu scales a column's unit to its values unless told ``--print-units base``, so the same metric is
``Mbyte`` in one file and ``Gbyte`` in the next. Prefixes are decimal: 11,796,480 bytes print as
11.796480 Mbyte. Older versions spell time out (``usecond``) and name a clock ``cycle/nsecond``.
"""

from __future__ import annotations

import functools
import re

_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}

_NANOSECONDS = {
    "ps": 1e-3,
    "ns": 1.0,
    "us": 1e3,
    "µs": 1e3,
    "μs": 1e3,
    "ms": 1e6,
    "s": 1e9,
    "psecond": 1e-3,
    "nsecond": 1.0,
    "usecond": 1e3,
    "msecond": 1e6,
    "second": 1e9,
    "sec": 1e9,
    "minute": 60e9,
    "min": 60e9,
    "hour": 3600e9,
    "h": 3600e9,
}

_PREFIXED = re.compile(r"([kKMGTPE])([a-z][a-z_ ]+)")
"""An upper-case prefix before a lower-case word of two letters or more: ``Mbyte``, not ``SM``."""

_PEAK = re.compile(r"[gG][hH]z|[mM][hH]z|[kK][hH]z")


@functools.lru_cache(maxsize=4096)
def to_base(unit: str) -> tuple[float, str]:
    """Return the factor from a unit to its base unit, and the base unit's name.

    A time is a number of nanoseconds; a rate is a number a second. A unit that is no multiple of
    another one (``%``, ``warp``, ``register/thread``) is its own base.

    Examples
    --------
    >>> to_base("us")
    (1000.0, 'ns')
    >>> to_base("Kbyte/block")
    (1000.0, 'byte/block')
    >>> to_base("sector/ns")
    (1000000000.0, 'sector/s')
    >>> to_base("Ghz")
    (1000000000.0, 'hz')
    """
    unit = unit.strip()
    if not unit:
        return 1.0, ""
    above, slash, below = unit.partition("/")
    factor, name = _part(above.strip())
    if not slash:
        return factor, name
    below = below.strip()
    if below in _NANOSECONDS:
        # A rate counts per second, although a time counts in nanoseconds.
        factor = factor * (1e9 / _NANOSECONDS[below])
        return (factor, "hz") if name == "cycle" else (factor, f"{name}/s")
    divisor, base = _part(below)
    return factor / divisor, f"{name}/{base}"


def _part(word: str) -> tuple[float, str]:
    if word in _NANOSECONDS:
        return _NANOSECONDS[word], "ns"
    if _PEAK.fullmatch(word):
        return _PREFIXES[word[0].lower()], "hz"
    if word.lower() == "hz":
        return 1.0, "hz"
    match = _PREFIXED.fullmatch(word)
    if match is not None:
        return _PREFIXES[match.group(1).lower()], match.group(2)
    return 1.0, word
