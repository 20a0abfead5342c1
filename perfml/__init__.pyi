from collectors.in_process import profile as profile
from collectors.layers import iteration as iteration
from collectors.layers import layers as layers
from collectors.layers import time_step as time_step
from perfml._version import __version__ as __version__
from perfml.datasets.frames import evaluate as evaluate
from perfml.datasets.frames import load_dataset as load_dataset
from perfml.datasets.frames import rank as rank
from perfml.datasets.frames import read as read
from perfml.datasets.inspected import inspect as inspect
from perfml.explain.advice.hazards import advise as advise
from perfml.explain.compare import explain as explain
from perfml.explain.roofs.python import roofline as roofline
from perfml.gate.python import gate as gate
from perfml.ingest.merge.rule import merge as merge
from perfml.predict.python import predict as predict
from perfml.report.figures.registry import plot as plot
from perfml.report.write import report as report

__all__ = [
    "advise",
    "evaluate",
    "explain",
    "gate",
    "inspect",
    "iteration",
    "layers",
    "load_dataset",
    "merge",
    "plot",
    "predict",
    "profile",
    "rank",
    "read",
    "report",
    "roofline",
    "time_step",
]
