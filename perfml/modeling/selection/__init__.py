"""Selections: metrics that predict the time together, and those that go with it beyond chance.

Here to change: the criterion of a set in ``metric_set.py``; the way through the sets, and
scikit-learn's selector, in ``search.py``.
"""
