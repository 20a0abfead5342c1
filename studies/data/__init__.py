"""Recordings that prove perfml: exams, planted causes, ladders of kernels; a folder each."""

from __future__ import annotations

from typing import Any

from perfml.datasets.frames import load_bunch


def load(name: str, *, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load a recording as `perfml.datasets.load_h200_yolov4_tiny` loads its own.

    Examples
    --------
    >>> load("h200-conv").data.shape[1]
    19
    """
    return load_bunch(name, as_frame=as_frame, return_X_y=return_X_y)
