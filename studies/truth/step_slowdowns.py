"""Slowdowns planted in PyTorch models: traces of both sides, and step times without a profiler.

Labels (`PLANTED`) were written before anything was recorded. Random weights, nothing is downloaded.
Needs a GPU, torch, transformers and timm: ``python3 -m studies truth.step_slowdowns --out FOLDER``.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import statistics
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PLANTED = {
    "host_table": ("host_operators", "an embedding table of tabular features stays on the CPU"),
    "empty_cache": ("allocation", "torch.cuda.empty_cache() after every step of training a ViT"),
    "nan_checks": ("synchronising", "a hook reads each block's largest value with float()"),
    "compiled_shapes": ("compilation", "torch.compile(dynamic=False), another length each step"),
    "loader": ("data_loading", "images are augmented in the process that trains, no workers"),
    "pageable": ("pageable_copies", "volumes are copied from pageable memory"),
    "vocabulary_loop": ("host_work", "a Python loop over the vocabulary after each token"),
    "doubles": ("double_precision", "points come from NumPy as float64, and the model follows"),
    "eager_attention": ("attention_written_out", "BERT with attn_implementation='eager'"),
    "cell_by_cell": ("launch_bound", "a GRUCell in a loop in place of a GRU"),
    "optimizer_loop": ("optimizer_loop", "AdamW(foreach=False) for MobileNetV3"),
    "full_precision": ("no_tensor_cores", "DeiT in FP32 without TF32"),
    "twice": ("more_launches", "a discriminator judges the same images twice"),
    "dense_gradient": ("dense_gradient", "the gradient of a table of a million rows is dense"),
    "offload": ("pageable_copies", "activations are kept on the host, not pinned"),
    "maps_to_host": ("exposed_copies", "maps are copied to pinned memory in the stream of kernels"),
    "layout": ("layout", "a contiguous() after each stage of a channels_last ResNet"),
    "masked": ("synchronising", "y[mask] in place of torch.where in every block"),
    "bins": ("same_kernels", "index_add_ into four rows in place of as many as there are tokens"),
    "equal": ("", "nothing"),
    "equal_noisy": ("", "nothing; the host sleeps 0 to 3 ms in every step of both sides"),
    "no_graph": ("launch_bound", "torch.compile without reduce-overhead, batch 1"),
    "no_cache": ("more_work", "a decoder reads all tokens again for each new one"),
    "no_capture": ("launch_bound", "steps of small products that the fast side replays as a graph"),
}
"""Case to the cause that `explain` should name first, and what was planted."""

FEW = {"compiled_shapes": 4}
"""Recorded steps of a case whose steps take seconds; of others ten."""
LAST_S = 440.0
"""No case is begun later: a command of the machine ends after ten minutes."""
MOST_BYTES, MOST_FILES = 15 << 20, 7
Step = Callable[[], object]


def build(name: str, slow: bool) -> Step:
    """Return a step of one side of a case."""
    import torch

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    step: Step = globals()[f"_{name}"](torch, slow)
    return step


def _timm(name: str, **words: Any) -> Any:
    return importlib.import_module("timm").create_model(name, pretrained=False, **words).cuda()


def _training(torch: Any, model: Any, batch: Callable[[], Any], optimizer: Any = None) -> Step:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(batch()).float().square().mean()
        loss.backward()
        optimizer.step()

    return step


def _images(torch: Any, number: int, size: int = 224) -> Any:
    return torch.randn(number, 3, size, size, device="cuda")


def _layers(torch: Any, width: int, depth: int) -> Any:
    nn = torch.nn
    return nn.Sequential(
        *(layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU()))
    ).cuda()


def _inference(torch: Any, model: Any, *inputs: Any) -> Step:
    def step() -> None:
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
            model(*inputs)

    return step


def _host_table(torch: Any, slow: bool) -> Step:
    table = torch.nn.EmbeddingBag(500_000, 256).to("cpu" if slow else "cuda")
    model, rows = _layers(torch, 256, 12), torch.randint(0, 500_000, (2048, 64))
    rows = rows if slow else rows.cuda()

    def step() -> None:
        with torch.inference_mode():
            model(table(rows).cuda())

    return step


def _empty_cache(torch: Any, slow: bool) -> Step:
    images = _images(torch, 32)
    train = _training(torch, _timm("vit_small_patch16_224"), lambda: images)

    def step() -> None:
        train()
        if slow:
            torch.cuda.empty_cache()

    return step


def _nan_checks(torch: Any, slow: bool) -> Step:
    def look(_module: Any, _inputs: Any, out: Any) -> None:
        float(out.abs().max())

    model = _timm("swin_tiny_patch4_window7_224").eval()
    if slow:
        for part in [each for each in model.modules() if type(each).__name__.endswith("Block")]:
            part.register_forward_hook(look)
    return _inference(torch, model, _images(torch, 64))


def _compiled_shapes(torch: Any, slow: bool) -> Step:
    torch._dynamo.config.recompile_limit = 256
    model = torch.compile(_layers(torch, 512, 4), dynamic=False)
    lengths = iter(range(1000, 2000, 8))

    def step() -> None:
        with torch.inference_mode():
            for _ in range(20):
                model(torch.randn(1000, 512, device="cuda"))
            model(torch.randn(next(lengths) if slow else 1000, 512, device="cuda"))

    return step


def _loader(torch: Any, slow: bool) -> Step:
    class Pictures(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 1 << 16

        def __getitem__(self, at: int) -> Any:
            picture = torch.full((3, 256, 256), at % 255, dtype=torch.uint8).float()
            picture = (picture - picture.mean()) / 58.0
            return torch.nn.functional.interpolate(picture[None, :, 8:-8], (224, 224))[0].flip(2)

    words: Any = {"num_workers": 0 if slow else 6, "pin_memory": not slow, "batch_size": 32}
    batches = iter(torch.utils.data.DataLoader(Pictures(), **words))
    model = _timm("efficientnet_b0")
    return _training(torch, model, lambda: next(batches).cuda(non_blocking=True))


def _pageable(torch: Any, slow: bool) -> Step:
    nn = torch.nn
    model = nn.Sequential(nn.Conv3d(1, 32, 3, 2, 1), nn.ReLU(), nn.Conv3d(32, 64, 3, 2, 1)).cuda()
    volumes = torch.randn(8, 1, 160, 160, 160)
    volumes = volumes if slow else volumes.pin_memory()
    return _training(torch, model, lambda: volumes.to("cuda", non_blocking=True))


def _decoder(torch: Any, layers: int = 6) -> Any:
    hf = importlib.import_module("transformers")
    config = hf.LlamaConfig(
        vocab_size=32000, hidden_size=512, intermediate_size=1408, num_hidden_layers=layers,
        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=4096,
    )  # fmt: skip
    return hf.LlamaForCausalLM(config).cuda().to(torch.bfloat16).eval()


def _vocabulary_loop(torch: Any, slow: bool) -> Step:
    model, token = _decoder(torch), torch.ones(4, 1, dtype=torch.long, device="cuda")
    state = {"cache": None, "token": token}
    banned = dict.fromkeys(range(0, 32000, 7), -1.0)

    def step() -> None:
        with torch.inference_mode():
            out = model(state["token"], past_key_values=state["cache"], use_cache=True)
            if slow:
                sum(banned.get(at, 0.0) * at for at in range(60_000))
            state.update(cache=out.past_key_values, token=out.logits[:, -1:].argmax(-1))

    return step


def _doubles(torch: Any, slow: bool) -> Step:
    nn = torch.nn
    number = torch.float64 if slow else torch.float32
    model = nn.Sequential(nn.Conv1d(3, 64, 1), nn.ReLU(), nn.Conv1d(64, 256, 1), nn.ReLU())
    model, points = model.cuda().to(number), torch.randn(16, 3, 8192, device="cuda", dtype=number)

    def step() -> None:
        model.zero_grad()
        model(points).amax(2).square().mean().backward()

    return step


def _eager_attention(torch: Any, slow: bool) -> Step:
    hf = importlib.import_module("transformers")
    config = hf.BertConfig(
        hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=1024,
        max_position_embeddings=1024, attn_implementation="eager" if slow else "sdpa",
    )  # fmt: skip
    model = hf.BertModel(config).cuda().to(torch.bfloat16).eval()
    return _inference(torch, model, torch.randint(0, 30000, (16, 1024), device="cuda"))


def _cell_by_cell(torch: Any, slow: bool) -> Step:
    cell, layer = torch.nn.GRUCell(256, 256).cuda(), torch.nn.GRU(256, 256).cuda()
    sounds = torch.randn(150, 64, 256, device="cuda")

    def step() -> None:
        with torch.inference_mode():
            if not slow:
                layer(sounds)
                return
            state = torch.zeros(64, 256, device="cuda")
            for sound in sounds:
                state = cell(sound, state)

    return step


def _optimizer_loop(torch: Any, slow: bool) -> Step:
    model, images = _timm("mobilenetv3_large_100"), _images(torch, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=not slow)
    return _training(torch, model, lambda: images, optimizer)


def _full_precision(torch: Any, slow: bool) -> Step:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not slow
    model, images = _timm("deit_small_patch16_224").eval(), _images(torch, 64)

    def step() -> None:
        with torch.inference_mode():
            model(images)

    return step


def _twice(torch: Any, slow: bool) -> Step:
    nn, images = torch.nn, torch.randn(64, 64, 16, 16, device="cuda")
    maker = nn.Sequential(nn.ConvTranspose2d(64, 64, 4, 2, 1), nn.ReLU(), nn.Conv2d(64, 3, 3, 1, 1))
    judge = nn.Sequential(nn.Conv2d(3, 128, 4, 2, 1), nn.LeakyReLU(), nn.Conv2d(128, 256, 4, 2, 1))
    maker, judge = maker.cuda(), judge.cuda()

    def step() -> None:
        made = maker(images)
        loss = judge(made).mean() + (judge(made).square() if slow else judge(made[:1])).mean()
        loss.backward()

    return step


def _dense_gradient(torch: Any, slow: bool) -> Step:
    table = torch.nn.Embedding(1_000_000, 128, sparse=not slow).cuda()
    model, rows = _layers(torch, 128, 6), torch.randint(0, 1_000_000, (512, 32), device="cuda")
    whole = torch.nn.Sequential(table, model)
    return _training(torch, whole, lambda: rows, torch.optim.SGD(whole.parameters(), lr=0.1))


def _offload(torch: Any, slow: bool) -> Step:
    model, images = _timm("resmlp_12_224"), _images(torch, 16)
    train = _training(torch, model, lambda: images)

    def step() -> None:
        if not slow:
            return train()
        with torch.autograd.graph.save_on_cpu(pin_memory=False):
            return train()

    return step


def _maps_to_host(torch: Any, slow: bool) -> Step:
    nn, images = torch.nn, _images(torch, 8, 512)
    model = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1), *(nn.Conv2d(64, 64, 3, 1, 1) for _ in "1234"))
    model, other = model.cuda(), torch.cuda.Stream()
    kept = torch.empty(8, 64, 512, 512, dtype=torch.bfloat16).pin_memory()

    def step() -> None:
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
            made = model(images)
            if slow:
                kept.copy_(made, non_blocking=True)
                return
            other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                kept.copy_(made, non_blocking=True)
            made.record_stream(other)

    return step


def _layout(torch: Any, slow: bool) -> Step:
    model = _timm("resnet50").to(memory_format=torch.channels_last).to(torch.bfloat16).eval()
    images = _images(torch, 64).to(torch.bfloat16).to(memory_format=torch.channels_last)
    if slow:
        for part in [each for each in model.modules() if type(each).__name__ == "Bottleneck"]:
            part.register_forward_hook(lambda _m, _i, out: out.contiguous())
    return _inference(torch, model, images)


def _masked(torch: Any, slow: bool) -> Step:
    layers, values = _layers(torch, 512, 12), torch.randn(256, 512, device="cuda")

    def step() -> None:
        with torch.inference_mode():
            kept = values
            for layer in layers:
                kept, mask = layer(kept), kept > 0
                if slow:
                    kept[mask].sum()
                else:
                    torch.where(mask, kept, 0.0).sum()

    return step


def _bins(torch: Any, slow: bool) -> Step:
    layers, tokens = _layers(torch, 256, 4), torch.randn(65_536, 256, device="cuda")
    place = torch.arange(65_536, device="cuda") % (4 if slow else 65_536)

    def step() -> None:
        with torch.inference_mode():
            torch.zeros(65_536, 256, device="cuda").index_add_(0, place, layers(tokens))

    return step


def _equal(torch: Any, slow: bool) -> Step:
    return _inference(torch, _timm("mixer_b16_224").eval(), _images(torch, 32))


def _equal_noisy(torch: Any, slow: bool) -> Step:
    layers, values = _layers(torch, 512, 12), torch.randn(64, 512, device="cuda")
    waits = iter((at * (7 if slow else 5)) % 11 for at in range(1000))

    def step() -> None:
        with torch.inference_mode():
            layers(values)
            time.sleep(next(waits) * 3e-4)

    return step


def _no_graph(torch: Any, slow: bool) -> Step:
    model = torch.compile(_layers(torch, 256, 24), mode="default" if slow else "reduce-overhead")
    values = torch.randn(1, 256, device="cuda")

    def step() -> None:
        with torch.inference_mode():
            model(values)

    return step


def _no_cache(torch: Any, slow: bool) -> Step:
    model, tokens = _decoder(torch), torch.ones(8, 1024, dtype=torch.long, device="cuda")
    with torch.inference_mode():
        state = {"cache": model(tokens, use_cache=True).past_key_values}

    def step() -> None:
        with torch.inference_mode():
            if slow:
                model(tokens, use_cache=False)
            else:
                model(tokens[:, :1], past_key_values=state["cache"], use_cache=True)

    return step


def _no_capture(torch: Any, slow: bool) -> Step:
    model, values = _layers(torch, 128, 40), torch.randn(8, 128, device="cuda")
    with torch.inference_mode():
        for _ in range(3):
            model(values)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(values)

    def step() -> None:
        if slow:
            with torch.inference_mode():
                model(values)
        else:
            graph.replay()

    return step


def record(torch: Any, name: str, slow: bool, folder: Path) -> dict[str, Any]:
    """Record one side: step times by events without a profiler, then a trace of as many steps."""
    step, count = build(name, slow), FEW.get(name, 10)
    for _ in range(min(count, 4)):
        step()
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    for mark in marks:
        mark.record()
        if mark is not marks[-1]:
            step()
    torch.cuda.synchronize()
    bare = [one.elapsed_time(other) for one, other in itertools.pairwise(marks)]
    activities = torch.profiler.ProfilerActivity
    marked = list(PLANTED).index(name) % 2 == 0  # half by the profiler's schedule, half by a range
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=count, repeat=1) if marked else None
    path = str(folder / f"{name}_{'slow' if slow else 'fast'}.json.gz")
    rows: list[Any] = []

    def keep(profiler: Any) -> None:
        profiler.export_chrome_trace(path)
        rows.extend(profiler.key_averages())

    with torch.profiler.profile(
        activities=[activities.CPU, activities.CUDA], schedule=schedule, on_trace_ready=keep
    ) as profiler:
        for _ in range(count + marked):
            if marked:
                step()
                profiler.step()
                continue
            with torch.profiler.record_function("iteration"):
                step()
        torch.cuda.synchronize()
    first = {
        kind: [row.key for row in sorted(rows, key=lambda row: -getattr(row, kind))[:2]]
        for kind in ("self_cpu_time_total", "self_device_time_total")
    }
    return {"step_ms": statistics.median(bare), "steps_ms": bare, "key_averages": first}


def pack(folder: Path, out: Path) -> list[str]:
    """Put traces into archives that are small enough; return the names of those left out."""
    rest = sorted(folder.glob("*.json.gz"), key=lambda path: -path.stat().st_size)
    for number in range(MOST_FILES):
        with tarfile.open(out / f"traces_{number}.tar", "w") as archive:
            size, kept = 0, []
            for path in rest:
                if size + path.stat().st_size <= MOST_BYTES:
                    archive.add(path, path.name)
                    size += path.stat().st_size
                else:
                    kept.append(path)
            rest = kept
    return [path.name for path in rest]


def main() -> int:
    """Record every case, as long as there is time."""
    import tempfile

    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cases", nargs="*", default=list(PLANTED))
    options = parser.parse_args()
    begun, results = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in options.cases:
            if time.monotonic() - begun > LAST_S:
                print(case, "left out: no time", flush=True)
                continue
            for side in ("fast", "slow"):
                try:
                    made = record(torch, case, side == "slow", folder)
                except Exception as error:  # one case must not cost the others
                    print(case, side, "FAILED", repr(error)[:300], flush=True)
                    continue
                results.setdefault(case, {"label": PLANTED[case][0]})[side] = made
                seconds = time.monotonic() - begun
                print(f"{case:16} {side} {made['step_ms']:9.3f} ms, at {seconds:.0f} s", flush=True)
                torch.cuda.empty_cache()
        options.out.mkdir(parents=True, exist_ok=True)
        lost = pack(folder, options.out)
    print("no room for:", *lost or ["none"])
    (options.out / "results.json").write_text(json.dumps(results, indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
