"""The colours of a page are read on light and on dark paper: WCAG 2.1, 1.4.3 and 1.4.11."""

from __future__ import annotations

import re
from importlib import resources

import pytest

STYLE = (resources.files("perfml.report.render") / "style.css").read_text(encoding="utf-8")
TEXT = {
    **dict.fromkeys(("ink", "muted"), ("paper", "page", "soft")),
    "accent": ("paper",),
    "high": ("paper", "high-bg"),
    "medium": ("medium-bg",),
    "low": ("low-bg",),
    "caution": ("caution-bg",),
    "slower": ("paper",),
    "paper": ("ink", "accent"),
}
"""Each colour of text, and the backgrounds that it stands on."""


def luminance(colour):
    """Return the relative luminance of ``#rrggbb`` (WCAG 2.1, definition)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """Return the ratio of contrast of two colours, 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def variables(scheme):
    """Return the colours of a scheme; the dark one overrides the light one."""
    light, _, dark = STYLE.partition("prefers-color-scheme: dark")
    blocks = [re.search(r":root \{(.*?)\}", part, re.DOTALL)[1] for part in (light, dark)]
    found = {}
    for block in blocks if scheme == "dark" else blocks[:1]:
        found |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
    return found


def test_black_on_white_has_the_largest_contrast():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    # the darkest grey of the standard's examples that passes on white
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("text", TEXT)
def test_text_is_read_on_what_it_stands_on(scheme, text):
    known = variables(scheme)
    ratios = {paper: contrast(known[text], known[paper]) for paper in TEXT[text]}
    assert {paper: round(each, 2) for paper, each in ratios.items() if each < 4.5} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_focus_and_marks_of_the_verdicts_stand_out(scheme):
    known = variables(scheme)
    ratios = {name: contrast(known[name], known["paper"]) for name in ("focus", "slower", "faster")}
    assert {name: round(each, 2) for name, each in ratios.items() if each < 3} == {}
