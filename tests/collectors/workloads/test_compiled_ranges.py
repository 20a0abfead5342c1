"""Inductor's code opens the range of each kernel's module, and says what the kernel computes."""

from types import SimpleNamespace

from collectors.workloads import compiled_ranges
from collectors.workloads.compiled_ranges import Origin, modules_of, with_ranges

CODE = """def call(args):
    # Topologically Sorted Source Nodes: [linear, relu], Original ATen: [aten.addmm, aten.relu]
    extern_kernels.addmm(buf0)
    # Topologically Sorted Source Nodes: [norm], Original ATen: [aten.native_layer_norm]
    triton_per_fused_native_layer_norm_0.run(buf1)
    return (buf1, )
"""


def node(name, operator, module, forward=None):
    stack = {"m": (module, object)} if module else None
    meta = {"nn_module_stack": stack, "original_aten": f"aten.{operator}.default"}
    if forward:
        meta["fwd_nn_module_stack"] = {"m": (forward, object)}
    source = [SimpleNamespace(name=name)]
    return SimpleNamespace(op="call_function", name=name, meta=meta | {"from_node": source})


def test_a_kernel_is_its_products_modules_and_each_has_its_operator(monkeypatch):
    nodes = [
        node("linear", "addmm", "L['self'].layers[0].up"),
        node("relu", "relu", "L['self'].layers[0].act"),
        node("norm", "native_layer_norm", "L['self'].norm"),
    ]
    told = []
    monkeypatch.setattr(compiled_ranges, "_listeners", [lambda *each: told.append(each)])
    kernels = SimpleNamespace(addmm=lambda _: None, run=lambda _: None)
    names = dict.fromkeys(("extern_kernels", "triton_per_fused_native_layer_norm_0"), kernels)
    scope = {**names, "buf0": 0, "buf1": 1}
    exec(with_ranges(CODE, modules_of(nodes)), scope)
    scope["call"]([])
    assert told == [("layers.0.up", "addmm"), ("norm", "native_layer_norm"), ("", "")]


def test_a_node_of_backward_is_of_its_forward_modules_backward():
    made = modules_of([node("mm", "mm", None, forward="L['self'].up")])
    assert made == {"mm": Origin("up.backward", "mm")}


def test_code_without_kernels_of_modules_stays_as_it_is():
    assert with_ranges(CODE, {}) == CODE
