"""attention's own check on a real GPU: every version passes, kernels without a rescale do not."""

import pytest

from collectors.workloads import Options, workload
from studies.workloads.attention import variants
from studies.workloads.attention.launch import YARDSTICKS
from studies.workloads.attention.variants import LADDER, VARIANTS
from studies.workloads.attention.workload import plan
from tests.support.attention_sources import NO_RESCALE, changed_sources

pytestmark = pytest.mark.gpu

ODD = "6x1000x64"
"""No multiple of any tile."""
CASES = [
    *((name, "fp32", {"sizes": "3x512x64,40x128x32"}) for name in LADDER),
    *((name, "fp16", {"sizes": ODD}) for name in VARIANTS),
    *((name, "fp16", {"sizes": "4x1000x128", "causal": "1"}) for name in VARIANTS),
    ("wmma", "fp16", {"sizes": ODD, "variants": "all"}),
    ("triton", "fp16", {"sizes": f"{ODD},3x1000x128"}),
    ("triton", "fp16", {"sizes": ODD, "causal": "1"}),
    *(
        (name, precision, {"sizes": ODD})
        for name, (_, precisions) in YARDSTICKS.items()
        for precision in precisions
    ),
]


def checked(backend, precision, settings):
    session = workload("attention").session(
        Options(backend, precision, settings=tuple(settings.items()))
    )
    with session.active():
        rows = session.check()
    for row in rows:
        print(f"{backend} {precision} {row.output}: {row.error:.1e} of {row.limit:.0e}")
    return rows


@pytest.mark.parametrize(("backend", "precision", "settings"), CASES)
def test_every_version_of_attention_passes_its_check(backend, precision, settings):
    rows = checked(backend, precision, settings)
    options = Options(backend, precision, settings=tuple(settings.items()))
    assert len(rows) == 2 * len(plan(options))
    assert [row for row in rows if not row.passed] == []


@pytest.mark.parametrize("backend", VARIANTS)
def test_a_kernel_that_never_rescales_in_mid_row_is_refused(tmp_path, monkeypatch, backend):
    changed = changed_sources(tmp_path, f"{backend}.cu", NO_RESCALE)
    monkeypatch.setattr(variants, "FOLDER", changed)
    rising, drawn = checked(backend, "fp16", {"sizes": ODD})
    assert drawn.passed
    assert not rising.passed
