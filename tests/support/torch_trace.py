"""A small Chrome trace such as ``torch.profiler`` exports."""

from __future__ import annotations

import json
from typing import Any

DEVICE = {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0}
ORIGIN = 4401147628000.0
"""Microseconds that a trace begins with: the clock of the machine."""


class Trace:
    """A trace that is being written; times in microseconds."""

    def __init__(self, **facts: Any) -> None:
        self.facts = {"schemaVersion": 1, "deviceProperties": [DEVICE], **facts}
        self.events: list[dict[str, Any]] = []

    def event(self, category: str, name: str, start: float, duration: float, **more: Any) -> None:
        event = {"ph": "X", "cat": category, "name": name, "pid": 41, "tid": 41}
        self.events.append({**event, "ts": ORIGIN + start, "dur": duration, "args": {}, **more})

    def launch(
        self, name: str, called: float | None, start: float, duration: float, **more: Any
    ) -> None:
        """Add a kernel, and its call unless `called` is None."""
        stream, thread = more.pop("stream", 7), more.pop("thread", 41)
        number = more.pop("correlation", len(self.events) + 1)
        arguments = {
            "device": 0,
            "context": 1,
            "stream": stream,
            "correlation": number,
            "registers per thread": 32,
            "shared memory": 1536,
            "grid": [4, 2, 1],
            "block": [256, 1, 1],
            "est. achieved occupancy %": 100,
            **more,
        }
        self.event("kernel", name, start, duration, pid=0, tid=stream, args=arguments)
        if called is not None:
            arguments = {"cbid": 211, "correlation": number}
            self.event("cuda_runtime", "cudaLaunchKernel", called, 5.0, tid=thread, args=arguments)

    def data(self) -> bytes:
        return json.dumps({**self.facts, "traceEvents": self.events}).encode()


def filled() -> Trace:
    """Return two steps of two modules, launched long before they ran."""
    trace = Trace()
    for step in (3, 4):
        base = 1000.0 * step
        trace.event("user_annotation", f"ProfilerStep#{step}", base, 900)
        trace.event("python_function", "nn.Module: Net_0", base + 50, 500)
        trace.event("python_function", "train.py(12): forward", base + 55, 400)
        trace.event("python_function", "nn.Module: Conv2d_0", base + 60, 100)
        trace.event("cpu_op", "aten::conv2d", base + 65, 80)
        trace.launch("im2col(float*)", base + 70, base + 5000, 2.5)
        trace.launch("gemm(float*)", base + 90, base + 5003, 10.0)
        trace.event("python_function", "nn.Module: ReLU_0", base + 200, 100)
        trace.launch("relu(float*)", base + 210, base + 5020, 1.5)
    return trace
