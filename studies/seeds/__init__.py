"""The four documents that perfml grew from: what was measured for the rest of their claims.

Here to change: what is measured on a GPU in `measure.py` and `totals.py`, the tables that they give
in `page.py`, the list of everything that the documents do or claim in `list.toml`.
"""
