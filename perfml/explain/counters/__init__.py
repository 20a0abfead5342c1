"""Attribution by counters: what a time is divided by, and which causes that names.

Here to change: a cause is an entry of ``terms.py`` and its formula in ``refine.py``; a unit that
can limit a kernel, a row of ``resources.py``; what stands under a time, ``factors.py``.
"""
