"""What limits a kernel, asked by experiment: less of one resource at a time, and the time again.

Here to change: the table (`record`), elasticities and their intervals (`responses`), which limit a
pattern of responses shows (`limits`), kernels without one of their habits (`mutation`) and what
that gains (`repairs`), whether a cause is proven (`verdicts`), what is measured first (`proof`).
"""
