"""A verdict as text, as Markdown for a pull request, and as JUnit for a CI server."""

from __future__ import annotations

from xml.etree import ElementTree

from perfml.errors import plain
from perfml.gate.verdict import GateResult, LayerVerdict, Verdict
from perfml.report.render.markdown import escape
from perfml.util.words import count

HEADLINES = {
    Verdict.SAME: "The same counted work",
    Verdict.BETTER: "Less work",
    Verdict.WORSE: "More work",
    Verdict.UNCLEAR: "Cannot tell",
}

_ORDER = (Verdict.WORSE, Verdict.UNCLEAR, Verdict.BETTER)
"""Layers that are the same are counted, not listed."""


def text(result: GateResult, base: str, new: str) -> str:
    """Return the verdict for a terminal: the answer, then the layers that changed."""
    lines = [f"{headline(result)} ({plain(new)} against {plain(base)})."]
    for layer, alike in _alike(result):
        more = f" (and {count(alike - 1, 'more layer')} for the same reason)" if alike > 1 else ""
        lines.append(f"  {layer.verdict}: {plain(layer.layer)}: {layer.reason}{_time(layer)}{more}")
    return "\n".join([*lines, *partners(result), *result.time_notes])


def markdown(result: GateResult, base: str, new: str) -> str:
    """Return the verdict for a pull request."""
    lines = [f"**{headline(result)}** ({escape(new)} against {escape(base)})", ""]
    if listed(result):
        lines += ["| layer | verdict | why | time |", "|---|---|---|---|"]
        lines += [
            f"| {escape(layer.layer)} | {layer.verdict} | {escape(layer.reason)} "
            f"| {_ratio(layer) or '–'} |"
            for layer in listed(result)
        ]
        lines.append("")
    below = (*partners(result), *result.time_notes)
    return "\n".join([*lines, *(f"- {escape(line)}" for line in below)])


def junit(result: GateResult, base: str, new: str) -> str:
    """Return the verdict as JUnit: one test case a layer; worse fails, unclear is skipped."""
    suite = ElementTree.Element(
        "testsuite",
        name=f"perfml gate: {plain(new)} against {plain(base)}",
        tests=str(len(result.layers)),
        failures=str(len(result.of(Verdict.WORSE))),
        skipped=str(len(result.of(Verdict.UNCLEAR))),
    )
    for layer in result.layers:
        case = ElementTree.SubElement(
            suite, "testcase", classname="perfml.gate", name=plain(layer.layer)
        )
        if layer.verdict is Verdict.WORSE:
            ElementTree.SubElement(case, "failure", message=layer.reason)
        elif layer.verdict is Verdict.UNCLEAR:
            ElementTree.SubElement(case, "skipped", message=layer.reason)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def headline(result: GateResult) -> str:
    """Return the answer as one clause, with how many layers it rests on."""
    counts = [f"{len(result.of(verdict))} {verdict}" for verdict in Verdict if result.of(verdict)]
    layers = count(len(result.layers), "layer")
    return f"{HEADLINES[result.verdict]}: of {layers} {', '.join(counts)}"


def listed(result: GateResult) -> list[LayerVerdict]:
    """Return the layers that are shown: worse first."""
    return [layer for verdict in _ORDER for layer in result.of(verdict)]


def _alike(result: GateResult) -> list[tuple[LayerVerdict, int]]:
    """Return the layers that are shown; of those that cannot be told for one reason the first."""
    found: dict[tuple[str, ...], tuple[LayerVerdict, int]] = {}
    for layer in listed(result):
        unclear = layer.verdict is Verdict.UNCLEAR
        key = (layer.reason,) if unclear else (layer.reason, layer.layer)
        first, number = found.get(key, (layer, 0))
        found[key] = (first, number + 1)
    return list(found.values())


def partners(result: GateResult) -> list[str]:
    """Return what was not compared, as sentences."""
    pairs = (("Only in the baseline", result.missing), ("Only in the new version", result.added))
    return [f"{words}, not compared: {plain(', '.join(names))}." for words, names in pairs if names]


def _ratio(layer: LayerVerdict) -> str:
    if layer.time is None:
        return ""
    interval = layer.time.interval
    sure = "" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]"
    return f"{layer.time.ratio:.3f}{sure}"


def _time(layer: LayerVerdict) -> str:
    ratio = _ratio(layer)
    return f" (time ×{ratio})" if ratio else ""
