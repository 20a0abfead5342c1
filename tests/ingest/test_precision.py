"""The precision of a program that nobody stated."""

import json

import pandas as pd
import pytest

from perfml.ingest.inferred import precision_of
from perfml.ingest.profiles import ingest
from tests.support.paths import DATA

HALF = "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_tensor16x8x16_cublas"
SINGLE = "ampere_sgemm_128x64_tn"
NORM = "void at::native::layer_norm_kernel<float, float>(int, float const*)"
FUSED = "triton_poi_fused__scaled_dot_product_attention_view_4"


def told(**times):
    return precision_of(pd.DataFrame(list(times.items()), columns=["kernel", "time_us"]))


@pytest.mark.parametrize(
    ("times", "precision"),
    [
        ({HALF: 9.0, NORM: 90.0}, "fp16"),  # products decide
        ({HALF: 8.0, SINGLE: 2.0}, "mixed"),
        ({HALF: 95.0, SINGLE: 5.0}, "fp16"),
        ({HALF: 1.0, FUSED: 99.0}, "fp16"),  # it prepares a product, and is none
        ({"scale(double*, int)": 3.0}, "fp64"),  # no product: what all kernels tell
        ({"scale(double*, int)": 3.0, "step(void*)": 4.0}, None),
        ({"step(void*)": 4.0}, None),
    ],
)
def test_products_decide_by_their_time(times, precision):
    assert told(**times) == precision


def test_runs_of_one_program_have_one_precision(tmp_path):
    table = "iteration,layer,kernel,time_us,grid,block,start_us\n"
    row = '0,a,"{}",{},"(1, 1, 1)","(32, 1, 1)",0.000\n'
    for name, rows in (("one", [(HALF, 1)]), ("two", [("step(void*)", 1)]), ("three", [])):
        folder = tmp_path / name
        folder.mkdir()
        program = ["./prog"] if rows else ["./other"]
        stated = {} if rows else {"precision": "bf16"}
        record = {"run_id": name, "workload": "w", "program": program, **stated}
        (folder / "run.json").write_text(json.dumps(record))
        text = "".join(row.format(*each) for each in rows or [(SINGLE, 1)])
        (folder / "timing.csv").write_text(table + text)
    frame = ingest([tmp_path]).frame
    assert frame.groupby("run_id")["precision"].unique().map(list).to_dict() == {
        "one": ["fp16"],
        "two": ["fp16"],
        "three": ["bf16"],  # what was stated stays
    }


def test_recorded_models_in_half_and_single_precision():
    assert set(ingest([DATA / "deployed" / "gpt2_graphs"]).frame["precision"]) == {"fp16"}
    assert set(ingest([DATA / "deployed" / "in_process"]).frame["precision"]) == {"fp32"}
