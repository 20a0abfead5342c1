"""Which chip a launch ran on: by its device's name, its capability, and the profile's own facts."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfml.chips.chip import UNKNOWN, Chip
from perfml.chips.tables import agreement, capabilities, products

if TYPE_CHECKING:
    import pandas as pd

DEVICE_FACTS = "device_facts"
"""Attribute of a table: by device, what its profile says of it."""

_OTHERS = re.compile(r"\b(amd|radeon|instinct|intel|gfx\d\w*|mi\d{3}\w*)\b", re.IGNORECASE)
"""Words of the names of devices that are no NVIDIA GPU. HIP gives an AMD device a major and a
minor version, too (an MI210 says 9.0), which is no compute capability."""
_VENDOR = {"nvidia", "tesla", "geforce", "gpu"}
"""Words that profilers, drivers and people write or leave out."""


def is_nvidia(name: str) -> bool:
    """Tell whether a device is an NVIDIA GPU, as far as its name says.

    Examples
    --------
    >>> is_nvidia("AMD Instinct MI210"), is_nvidia("NVIDIA GeForce RTX 3090")
    (False, True)
    """
    return _OTHERS.search(name) is None


def chip(
    name: str | None = None,
    capability: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Chip:
    """Return what is known of a GPU.

    Parameters
    ----------
    name
        Its name as profilers write it, or the product's alone (``NVIDIA A100-SXM4-80GB``,
        ``T4``). Of a name that several products share (``H100``) what they agree in is returned.
        A name that is not tabulated leaves what its capability says.
    capability
        Its compute capability (``8.9``); that of the product where it is not given.
    facts
        What its profile says of it, see `Chip.with_facts`; goes before the tables.

    Returns
    -------
    Chip
        NaN for what nobody knows; all of it for a device that is no NVIDIA GPU.

    Examples
    --------
    >>> from perfml import chips
    >>> chips.chip("Tesla T4").warps, chips.chip(capability="8.9").warps
    (32.0, 48.0)
    >>> chips.chip("AMD Instinct MI210", capability="9.0").capability is None
    True
    """
    if name and not is_nvidia(name):
        return replace(UNKNOWN, name=name)
    found = _tabulated(name or None, capability or None)
    return found.with_facts(facts) if facts else found


def of_launch(row: Mapping[str, Any], facts: Mapping[str, Mapping[str, Any]] | None = None) -> Chip:
    """Return the chip of a launch.

    Parameters
    ----------
    row
        With ``device`` and ``compute_capability``, as far as they are known.
    facts
        What the profiles say, by device: the attribute ``device_facts`` of its table.
    """
    device, capability = (_text(row.get(name)) for name in ("device", "compute_capability"))
    return chip(device, capability, (facts or {}).get(device or ""))


def of_table(table: pd.DataFrame) -> Chip:
    """Return the chip of a Kernels or Layers table; what they agree in, where there are several."""
    columns = [name for name in ("device", "compute_capability") if name in table.columns]
    if not columns or table.empty:
        return UNKNOWN
    facts = table.attrs.get(DEVICE_FACTS)
    rows = table[columns].drop_duplicates().to_dict("records")
    return agreement([of_launch({str(key): v for key, v in row.items()}, facts) for row in rows])


@functools.cache
def _tabulated(name: str | None, capability: str | None) -> Chip:
    of_all = capabilities().get(capability or "", replace(UNKNOWN, capability=capability))
    if name is None:
        return of_all
    found = [item for item in _named(name) if capability in (None, item.capability)]
    return replace(agreement(found) if found else of_all, name=name)


def _named(name: str) -> list[Chip]:
    """Return the products that a name may mean; of one longer name alone, only its generation."""
    words = _words(name)
    known = [(_words(title), product) for title, product in products().items()]
    same = [product for title, product in known if title == words]
    longer = [product for title, product in known if title[: len(words)] == words]
    if same or len(longer) > 1:
        return same or longer
    return [capabilities()[product.capability or ""] for product in longer]


def _words(name: str) -> list[str]:
    """Return the words of a device's name that tell products apart."""
    return [word for word in re.split(r"[\s_-]+", name.lower()) if word and word not in _VENDOR]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
