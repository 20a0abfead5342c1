"""Kernels without one of their habits: rewrites of PTX whose time bounds what a repair gains."""
