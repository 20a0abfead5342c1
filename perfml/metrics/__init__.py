"""The metric catalogue: what each metric means, how Nsight Compute spells it, how it merges.

Here to change: a metric is one row of ``catalogue.csv``; what its columns may hold, in
``catalogue.py``; which sets name it, in ``sets.toml``; what asking for it costs, in ``passes.csv``,
which a GPU run writes.
"""

from perfml.metrics.catalogue import Catalogue, Evaluation, Metric, load_catalogue
from perfml.metrics.expressions import Expression, parse
from perfml.metrics.facts import clock_of, ncu_name, with_ncu_name
from perfml.metrics.sets import EVERY, HOPPER, PUBLISHED, STALLS, StudyNote

__all__ = [
    "EVERY",
    "HOPPER",
    "PUBLISHED",
    "STALLS",
    "Catalogue",
    "Evaluation",
    "Expression",
    "Metric",
    "StudyNote",
    "clock_of",
    "load_catalogue",
    "ncu_name",
    "parse",
    "with_ncu_name",
]
