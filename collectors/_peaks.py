"""Measure what this GPU reaches: copy bandwidth and matrix rates (``python -m collectors._peaks``).

Random data, because a matrix product of zeros runs faster; medians, because clocks vary.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable

_COPY_BYTES = 1 << 30
_SIZE = 8192
_REPEATS = 10


def main() -> int:
    """Print one line a peak: name, colon, value with its unit."""
    import torch

    if not torch.cuda.is_available():
        sys.stderr.write("torch sees no GPU\n")
        return 1

    def seconds(work: Callable[[], object]) -> float:
        for _ in range(3):
            work()
        times = []
        for _ in range(_REPEATS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            work()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1e3)
        return statistics.median(times)

    source = torch.randint(0, 255, (_COPY_BYTES,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    rate = 2 * _COPY_BYTES / seconds(lambda to=target, of=source: to.copy_(of))
    lines = [f"peak copy bandwidth: {rate / 1e12:.2f} TB/s (bytes read and written)"]
    del source, target
    operations = 2.0 * _SIZE**3
    for name, kind, tf32 in (
        ("fp32", torch.float32, False),
        ("tf32", torch.float32, True),
        ("fp16", torch.float16, False),
        ("bf16", torch.bfloat16, False),
    ):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        left, right = (torch.randn(_SIZE, _SIZE, device="cuda", dtype=kind) for _ in range(2))
        out = torch.empty_like(left)
        rate = operations / seconds(
            lambda left=left, right=right, out=out: torch.matmul(left, right, out=out)
        )
        lines.append(f"peak {name} matrix product: {rate / 1e12:.1f} TFLOP/s ({_SIZE}^3)")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
