"""nvprof: logs, CSV and SQLite exports, joined to times of the same program.

Here to change: one module a form of the export; what is joined to what, in ``kernels.py``; which
range a launch is in, in ``ranges.py``.
"""
