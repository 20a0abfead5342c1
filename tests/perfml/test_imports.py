"""What nobody asked for is not loaded: a person, a worker or an agent waits for every library."""

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.process

CASES = {
    "import perfml": ("import perfml; dir(perfml)", "pandas numpy sklearn torch collectors"),
    "help": (
        "from perfml.cli import app\napp(['--help'], standalone_mode=False)",
        "pandas numpy scipy sklearn matplotlib pyarrow torch",
    ),
    "completion": (
        "from perfml.cli import options; assert options.datasets('h200')",
        "pandas scipy sklearn matplotlib torch",
    ),
    "tools for agents": (
        "from perfml.cli.agents import server; server()",
        "numpy pandas scipy sklearn",
    ),
    "collect": (
        (
            "from perfml.cli import app\nimport tempfile\n"
            "words = ['collect', 'yolov4-tiny', '--backend', 'cudnn', '--dry-run', '--out']\n"
            "app([*words, tempfile.gettempdir() + '/none'], standalone_mode=False)"
        ),
        "pandas scipy sklearn matplotlib pyarrow torch",
    ),
    # 0.4 s of every start of a worker, and of the driver before it
    "workers of a sweep": (
        "import collectors.sweep.task, collectors.sweep.driver, perfml.metrics.passes",
        "pandas scipy pyarrow",
    ),
    "workloads": (
        (
            "import collectors.workloads.runner, collectors.workloads.yolov4_tiny as network\n"
            "network.WORKLOAD.backends()"
        ),
        "torch onnx tensorrt tensorrt_rtx_bindings pandas",
    ),
    "figures": ("import perfml.report.figures, perfml.report", "matplotlib"),
    "a report": (
        (
            "import pandas as pd\nfrom perfml.report import build_report, to_html\n"
            "table = {'backend': ['a', 'b'] * 2, 'layer': [*'xxyy'], 'time_us': [1, 2, 3, 4]}\n"
            "to_html(build_report(pd.DataFrame(table)))"
        ),
        "matplotlib.pyplot",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_libraries_that_it_does_not_need_are_not_loaded(name):
    code, needless = CASES[name]
    program = f"{code}\nimport sys; print(*set({needless.split()}) & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == ""
