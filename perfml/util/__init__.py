"""Small helpers without a domain: files, digests, lazy imports, signals, HTML.

Here to change: nothing that knows a kernel or a metric belongs here.
"""
