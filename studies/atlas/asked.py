"""How good is `perfml predict` on the sweep's last runs?

``python -m studies.atlas.asked`` writes ``benchmarks/results/predict-rest-h200.json``: every run of
``datasets/atlas/rest`` by itself, against what was fitted before it was recorded. The networks are
in the atlas in other precisions and batches; as always, `perfml predict` takes models and intervals
that did not learn from the network in question.
"""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np

from perfml.datasets import find
from perfml.datasets.parts import read_parts
from perfml.errors import PerfmlError
from perfml.predict import predict
from perfml.predict.reference import kept, reference
from perfml.util.files import replacing
from studies.atlas.measure import RESULTS
from studies.atlas.record import REST

FOUND = RESULTS.with_name("predict-rest-h200.json")
ABOUT = {
    "what": "perfml predict, first answers on the last 61 runs of datasets/atlas/sweep.yaml",
    "when": "2026-11-22",
    "commit": "7f398f2",
    "gpu": "two NVIDIA H200s of one host, cudnn",
    "recorded": "studies.atlas.record, 2 processes of 10 iterations; datasets/atlas/rest",
}


def asked(layers, provenance):
    """Return what came out for the layers of one run; errors are relative to the measured time."""
    answer = predict(layers, reference(), provenance=provenance, kept=kept(), top=0)
    compared = [each for each in answer.layers if each.verdict != "not compared"]
    error = np.array([abs(each.expected_us / each.time_us - 1) for each in compared])
    first = layers.iloc[0]
    return {
        "workload": str(first["workload"]),
        "precision": str(first["precision"]),
        "batch": int(first["batch"]),
        "layers": len(compared),
        "not_compared": len(answer.layers) - len(compared),
        "inside": sum(each.verdict == "usual" for each in compared),
        "mean_error": round(float(error.mean()), 3),
        "median_error": round(float(np.median(error)), 3),
        "slower": len(answer.slower),
    }


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    if kept() is None:
        msg = "what is kept was not fitted on this atlas, so it is not what was to be asked"
        raise PerfmlError(msg, where=str(find("atlas")), cure="Check fitted.npz out again.")
    table = read_parts(find("atlas") / REST, "layers")
    runs = table.frame.groupby("run_id", sort=True)
    found = [asked(run.reset_index(drop=True), table.provenance) for _, run in runs]
    with replacing(FOUND) as temporary:
        text = json.dumps({**ABOUT, "runs": found}, indent=1)
        temporary.write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(found)} runs: {FOUND.name}\n")


if __name__ == "__main__":
    main()
