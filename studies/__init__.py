"""Analyses that write pages of the documentation: measured once, held to the data by tests.

Here to change: the study of a page, ``STUDY/page.py``; how it was measured, ``STUDY/measure.py``.
"""
