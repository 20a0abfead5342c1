"""What the names of NVTX ranges mean, for who reads them without a table."""

from __future__ import annotations

import re

ITERATION = re.compile(r"(?:iter|iteration|step)[_\- ]?(\d{1,15})", re.IGNORECASE)
"""A range of this name counts repeats of the workload; it is no layer.

A longer number is no count: it is more than fits into 64 bits, and than anybody repeats.
"""
