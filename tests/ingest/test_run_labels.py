import json

import pytest

from perfml.errors import InputError
from perfml.ingest.run_labels import Identity, from_manifest, from_name, pair_key, read_manifest


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("yolov4tiny_cublas_b1_fp32.csv", ("yolov4-tiny", "cublas", "fp32", 1)),
        ("yolov4tiny_cudnn_fp32_b8.csv.xz", ("yolov4-tiny", "cudnn", "fp32", 8)),
        ("net-trt-int8-batch16.ncu-rep", ("net", "tensorrt", "int8", 16)),
        ("resnet50_inductor_bf16_b8_timing.csv.xz", ("resnet50", "inductor", "bf16", 8)),
        ("profile.ncu-rep", ("profile", None, None, None)),
        ("my_big_model_v2.txt", ("my-big-model-v2", None, None, None)),
        # the name of a GPU is no batch
        ("llama_b200_fp16.json", ("llama-b200", None, "fp16", None)),
        ("llama_gb300_fp16.json", ("llama-gb300", None, "fp16", None)),
        ("llama_b16_b200_fp16.json", ("llama-b200", None, "fp16", 16)),
        ("llama_batch200_fp16.json", ("llama", None, "fp16", 200)),
    ],
)
def test_a_file_name_tells_the_run(name, expected):
    assert from_name(name) == Identity(*expected)


def test_a_profile_and_its_timing_pass_share_a_key():
    assert pair_key("a/net_cublas_timing.csv.xz") == pair_key("b/net_cublas.ncu-rep")


def test_what_the_user_says_comes_before_the_manifest_and_the_name():
    known = Identity(backend="mine").over(Identity(backend="cudnn", batch=8))
    assert known == Identity(backend="mine", batch=8)


def test_a_manifest_gives_the_identity(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"workload": "net", "backend": "cudnn", "batch": 8, "x": 1}))
    assert from_manifest(read_manifest(path)) == Identity("net", "cudnn", None, 8)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"batch": "eight"}', '{"backend": 3}'])
def test_a_damaged_manifest_is_an_error(tmp_path, text):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(InputError):
        read_manifest(path)
