"""Limits found by experiment, beside those that counters show, on recorded kernels of an H100."""
