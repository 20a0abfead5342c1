"""Run where the GPU is: start profilers on workloads and keep their raw exports, uninterpreted.

Here to change: one run from its settings to its folder, in ``collect.py`` and ``measure.py``; a
profiler in ``profilers/``, a workload in ``workloads/``, many runs in ``sweep/``.
"""
