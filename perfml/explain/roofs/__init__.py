"""Rooflines: peaks of devices, and layers placed under them.

Here to change: a device's numbers, in ``perfml/chips``; what is drawn under them, in
``by_layer.py``.
"""
