"""Rooflines: peaks of devices, and layers placed under them.

Here to change: a device's peaks, in ``peaks.toml``; what is drawn under them, in ``by_layer.py``.
"""
