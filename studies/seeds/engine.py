"""Which layers of YOLOv4-Tiny an engine of TensorRT for RTX makes one step of, by precision.

``python -m studies.seeds.engine`` builds the engines, which needs no GPU, and writes
``studies/reproduction/engine_steps.json``, from which ``perfml reproduce`` draws figure 2-3.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collectors.workloads import Options
from collectors.workloads.yolov4_tiny.backends import tensorrt
from collectors.workloads.yolov4_tiny.engine_layers import plan_layers
from collectors.workloads.yolov4_tiny.workload import build_problem
from perfml.util.files import write_text

STEPS = Path(__file__).resolve().parents[2] / "studies/reproduction/engine_steps.json"
PRECISIONS = ("fp32", "fp16", "int8")


def steps(precision: str) -> list[list[str]]:
    """Return the engine's steps: kind, then the layers that went into it."""
    problem = build_problem(Options("tensorrt", precision))
    library: Any = tensorrt.import_tensorrt()
    plan = tensorrt.build_plan(library, tensorrt.onnx_bytes(problem), tf32=False)
    return [[each.kind, *each.layers] for each in plan_layers(plan, problem.layer_names())]


def document() -> str:
    """Return the text of the file, a step a line."""
    version = tensorrt.import_tensorrt().__version__
    source = (
        f"TensorRT for RTX {version} on a machine without a GPU: python -m studies.seeds.engine"
    )
    engines = []
    for precision in PRECISIONS:
        lines = ",\n".join(f"   {json.dumps(step)}" for step in steps(precision))
        engines.append(f"  {json.dumps(precision)}: [\n{lines}\n  ]")
    body = ",\n".join(engines)
    return f'{{\n "source": {json.dumps(source)},\n "engines": {{\n{body}\n }}\n}}\n'


if __name__ == "__main__":
    write_text(STEPS, document())
