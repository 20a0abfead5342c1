"""Rankings: importances over resamples, leakage, groups of metrics, comparisons of rankings.

Here to change: a method of importance in ``perfml/modeling/models/own.py``; what is repeated, and
which metrics are one group, in ``measure.py``.
"""
