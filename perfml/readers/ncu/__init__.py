"""Nsight Compute: reports, and the pages that ``ncu --csv`` prints.

Here to change: what a report's own reader gives, in ``report.py``; printed pages in
``csv_page.py``; which columns are launch facts, in ``launch_columns.py``.
"""
