"""The account of time: what a device did while a person waited, in microseconds that add up.

Where starts are known, times are lengths of unions on the clock; where only durations are known,
they are sums, and are called sums. Devices are never added up.

Here to change: how intervals are united (`intervals`).
"""
