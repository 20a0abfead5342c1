"""Sweeps on several GPUs."""
