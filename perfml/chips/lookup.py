"""Which chip a launch ran on: by its device's name, its capability, and the profile's own facts."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfml.chips.chip import UNKNOWN, Chip
from perfml.chips.tables import Reached, agreement, all_reached, capabilities, products

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
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
    """Return what is known of a GPU; NaN for what nobody knows.

    Its name is as profilers write it, or the product's alone (``NVIDIA A100-SXM4-80GB``, ``T4``).
    Of a name that several products share (``H100``) what they agree in is returned. A name that is
    not tabulated leaves what its capability (``8.9``) says; a device that is no NVIDIA GPU,
    nothing. `facts` of its profile go before the tables, see `Chip.with_facts`.

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

    The row has ``device`` and ``compute_capability``, as far as they are known; `facts` are what
    the profiles say, by device: the attribute ``device_facts`` of its table.
    """
    device, capability = (_text(row.get(name)) for name in ("device", "compute_capability"))
    return chip(device, capability, (facts or {}).get(device or ""))


def of_table(table: pd.DataFrame) -> Chip:
    """Return the chip of a Kernels or Layers table; what they agree in, where there are several."""
    found = list(dict.fromkeys(of_rows(table)))
    return agreement(found) if found else UNKNOWN


def of_rows(table: pd.DataFrame) -> npt.NDArray[np.object_]:
    """Return the chip of each row of a Kernels or Layers table."""
    import numpy as np

    columns = [name for name in ("device", "compute_capability") if name in table.columns]
    found = np.full(len(table), UNKNOWN, dtype=object)
    if not columns:
        return found
    facts = table.attrs.get(DEVICE_FACTS)
    texts = (table[name].astype("string").fillna("") for name in columns)
    keys = list(zip(*texts, strict=True))
    known = {key: of_launch(dict(zip(columns, key, strict=True)), facts) for key in set(keys)}
    found[:] = [known[key] for key in keys]
    return found


def reached(name: str | None = None) -> list[Reached]:
    """Return what was measured, and what profilers divide by: of a device, or of all."""
    return [row for row in all_reached() if name is None or _words(row.name) == _words(name)]


@functools.cache
def _tabulated(name: str | None, capability: str | None) -> Chip:
    of_all = capabilities().get(capability or "", replace(UNKNOWN, capability=capability))
    if name is None:
        return of_all
    found = [item for item in _named(name) if capability in (None, item.capability)]
    if found:
        return replace(agreement(found), name=name)
    of_name = replace(UNKNOWN, name=name, tensor_share=_tensor_share(name))
    return replace(of_all, name=name).filled_from(of_name)


def _named(name: str) -> list[Chip]:
    """Return the products that a name may mean; of one longer name alone, only its generation."""
    words = _words(name)
    known = [(_words(title), product) for title, product in products().items()]
    same = [product for title, product in known if title == words]
    longer = [product for title, product in known if title[: len(words)] == words]
    if same or len(longer) > 1:
        return same or longer
    return [capabilities()[product.capability or ""] for product in longer]


def _tensor_share(name: str) -> float:
    """Return the part of its tensor cores' rate that a card has where its sums are in FP32.

    GeForce cards add at half the rate, and those called GTX have no tensor cores (NVIDIA's white
    papers on Turing, GA102 and Ada).
    """
    if "geforce" not in name.lower():
        return math.nan
    return 0.0 if "gtx" in name.lower() else 0.5


def _words(name: str) -> list[str]:
    """Return the words of a device's name that tell products apart."""
    return [word for word in re.split(r"[\s_-]+", name.lower()) if word and word not in _VENDOR]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


REFERENCE = chip(capability="9.0")
"""What stands in for numbers of a chip that nobody knows: the generation on which the methods of
`perfml.explain` were tried, and whose latencies were measured here."""
