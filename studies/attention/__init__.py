"""Attention: versions, tiles, counters, page."""
