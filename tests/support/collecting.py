"""Runs of `collect` under the stand-in profilers and launcher of tests/data/fake_tools."""

from collectors.collect import collect
from tests.support.paths import ROOT

TOOLS = ROOT / "tests" / "data/fake_tools"
LAUNCHER = f"{TOOLS / 'launcher'} --gres=gpu:1"


def workload(out, backends=("cublas",), **options):
    options = {"iterations": 2, "metric_iterations": 1, "layers": "conv_.*", **options}
    return collect("yolov4-tiny", backends=backends, out=out, launcher=LAUNCHER, **options)


def names(folder):
    return sorted(each.name for each in folder.iterdir())
