"""Scores: protocols, folds, baselines, and the suite that puts them side by side.

Here to change: who is tested on what, in ``protocols.py``; what a model has to beat, in
``baselines.py``; what is predicted, in ``protocols.py``.
"""
