"""Selections: the smallest set of metrics that suffices, and the best within a budget of passes.

Here to change: the criterion in ``smallest_set.py`` and ``budget_plan.py``, the way through the
sets in the searches beside them.
"""
