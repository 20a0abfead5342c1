"""Readers: one module a profiler format, recognised by content, each returning a Kernels table.

A reader module defines ``NAME``, ``recognises(source) -> bool`` (from ``source.head`` alone) and
``read(source, options) -> Kernels``.
"""
