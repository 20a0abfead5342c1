"""The numbers that decide in the tree: all that there are.

Round numbers, because they matter little: halved or doubled one at a time, they move the number of
right first causes by 4 of 302 exam pairs, 30 of 489 planted ones and 57 of 1,114 of kernels with
several causes at most (``python -m studies.truth.thresholds``, 2026-11-26).
"""

from __future__ import annotations

import math

GREW = math.log(1.2)  # a quantity that grew by less (its logarithm) says nothing of its own

NEGLIGIBLE = 0.1  # a part of a whole that is smaller is not told apart

MAJORITY = 0.5  # what is more than half of something is named for it

QUEUED = 2.0
"""How much faster than the busy time of a unit the wait for it grows: queueing is not linear."""

OVERLAP = 2.5
"""How far units of a launch work at the same time (`engine.exposed`): 1 not at all, infinite
wholly. First causes that are right of 489 planted, 148 read exam pairs and 1,114 of kernels with
several causes: 479, 137 and 980 with 1.25; 482, 138 and 996 with 2.5; 478, 138 and 1,002 with 5."""

SMALL = math.log(1.02)
"""A difference of times that is smaller has no certain cause: counters of two runs of one program
differ by as much (docs/explanation/counters.md, "Do the counters agree")."""

START_US = 1.9
"""Time of a launch in which its multiprocessors are idle although it has blocks for all of them:
the 10th percentile of 813 recorded launches with at least one wave of blocks."""
