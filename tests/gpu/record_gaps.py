"""Gaps between kernels with known reasons: wall time without a profiler, and a trace of each case.

``python3 gaps.py OUT SECONDS`` writes ``gaps.json`` (wall times) and ``gaps_NAME.json.gz`` (Chrome
traces of torch.profiler). Cases come in groups: the first of a group is slow, the others are what
it becomes when the reason is taken away.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

OUT, END = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2])
REPEATS = 9


def busy(microseconds):
    end = time.perf_counter_ns() + round(1000 * microseconds)
    while time.perf_counter_ns() < end:
        pass


def graph_of(body):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            body()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        body()
    return made.replay


def cases():
    """Yield group, name, what it does, the function, and how many kernels of ours it launches."""
    small = torch.rand(1 << 10, device="cuda")
    middle = torch.rand(1 << 22, device="cuda")
    large = torch.rand(1 << 27, device="cuda")
    n = 100

    def repeat(body, count=n):
        def run():
            for _ in range(count):
                body()

        return run

    tiny = repeat(lambda: small.mul_(0.999))
    yield "tiny", "tiny_eager", "kernels shorter than their launch", tiny, n
    yield "tiny", "tiny_graph", "the same in one CUDA graph", graph_of(tiny), n

    def synced():
        middle.mul_(0.999)
        torch.cuda.synchronize()

    yield "sync", "sync_each", "the host waits for every kernel", repeat(synced), n
    yield "sync", "sync_none", "the same without waiting", repeat(lambda: middle.mul_(0.999)), n

    def item_each():
        for _ in range(40):
            middle.mul_(0.999)
            float(middle[0].item())

    def item_last():
        for _ in range(40):
            middle.mul_(0.999)
            middle[0]
        float(middle[0].item())

    yield "item", "item_each", "a value is read on the host after every step", item_each, 40
    yield "item", "item_last", "the value is read once at the end", item_last, 40
    for pause in (20, 60, 200):

        def paused(pause=pause):
            for _ in range(50):
                middle.mul_(0.999)
                busy(pause)

        yield (
            f"host_{pause}",
            f"host_{pause}_us",
            f"the host computes {pause} us a step",
            paused,
            50,
        )
    yield "host_20", "host_none", "no work of the host", repeat(lambda: middle.mul_(0.999), 50), 50

    yield (
        "long",
        "long_kernels",
        "kernels far longer than a launch: no gaps",
        repeat(lambda: large.mul_(0.999), 30),
        30,
    )

    x = torch.rand(1 << 16, device="cuda")

    def apart():
        y = x * x * x
        y = y * 0.044715
        y = y + x
        y = y * 0.7978845608
        y = torch.tanh(y)
        y = y + 1.0
        y = y * x
        return y * 0.5

    yield "fusion", "gelu_apart", "GELU in nine small kernels", repeat(apart, 15), 135
    yield (
        "fusion",
        "gelu_fused",
        "GELU in one kernel",
        repeat(lambda: torch.nn.functional.gelu(x, approximate="tanh"), 15),
        15,
    )

    pageable = torch.rand(1 << 16)
    pinned = pageable.pin_memory()
    there = torch.empty(1 << 16, device="cuda")

    def upload(source, later):
        def run():
            for _ in range(40):
                there.copy_(source, non_blocking=later)
                there.mul_(0.999)

        return run

    yield (
        "upload",
        "upload_pageable",
        "a copy from pageable memory a step",
        upload(pageable, False),
        40,
    )
    yield "upload", "upload_pinned", "from pinned memory, without waiting", upload(pinned, True), 40

    layers = []
    for _ in range(16):
        layers += [torch.nn.Linear(512, 512), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers).cuda().eval()
    given = torch.rand(1, 512, device="cuda")
    many = torch.rand(8192, 512, device="cuda")
    yield "mlp", "mlp_eager", "16 layers, batch 1", lambda: network(given), 32
    yield (
        "mlp",
        "mlp_graph",
        "16 layers, batch 1, in a CUDA graph",
        graph_of(lambda: network(given)),
        32,
    )
    yield "mlp_many", "mlp_batch_8192", "16 layers, batch 8192", lambda: network(many), 32


def wall(run):
    torch.cuda.synchronize()
    began = time.perf_counter_ns()
    run()
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - began) / 1000


def main():
    rows = []
    with torch.no_grad():
        for group, name, what, run, kernels in cases():
            if time.monotonic() > END:
                rows.append({"group": group, "name": name, "left_out": "no time left"})
                continue
            for _ in range(3):
                wall(run)
            plain = [wall(run) for _ in range(REPEATS)]
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as made:
                with record_function("warm"):
                    wall(run)
                with record_function("region"):
                    traced = wall(run)
            path = OUT / f"gaps_{name}.json.gz"
            made.export_chrome_trace(str(path))
            rows.append(
                {
                    "group": group,
                    "name": name,
                    "what": what,
                    "kernels": kernels,
                    "wall_us": statistics.median(plain),
                    "wall_us_all": plain,
                    "traced_wall_us": traced,
                }
            )
            print(
                f"{name:18s} {statistics.median(plain):10.1f} us, traced {traced:10.1f} us, "
                f"{path.stat().st_size >> 10} KiB",
                flush=True,
            )
    about = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(0),
        "python": sys.version.split()[0],
    }
    (OUT / "gaps.json").write_text(json.dumps({"about": about, "cases": rows}, indent=1))


main()
