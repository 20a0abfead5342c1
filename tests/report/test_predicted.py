"""What predict says of each slower layer, as people read it."""

from dataclasses import replace

from perfml.predict.results import PredictedLayer, Prediction, Reason, SlowestKernel, Why
from perfml.report.render.text import to_text
from perfml.report.sections.predicted import predict_document


def test_every_slower_layer_says_what_limits_it_and_the_first_ones_say_more():
    reason = Reason(("small_grid",), "too few blocks", "8 blocks", "Split it.", "gemm")
    slow = PredictedLayer(
        *("conv", "Conv2d", "net", "cudnn", "fp32", 1, "NVIDIA H200", 1, 9.0, 3.0, 2.0, 4.0),
        ratio=3.0,
        excess_us=6.0,
        verdict="slower",
    )
    why = Why(1.2, counted=True, reasons=(reason,), kernel=SlowestKernel("relu", 2, 5.0))
    layers = (
        replace(slow, limits=reason, why=why),
        replace(slow, layer="pool", limits=reason),
        replace(slow, layer="add"),
    )
    text = to_text(predict_document(Prediction("atlas", 50, 9, layers, 0.9, 1.0)))
    assert "Too few blocks. gemm, 8 blocks. Do: Split it." in text
    assert "Its slowest kernel is relu: 2 launches, 5.00 µs of 9.00 µs." in text
    assert "pool: too few blocks (gemm)." in text
    assert "add: advice finds no cause in it." in text
