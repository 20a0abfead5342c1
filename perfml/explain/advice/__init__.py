"""Advice: rules as data, evaluated on representative launches, beside those of Nsight Compute.

Here to change: a rule is an entry of ``rules.toml``; a number that rules may use and no counter
gives, in ``inputs.py``; counterparts of Nsight Compute's rules stand with each rule.
"""
