"""YOLOv4-Tiny, the network of the published study, or any network of a Darknet cfg."""

from __future__ import annotations

from .workload import WORKLOAD

__all__ = ["WORKLOAD"]
