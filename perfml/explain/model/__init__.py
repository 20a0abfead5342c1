"""Attribution by a fitted model: exact Shapley values.

Here to change: which game is played, in ``explainer.py``; its exact solution, in ``shapley.py``.
"""
