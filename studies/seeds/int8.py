"""What int8 costs YOLOv4-Tiny in accuracy, on the CPU: onnxruntime on the network with QDQ pairs.

``python -m studies.seeds.int8`` runs fp32 and int8 on the same images and prints JSON. The weights
are random, so there are no detections to score: what is compared are the two heads' outputs, and
whether a cell's strongest box stays the same.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

from collectors.workloads import Options
from collectors.workloads.yolov4_tiny.backends.tensorrt import onnx_bytes
from collectors.workloads.yolov4_tiny.weights import random_images
from collectors.workloads.yolov4_tiny.workload import build_problem

IMAGES = 8
ANCHORS = 3
OBJECTNESS = 4
"""Place of the objectness among a box's values."""


def outputs(precision: str, images: int = IMAGES) -> tuple[dict[str, np.ndarray], float]:
    """Return the heads' outputs over images of their own, and processor seconds."""
    import onnxruntime

    problem = build_problem(Options("tensorrt", precision))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        onnx_bytes(problem), options, providers=["CPUExecutionProvider"]
    )
    names = [each.name for each in session.get_outputs()]
    entry = session.get_inputs()[0].name
    found: dict[str, list[np.ndarray]] = {name: [] for name in names}
    start = time.process_time()
    for seed in range(images):
        image = random_images(problem.network, 1, 1000 + seed)
        for name, value in zip(names, session.run(names, {entry: image}), strict=True):
            found[name].append(value)
    seconds = time.process_time() - start
    return {name: np.concatenate(values).astype(float) for name, values in found.items()}, seconds


def compare(images: int = IMAGES) -> dict[str, Any]:
    """Return relative errors, the share of cells with the same strongest box, and times."""
    right, whole = outputs("fp32", images)
    made, seconds = outputs("int8", images)
    heads = {
        name: {
            "relative_error": float(
                np.linalg.norm(made[name] - right[name]) / np.linalg.norm(right[name])
            ),
            "same_box": same_box(made[name], right[name]),
        }
        for name in right
    }
    return {
        "images": images,
        "heads": heads,
        "processor_time_ratio": round(seconds / whole, 2),
    }


def same_box(made: np.ndarray, right: np.ndarray) -> float:
    """Return the share of cells whose anchor of largest objectness is the same.

    Shape (images, anchors * values, rows, columns), as Darknet's heads have it.
    """
    of = [
        each.reshape(each.shape[0], ANCHORS, -1, *each.shape[2:])[:, :, OBJECTNESS]
        for each in (made, right)
    ]
    first, second = (each.argmax(axis=1) for each in of)
    return float(np.mean(first == second))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(compare(), indent=1) + "\n")
