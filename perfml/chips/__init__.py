"""What a GPU can do: limits of a multiprocessor, rates, latencies, sizes; a number with its source.

Here to change: a capability is a row of ``multiprocessors.csv``, a product a row of ``gpus.csv``;
where a number comes from stands in ``sources.toml``. What a profile says of its device goes before
all three.
"""

from perfml.chips.lookup import (
    FACTS,
    REFERENCE,
    UNKNOWN,
    Chip,
    capabilities,
    chip,
    of_launch,
    of_rows,
    of_table,
    products,
    reached,
)

__all__ = [
    "FACTS",
    "REFERENCE",
    "UNKNOWN",
    "Chip",
    "capabilities",
    "chip",
    "of_launch",
    "of_rows",
    "of_table",
    "products",
    "reached",
]
