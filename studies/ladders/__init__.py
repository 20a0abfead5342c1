"""Ladders of kernels: what each step gained and why."""
