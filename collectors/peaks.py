"""Measure what this GPU reaches: bandwidths and matrix rates (``python -m collectors.peaks``).

Random data, because a matrix product of zeros runs faster; medians, because clocks vary. Prints
the document that `perfml.explain.roofs.peaks` reads.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
from collections.abc import Callable
from datetime import UTC, datetime

_COPY_BYTES = 1 << 30
_SIZE = 8192
_REPEATS = 10


def main() -> int:
    """Print the peaks document."""
    import torch

    if not torch.cuda.is_available():
        sys.stderr.write("torch sees no GPU\n")
        return 1
    device = torch.cuda.get_device_properties(0)
    peaks = {"dram": _copy_rate()}
    how = {"dram": f"copy of {_COPY_BYTES >> 20} MiB, bytes read and written"}
    for name, kind, tf32 in (
        ("fp32", torch.float32, False),
        ("tf32", torch.float32, True),
        ("fp16", torch.float16, False),
        ("bf16", torch.bfloat16, False),
    ):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        left, right = (torch.randn(_SIZE, _SIZE, device="cuda", dtype=kind) for _ in range(2))
        out = torch.empty_like(left)
        product = functools.partial(torch.matmul, left, right, out=out)
        peaks[name] = 2.0 * _SIZE**3 / _seconds(product)
        how[name] = f"matrix product of {_SIZE}^3"
    document = {
        "kind": "measured",
        "device": device.name,
        "compute_capability": f"{device.major}.{device.minor}",
        "source": f"perfml doctor --measure-peaks, torch {torch.__version__}",
        "date": datetime.now(UTC).date().isoformat(),
        "peaks": {name: float(f"{value:.4g}") for name, value in peaks.items()},
        "how": how,
    }
    sys.stdout.write(json.dumps(document, indent=1) + "\n")
    return 0


def _seconds(work: Callable[[], object]) -> float:
    """Return the median time of one call."""
    import torch

    for _ in range(3):
        work()
    times: list[float] = []
    for _ in range(_REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def _copy_rate() -> float:
    """Return byte/s, read and written, of a copy that no cache holds.

    A copy within L2 is no measure of it: on an H200, 200 copies of 8 MiB in a row reached 2.0 TB/s,
    less than device memory, because each lasts little longer than its launch.
    """
    import torch

    source = torch.randint(0, 255, (_COPY_BYTES,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2.0 * _COPY_BYTES / _seconds(lambda: target.copy_(source))


if __name__ == "__main__":
    sys.exit(main())
