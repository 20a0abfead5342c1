"""Campaigns of many runs: ``perfml sweep`` from its file to finished run folders.

`read_sweep` makes a `Sweep` of a YAML file, an `Executor` says where to measure, and `run_sweep`
measures what is not finished yet. Whatever is killed on the way, a run folder is whole or absent,
no GPU measures two runs at once, and ``--resume`` does what is left.
"""
