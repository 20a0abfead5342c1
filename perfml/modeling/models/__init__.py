"""The models: which there are, and what makes them fast and repeatable.

Here to change: a model that ``--model`` offers is an entry of ``registry.py``; versions of
scikit-learn are known to ``perfml/modeling/parallel.py`` alone.
"""
