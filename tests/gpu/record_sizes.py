"""What a size that is no multiple of 8 costs a product of matrices: ``record_sizes.py OUT.json``.

Each case is ``torch.nn.functional.linear`` of one (m, k) and one (n, k) matrix in a dtype, timed by
CUDA events over repeats, the median of nine. Within a group one size differs.
"""

import json
import statistics
import sys
from pathlib import Path

import torch

SIZES = (4096, 4095, 4094, 4092, 4090, 4088, 4080, 4064, 4032)
TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "tf32": torch.float32}


def timed(m, n, k, dtype):
    left = torch.randn(m, k, device="cuda").to(dtype)
    right = torch.randn(n, k, device="cuda").to(dtype)
    repeats = 10
    times = []
    for _ in range(9):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            torch.nn.functional.linear(left, right)
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * start.elapsed_time(end) / repeats)
    return statistics.median(times)


def main():
    torch.backends.cuda.matmul.allow_tf32 = True
    rows = []
    with torch.no_grad():
        for name, dtype in TYPES.items():
            for base in (512, 4096):
                for changed in ("m", "n", "k"):
                    for size in SIZES:
                        if base == 512 and changed == "m":
                            continue
                        sizes = {"m": base, "n": 4096, "k": 4096} | {changed: size}
                        time = timed(**sizes, dtype=dtype)
                        rows.append({"dtype": name, "changed": changed, **sizes, "time_us": time})
    about = {"torch": torch.__version__, "device": torch.cuda.get_device_name(0)}
    Path(sys.argv[1]).write_text(json.dumps({"about": about, "cases": rows}, indent=0))
    for base in (512, 4096):
        for name in TYPES:
            for changed in ("m", "n", "k"):
                chosen = [
                    row
                    for row in rows
                    if row["dtype"] == name
                    and row["changed"] == changed
                    and (row["m"] == base or (changed == "m" and base == 4096))
                ]
                if chosen:
                    said = "  ".join(f"{row[changed]}:{row['time_us']:.0f}" for row in chosen)
                    print(f"{name:9s} m {base:4d} {changed}  {said}")


main()
