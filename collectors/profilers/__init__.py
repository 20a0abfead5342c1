"""Profilers: build their command lines, run them, keep their raw exports unread.

Here to change: one module a profiler: its command, what of its output is an error and what to do
about it.
"""
