"""Tables and figures of chapter 2 beyond those of the analysed file."""

from __future__ import annotations

from collections.abc import Iterator

from perfml.report import figures as shared
from perfml.reproduce.files import Part, data_parts
from perfml.reproduce.run import mean_layer_time, mean_times
from studies.reproduction import chapter
from studies.reproduction.network import layer_kernels
from studies.reproduction.study import Chapter

_LAYERS = {"conv_03": "figure_2_5", "conv_20": "figure_2_5_layer_20"}


def all_parts(found: Chapter) -> list[Part]:
    """Return every table and figure of the chapter that the data allows, in its order."""
    own = {part.name: part for part in data_parts(found.analysis)}
    parts = own | {part.name: part for part in (*_tables(found), *_figures(found))}
    return [parts[name] for name in sorted(parts, key=lambda name: (name < "table", name))]


def _tables(found: Chapter) -> Iterator[Part]:
    network = found.network
    if network is None:
        return
    name = f"{network['name']}, {network['device']}"
    for file, caption, table in (
        (
            "table_2_1",
            f"Table 2.1: the study's device, and that of {name}.",
            chapter.device_table(network["about"]),
        ),
        (
            "table_2_3_cells",
            f"Table 2.3 as printed, on {name}: layers by input channels and filter size.",
            chapter.filter_cross(network["filters"]),
        ),
        (
            "table_2_3",
            f"Table 2.3 on {name}: layers by filter, fast and slow under cuBLAS.",
            network["filters"],
        ),
        (
            "table_2_4",
            "Table 2.4: structures of layers 3 and 20, published and in perfml's network.",
            network["structures"],
        ),
    ):
        yield Part(file, caption, table)


def _figures(found: Chapter) -> Iterator[Part]:
    means = mean_times(found.analysis, found.recording)
    caption = "Figure 2-1: mean time a layer. Only bars of the same data can be compared."
    yield Part("figure_2_1", caption, means, mean_layer_time(means))
    caption = "Figure 2-2: the method, and the commands that are its steps here."
    yield Part("figure_2_2", caption, chapter.method_table(), chapter.method_figure())
    engines = chapter.engine_steps()
    table = chapter.fusion_table(engines)
    for precision in ("fp32", "int8"):
        caption = (
            f"Figure 2-3: which layers of YOLOv4-Tiny an engine in {precision} makes one step of "
            f"({engines['source']}). The table has every precision."
        )
        drawn = chapter.fusion_figure(engines, precision)
        yield Part(f"figure_2_3_{precision}", caption, table, drawn)
    if found.recording is None or found.network is None:
        return
    device, kernels = found.network["device"], found.recording.kernels
    caption = f"Figure 2-4 on {device}: time of every convolution, batch 1."
    drawn = shared.layer_times(found.recording.layers)
    yield Part("figure_2_4", caption, found.network["times"].reset_index(), drawn)
    for layer, name in _LAYERS.items():
        if (kernels["layer"] == layer).any():
            caption = f"Figure 2-5 on {device}: the kernels of layer {int(layer[-2:])}."
            drawn = shared.kernel_shares(kernels, layer=layer)
            yield Part(name, caption, layer_kernels(kernels, layer), drawn)
