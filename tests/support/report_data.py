"""Small tables for the tests of the report: three backends, several layers, known winners."""

from __future__ import annotations

import functools
import json
import re

import numpy as np
import pandas as pd

from perfml.ingest.merge.rule import merge
from perfml.modeling.results import Evaluation, Leakage, Ranking
from perfml.report import build_report, to_html, to_markdown

BACKENDS = ("cublas", "cudnn", "inductor")
LEAK = "The rows are repeats of a few conditions."


def kernels(layers=12, repeats=3, backends=BACKENDS, batches=(1,), **columns):
    """Return a Kernels table: two kernels a layer; the first backend is the fastest throughout."""
    return _launches(layers, repeats, backends, batches).assign(**columns)


@functools.cache
def _launches(layers, repeats, backends, batches):
    rows = []
    random = np.random.default_rng(0)
    for batch in batches:
        for speed, backend in enumerate(backends):
            for iteration in range(repeats):
                for layer in range(layers):
                    for part, kernel in enumerate((f"void gemm<{backend}>(int)", "im2col")):
                        base = (layer + 1) * (1 + 0.5 * speed) * batch * (4 if part == 0 else 1)
                        rows.append(
                            {
                                "run_id": f"{backend}-{batch}",
                                "workload": "net",
                                "backend": backend,
                                "precision": "fp32",
                                "batch": batch,
                                "device": "GPU",
                                "compute_capability": "9.0",
                                "iteration": iteration,
                                "layer": f"conv_{layer + 1:02d}",
                                "kernel": kernel,
                                "kernel_index": 2 * layer + part,
                                "grid": "(1, 1, 1)",
                                "block": "(32, 1, 1)",
                                "time_us": base * (1 + 0.01 * iteration),
                                "gld_efficiency": random.uniform(0.2, 1),
                                "dram_utilization": random.uniform(0.2, 1),
                                "stall_sync": random.uniform(0.05, 0.2),
                                "stall_memory_dependency": random.uniform(0.2, 0.5),
                            }
                        )
    return pd.DataFrame(rows)


def on_h200(**given):
    """Return kernels and layers of a device whose peaks are known, with amounts of work."""
    frame = kernels(**given).assign(device="NVIDIA H200")
    table = merge(frame)
    table["flops"] = 1e9
    table["arithmetic_intensity"] = 50.0
    return frame, table


def layers(**given):
    """Return the Layers table of `kernels`."""
    return _merged(**given).copy()


@functools.cache
def _merged(**given):
    return merge(kernels(**given))


def shapes(layers=12):
    """Return a provenance document whose run manifest describes the layers."""
    rows = [
        {
            "layer": f"conv_{place + 1:02d}",
            "type": "conv",
            "size": 1 if place % 2 == 0 else 3,
            "stride": 1,
            "filters": 64 if place < layers // 2 else 256,
            "input": "52x52x64",
            "output": "52x52x64",
            "flops": 1e8,
        }
        for place in range(layers)
    ]
    return {"created": "2026-11-21T10:00:00+00:00", "runs": [{"run_id": "a", "layers": rows}]}


def ranking(task="regression", p_top3=0.97):
    """Return a ranking in which gld_efficiency and its twin come first."""
    groups = (("gld_efficiency", "shared_efficiency"), ("dram_utilization",), ("stall_sync",))
    named = [" + ".join(group) for group in groups]
    summary = pd.DataFrame(
        {
            "group": named,
            "members": [", ".join(group) for group in groups],
            "mean_rank": [1.2, 2.5, 4.0],
            "rank_low": [1.0, 1.0, 2.5],
            "rank_high": [2.0, 4.0, 6.0],
            "p_top1": [0.8, 0.2, 0.0],
            "p_top3": [p_top3, 0.5, 0.1],
        }
    )
    table = pd.DataFrame(
        [
            {
                "model": model,
                "method": method,
                "metric": group[0],
                "group": name,
                "importance": 0.6 / (place + 1),
                "low": 0.4 / (place + 1),
                "high": 0.8 / (place + 1),
                "mean_rank": place + 1.0,
                "rank_low": 1.0,
                "rank_high": place + 2.0,
                "p_top1": 0.5,
                "p_top3": 0.9,
            }
            for model in ("dt", "gbr")
            for method in ("gini", "permutation")
            for place, (group, name) in enumerate(zip(groups, named, strict=True))
        ]
    )
    agreement = pd.DataFrame([{"left": "dt gini", "right": "gbr gini", "share": 0.67}])
    return Ranking(task, table, summary, groups, agreement, ("One metric is constant.",))


def evaluation(task="regression", unseen=0.25, baseline=0.6, leak=LEAK):
    """Return an evaluation of two models and a baseline; gbr is best on unseen layers."""
    score = "mape" if task == "regression" else "accuracy"
    means = {
        ("gbr", "random"): 0.08,
        ("dt", "random"): 0.05,
        ("backend-mean", "random"): 0.5,
        ("gbr", "leave-one-layer-out"): unseen,
        ("dt", "leave-one-layer-out"): unseen + 0.1,
        ("backend-mean", "leave-one-layer-out"): baseline,
    }
    if task == "classification":
        means = {key: 1 - value for key, value in means.items()}
    scores = pd.DataFrame(
        [
            {
                "model": model,
                "protocol": protocol,
                "score": score,
                "mean": mean,
                "median": mean,
                "q025": mean / 2,
                "q975": min(mean * 2, 1.0),
                "splits": 20,
                "baseline": model == "backend-mean",
            }
            for (model, protocol), mean in means.items()
        ]
    )
    truth = np.geomspace(0.01, 0.5, 12)
    predictions = pd.concat(
        pd.DataFrame(
            {
                "row": range(12),
                "layer": "conv_01",
                "backend": [BACKENDS[place % 3] for place in range(12)],
                "model": "gbr",
                "protocol": protocol,
                "truth": truth,
                "predicted": truth * factor,
                "count": 1,
            }
        )
        for protocol, factor in (("random", 1.05), ("leave-one-layer-out", 1.4))
    )
    leakage = Leakage(36, 12, 30, 0.2, 0.99, "gld_efficiency", 0.1, 0.1, 0.08, (), leak)
    features = ("gld_efficiency", "dram_utilization")
    dropped = {"cf_fu_utilization": "never changes"}
    return Evaluation(task, features, dropped, scores, predictions, leakage)


def build_page(table, **given):
    """Return the page of a report, its words without their links."""
    return without_links(to_html(build_report(table, **given)))


def without_links(page):
    """Return a page whose words of the glossary are plain text."""
    return re.sub(r'<a class="word"[^>]*>(.*?)</a>', r"\1", page)


def build_markdown(table, **given):
    """Return the Markdown of a report."""
    return to_markdown(build_report(table, **given))


def page_data(page):
    """Return what the chooser on a page is given."""
    found = re.search(r'<script type="application/json" id="k-data">(.*?)</script>', page, re.S)
    return json.loads(found[1])
