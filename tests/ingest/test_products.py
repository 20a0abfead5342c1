"""Sizes of products come from the manifest of a run that knows its network."""

from perfml.ingest.run_labels import with_products
from tests.support.tables import make_kernels


def product(m, n, k, dtype="float16", count=1):
    return {"operator": "mm", "m": m, "n": n, "k": k, "dtype": dtype, "count": count}


def test_the_largest_product_of_a_layer_is_the_one_of_its_launches():
    frame = make_kernels([{"layer": name, "kernel": "k"} for name in ("a", "a", "b", "c")])
    layers = [
        {"layer": "a", "products": [product(8, 8, 64), product(8, 8, 32, "bfloat16", count=3)]},
        {"layer": "b", "products": [product(4, 5, 6, "float8_e4m3fn")], "flops": 240},
        {"layer": "c"},
    ]
    found = with_products(frame, {"layers": layers})
    assert found["product_k"].fillna(0).tolist() == [32, 32, 6, 0]
    assert found["product_bytes"].fillna(0).tolist() == [2, 2, 1, 0]
    assert found["product_flops"].fillna(0).tolist() == [0, 0, 240, 0]


def test_a_manifest_without_products_or_with_damaged_ones_changes_nothing():
    frame = make_kernels([{"layer": "a", "kernel": "k"}])
    damaged = [None, {}, {"m": 1}, product("many", 1, 1), product(1, 1, 1, dtype=None)]
    for layers in (None, 3, [], [None], [{"layer": "a", "products": damaged}]):
        assert with_products(frame, {"layers": layers}) is frame
