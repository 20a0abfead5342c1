"""Workloads of the studies: ladders of attention, convolution and QKV, and planted causes."""
