"""What attaching costs a server: steps a second before, while and after, in bins of half a second.

Needs a GPU and torch::

    python -m benchmarks.attach graphs --share 0.05 --share 1
    python -m benchmarks.attach model
    python -m benchmarks.attach model --pairs 10 --seconds 2

``graphs`` replays a CUDA graph of 2,400 kernels, about 180,000 kernels a second on an H100,
``tiny`` one of the smallest kernels there are, 870,000 a second. ``model`` serves batches to a
transformer of 12 layers in fp16, kernel by kernel.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BIN_S = 0.5
SETTLED_S = 3.0
"""Of undisturbed serving before and after an attach."""


def graphs(rows: int = 1536) -> Callable[[], None]:
    """Return a step that replays a graph of 2,400 kernels, each over `rows` x 1,024 numbers."""
    import torch

    values = torch.zeros(rows, 1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        values.add_(1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(1200):
            values.add_(1)
            values.mul_(0.5)

    def step() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return step


def model() -> Callable[[], None]:
    """Return a step that serves a batch of 16 sequences of 128 to 12 layers of 768 in fp16."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, norm_first=True)
    net = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).eval().cuda().half()
    batch = torch.randn(16, 128, 768).pin_memory()

    def step() -> None:
        with torch.inference_mode():
            net(batch.cuda(non_blocking=True).half()).float().cpu()

    return step


def tiny() -> Callable[[], None]:
    """Return a step that replays a graph of 2,400 kernels of a microsecond."""
    return graphs(64)


SERVERS = {"graphs": graphs, "tiny": tiny, "model": model}


def serve(kind: str, seconds: float, rates: Path) -> None:
    """Serve for some seconds; write the end of each bin and the steps a second in it."""
    step = SERVERS[kind]()
    for _ in range(3):
        step()
    with rates.open("w", encoding="utf-8", buffering=1) as file:
        begin, end, steps = time.time(), time.time() + seconds, 0
        while time.time() < end:
            step()
            steps += 1
            now = time.time()
            if now - begin >= BIN_S:
                file.write(f"{begin:.3f} {now:.3f} {steps / (now - begin):.3f}\n")
                begin, steps = now, 0


@dataclass(frozen=True)
class Attached:
    """What one attach cost."""

    share: float
    seen: float
    kernels: int
    table_mb: float
    before: float
    during: float
    lowest: float
    after: float

    @property
    def cost(self) -> float:
        """Lost share of the throughput, of 1."""
        undisturbed = statistics.fmean((self.before, self.after))
        return 1 - self.during / undisturbed


@contextmanager
def server(kind: str, seconds: float, folder: Path) -> Iterator[tuple[int, Path]]:
    """Give the process of a server that can be measured, and the file of its rates."""
    rates = folder / "rates.txt"
    words = ["serve", kind, str(seconds), str(rates)]
    command = [sys.executable, "-m", "perfml", "attach", "--", sys.executable, "-m"]
    with subprocess.Popen([*command, "benchmarks.attach", *words]) as process:
        while not rates.is_file():
            if process.poll() is not None:
                msg = "the server did not start"
                raise RuntimeError(msg)
            time.sleep(0.1)
        try:
            yield process.pid, rates
        finally:
            process.kill()


def mean_rate(rates: Path, since: float, until: float) -> list[float]:
    """Return the rates of the bins that lie between two times."""
    rows = [tuple(map(float, line.split())) for line in rates.read_text().splitlines()]
    return [rate for begin, end, rate in rows if begin >= since and end <= until]


def measure(kind: str, shares: Sequence[float], seconds: float) -> list[Attached]:
    """Attach to a server once for each share."""
    from collectors.attach import attach

    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = (len(shares) + 1) * (seconds + 3 * SETTLED_S) + 30
        with server(kind, whole, folder) as (pid, rates):
            for share in shares:
                asked = time.time()
                time.sleep(SETTLED_S)
                begin = time.time()
                run = attach(pid, seconds=seconds, share=share, out=folder / "runs")
                ended = time.time()
                time.sleep(SETTLED_S)
                during = mean_rate(rates, begin + BIN_S, begin + seconds)
                timing = json.loads((run / "run.json").read_text())["timing"]
                table = next(run.glob("timing.csv*"))
                found.append(
                    Attached(
                        share,
                        timing["seen_share"],
                        timing["launches"],
                        table.stat().st_size / 1e6,
                        statistics.fmean(mean_rate(rates, asked, begin)),
                        statistics.fmean(during),
                        min(during),
                        statistics.fmean(mean_rate(rates, ended, time.time())),
                    )
                )
    return found


def pairs(kind: str, number: int, seconds: float) -> dict[str, float]:
    """Serve attached and alone in turns; return the cost's median with its interval.

    The interval is of order statistics: of ten pairs from the second to the ninth, in which the
    median lies in 98 % of series. ``never`` is the rate before the first attach, ``between`` that
    of the turns alone: the process keeps CUPTI then.
    """
    from collectors.attach import attach

    costs, alone = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with server(kind, (2 * seconds + 3) * number + 30, folder) as (pid, rates):
            asked = time.time()
            time.sleep(SETTLED_S)
            never = statistics.fmean(mean_rate(rates, asked, time.time()))
            for turn in range(number):
                of_turn = {}
                for attached in (turn % 2 == 0, turn % 2 == 1):
                    begin = time.time()
                    if attached:
                        attach(pid, seconds=seconds, out=folder / "runs")
                    else:
                        time.sleep(seconds)
                    until = begin + seconds
                    of_turn[attached] = statistics.fmean(mean_rate(rates, begin, until))
                costs.append(1 - of_turn[True] / of_turn[False])
                alone.append(of_turn[False])
    costs.sort()
    outer = max(0, round(0.1 * number))
    return {
        "median": statistics.median(costs),
        "low": costs[outer],
        "high": costs[-1 - outer],
        "never": never,
        "between": statistics.median(alone),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row an attach."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] == "serve":
        serve(words[1], float(words[2]), Path(words[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("server", choices=SERVERS)
    parser.add_argument("--share", type=float, action="append")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--pairs", type=int, default=0)
    asked = parser.parse_args(words)
    if asked.pairs:
        print(json.dumps(pairs(asked.server, asked.pairs, asked.seconds), indent=1))
        return
    print("server  share   seen   kernels  table MB  before  while  lowest  after    cost")
    for each in measure(asked.server, asked.share or [0.05, 1.0], asked.seconds):
        print(
            f"{asked.server:7} {each.share:5.2f} {each.seen:6.3f} {each.kernels:9,} "
            f"{each.table_mb:9.2f} {each.before:7.2f} {each.during:6.2f} {each.lowest:7.2f} "
            f"{each.after:6.2f} {each.cost:7.2%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
