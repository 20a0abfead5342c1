"""Rankings: importances over resamples, leakage, groups of metrics, comparisons of rankings.

Here to change: a method of importance in ``importance.py``, what is repeated in ``draws.py``,
which metrics are one group in ``measure.py``.
"""
