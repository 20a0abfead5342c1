"""A verdict as text, as Markdown for a pull request, and as JUnit for a CI server."""

from __future__ import annotations

from xml.etree import ElementTree

from perfml.errors import plain
from perfml.gate.exit_codes import Verdict
from perfml.gate.verdict import GateResult, LayerVerdict
from perfml.report.render.markdown import escape
from perfml.util.words import count

HEADLINES = {
    Verdict.SAME: "The same counted work",
    Verdict.BETTER: "Better",
    Verdict.WORSE: "More work",
    Verdict.SLOWER: "Slower on the clock without more work",
    Verdict.NOT_COMPARABLE: "Not comparable",
    Verdict.UNCLEAR: "Cannot tell",
}

NO_COUNTS = "The times agree, and not all work was counted"
"""In place of the same work, where instructions of some layer were not counted."""

_ORDER = tuple(verdict for verdict in Verdict if verdict is not Verdict.SAME)
"""Layers that are the same are counted, not listed."""

_UNDECIDED = (Verdict.UNCLEAR, Verdict.NOT_COMPARABLE)
_FAILED = (Verdict.WORSE, Verdict.SLOWER)


def text(result: GateResult, base: str, new: str) -> str:
    """Return the verdict for a terminal: the answer, then the layers that changed."""
    lines = [f"{headline(result)} ({plain(new)} against {plain(base)})."]
    for layer, alike in _alike(result):
        more = f" (and {count(alike - 1, 'more layer')} for the same reason)" if alike > 1 else ""
        lines.append(f"  {layer.verdict}: {plain(layer.layer)}: {layer.reason}{_time(layer)}{more}")
    return "\n".join([*lines, *remarks(result), *result.time_notes])


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
    below = (*remarks(result), *result.time_notes)
    return "\n".join([*lines, *(f"- {escape(line)}" for line in below)])


def junit(result: GateResult, base: str, new: str) -> str:
    """Return the verdict as JUnit, a test case a layer.

    Worse and slower layers fail; what nobody can tell or compare is skipped.
    """
    suite = ElementTree.Element(
        "testsuite",
        name=f"perfml gate: {plain(new)} against {plain(base)}",
        tests=str(len(result.layers)),
        failures=str(sum(layer.verdict in _FAILED for layer in result.layers)),
        skipped=str(sum(layer.verdict in _UNDECIDED for layer in result.layers)),
    )
    for layer in result.layers:
        case = ElementTree.SubElement(
            suite, "testcase", classname="perfml.gate", name=plain(layer.layer)
        )
        if layer.verdict in _FAILED:
            ElementTree.SubElement(case, "failure", message=layer.reason)
        elif layer.verdict in _UNDECIDED:
            ElementTree.SubElement(case, "skipped", message=layer.reason)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def headline(result: GateResult) -> str:
    """Return the answer as one clause, with how many layers it rests on."""
    counts = [f"{len(result.of(verdict))} {verdict}" for verdict in Verdict if result.of(verdict)]
    layers = count(len(result.layers), "layer")
    same = result.verdict is Verdict.SAME and not all(layer.counted for layer in result.layers)
    words = NO_COUNTS if same else HEADLINES[result.verdict]
    return f"{words}: of {layers} {', '.join(counts)}"


def listed(result: GateResult) -> list[LayerVerdict]:
    """Return the layers that are shown: worse first."""
    return [layer for verdict in _ORDER for layer in result.of(verdict)]


def _alike(result: GateResult) -> list[tuple[LayerVerdict, int]]:
    """Return the layers that are shown; of those that cannot be told for one reason the first."""
    found: dict[tuple[str, ...], tuple[LayerVerdict, int]] = {}
    for layer in listed(result):
        key = (layer.reason,) if layer.verdict in _UNDECIDED else (layer.reason, layer.layer)
        first, number = found.get(key, (layer, 0))
        found[key] = (first, number + 1)
    return list(found.values())


def remarks(result: GateResult) -> list[str]:
    """Return what was not compared, as sentences, and which repeats did not decide."""
    pairs = (
        ("Only in the baseline", result.only_baseline),
        ("Only in the new version", result.only_new),
    )
    lines = [
        f"{words}, not compared: {plain(', '.join(names))}." for words, names in pairs if names
    ]
    odd = [layer for layer in result.layers if layer.odd_repeats]
    if odd:
        first = f"{odd[0].odd_repeats[0]} of {plain(odd[0].layer)}"
        more = f", and in {count(len(odd) - 1, 'more layer')}" if len(odd) > 1 else ""
        lines.append(f"Repeats apart from the others did not decide: {first}{more}.")
    return lines


def _ratio(layer: LayerVerdict) -> str:
    if layer.time is None:
        return ""
    interval = layer.time.interval
    sure = "" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]"
    return f"{layer.time.ratio:.3f}{sure}"


def _time(layer: LayerVerdict) -> str:
    ratio = _ratio(layer)
    return f" (time ×{ratio})" if ratio else ""
