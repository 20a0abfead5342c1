"""A verdict as text, as Markdown for a pull request, and as JUnit for a CI server."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from perfml.errors import plain
from perfml.gate.policy import Verdict
from perfml.gate.verdict import OUTSIDE, GateResult, LayerVerdict
from perfml.report.render.markdown import escape
from perfml.util.words import count, ratio_text

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

_ONE_SIDED = (
    "A table of layers does not tell what runs outside them: give both sides as profiles or as "
    "saved baselines."
)

_UNDECIDED = (Verdict.UNCLEAR, Verdict.NOT_COMPARABLE)
_FAILED = (Verdict.WORSE, Verdict.SLOWER)


def text(result: GateResult, base: str, new: str) -> str:
    """Return the verdict for a terminal: the answer, then the layers that changed."""
    lines = [f"{headline(result)} ({plain(new)} against {plain(base)})."]
    for layer, alike in _alike(result):
        more = f" (and {count(alike - 1, 'more layer')} for the same reason)" if alike > 1 else ""
        lines.append(f"  {layer.verdict}: {plain(layer.layer)}: {layer.reason}{_time(layer)}{more}")
    return "\n".join([*lines, *remarks(result)])


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
    return "\n".join([*lines, *(f"- {escape(line)}" for line in remarks(result))])


def junit(result: GateResult, base: str, new: str) -> str:
    """Return the verdict as JUnit, a test case a layer and one for all that has the headline.

    Worse and slower layers fail; what nobody can tell or compare is skipped.
    """
    lone = (*result.only_baseline, *result.only_new)
    alone = (LayerVerdict(name, Verdict.UNCLEAR, "without a partner") for name in lone)
    overall = replace(result.overall, reason=headline(result))
    cases = [overall, *result.layers, *alone]
    suite = ElementTree.Element(
        "testsuite",
        name=f"perfml gate: {plain(new)} against {plain(base)}",
        tests=str(len(cases)),
        failures=str(sum(case.verdict in _FAILED for case in cases)),
        skipped=str(sum(case.verdict in _UNDECIDED for case in cases)),
    )
    for layer in cases:
        case = ElementTree.SubElement(
            suite, "testcase", classname="perfml.gate", name=plain(layer.layer)
        )
        if layer.verdict in _FAILED:
            ElementTree.SubElement(case, "failure", message=layer.reason)
        elif layer.verdict in _UNDECIDED:
            ElementTree.SubElement(case, "skipped", message=layer.reason)
    lines = (headline(result), *remarks(result))
    ElementTree.SubElement(suite, "system-out").text = "\n".join(lines)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def headline(result: GateResult) -> str:
    """Return the answer as one clause: the whole time, and how many layers it rests on."""
    counts = [f"{len(result.of(verdict))} {verdict}" for verdict in Verdict if result.of(verdict)]
    layers = f"of {count(len(result.layers), 'layer')} {', '.join(counts)}"
    same = result.verdict is Verdict.SAME and not all(layer.counted for layer in result.layers)
    words = NO_COUNTS if same else HEADLINES[result.verdict]
    time = _time(result.overall) or " (times not compared)"
    return f"{words}{time}: {layers if counts else result.overall.reason}"


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
    """Return why, where no layer tells, what was not compared, and what to know of repeats."""
    reason = result.overall.reason if result.layers else ""
    pairs = (
        ("Only in the baseline", result.only_baseline),
        ("Only in the new version", result.only_new),
    )
    lines = [f"{reason[0].upper()}{reason[1:]}."] if reason else []
    lines += [
        f"{words}, not compared: {plain(', '.join(names))}." for words, names in pairs if names
    ]
    if OUTSIDE in (*result.only_baseline, *result.only_new):
        lines.append(_ONE_SIDED)
    odd = [layer for layer in result.layers if layer.odd_repeats]
    if odd:
        first = f"{odd[0].odd_repeats[0]} of {plain(odd[0].layer)}"
        more = f", and in {count(len(odd) - 1, 'more layer')}" if len(odd) > 1 else ""
        lines.append(f"Repeats apart from the others did not decide: {first}{more}.")
    return [*lines, *result.time_notes]


def _ratio(layer: LayerVerdict) -> str:
    if layer.time is None:
        return ""
    interval = layer.time.interval
    sure = "" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]"
    return f"{ratio_text(layer.time.ratio)}{sure}"


def _time(layer: LayerVerdict) -> str:
    ratio = _ratio(layer)
    return f" (time {layer.time.of_what} ×{ratio})" if layer.time and ratio else ""
