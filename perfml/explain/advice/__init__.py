"""Advice: what a launch loses beside its ideal, and what helps (`perfml.explain.advise`).

Here to change: what helps against a cause is a row of ``remedies.toml``; what a launch would count
without it, the ``ideal`` of its section in ``perfml/explain/tree/causes.toml``.
"""
