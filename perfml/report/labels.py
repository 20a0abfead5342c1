"""How a report words things: names from outside made printable, numbers with fitting digits.

Its glossary says a word in one sentence, on hover and in the appendix. Causes
(`perfml.explain.TERMS`) and metrics (the catalogue) are read from where they are defined; the words
around them stand in ``glossary.toml``.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from perfml.util.json_values import is_missing
from perfml.util.words import capital

MODELS = {
    "dt": "decision tree",
    "gbr": "gradient boosting",
    "lmt": "linear model tree",
    "lr": "logistic regression",
    "rf": "random forest",
    "training-mean": "mean of all rows",
    "backend-mean": "mean of the backend",
    "condition-mean": "mean of the condition",
    "lookup": "lookup on one metric",
    "most-frequent": "most frequent backend",
}
"""What the short names of models and baselines stand for; other names are shown as they are."""

PROTOCOLS = {
    "random": "random split",
    "leave-one-layer-out": "unseen layers",
    "leave-one-shape-out": "unseen shapes",
    "leave-one-condition-out": "unseen conditions",
}

TASKS = {"regression": "time", "classification": "backend"}
"""What a task predicts, in a word."""

# C0 and C1 controls, lone surrogates, and the marks that reorder text on screen: a kernel called
# by such a name must neither break the file nor disguise itself.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def clean(value: object, limit: int = 4000) -> str:
    """Return text from outside as printable text of bounded length.

    A missing value gives an en dash; characters beyond `limit` are cut, which the text announces.
    """
    if is_missing(value):
        return "–"
    text = _UNPRINTABLE.sub("\ufffd", str(value))
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def short_models(names: Iterable[str]) -> dict[str, str]:
    """Return what PyTorch models are called without the library or file that they are from.

    Names that two of them would share stay as they are.

    Examples
    --------
    >>> short_models(["torch:torchvision/resnet18", "torch:models.py:block", "mine"])
    {'torch:torchvision/resnet18': 'resnet18', 'torch:models.py:block': 'block', 'mine': 'mine'}
    >>> short_models(["torch:timm/vgg11", "torch:torchvision/vgg11"])["torch:timm/vgg11"]
    'torch:timm/vgg11'
    """
    short = {
        name: re.split("[/:]", name)[-1] if name.startswith("torch:") else name for name in names
    }
    counted = Counter(short.values())
    return {name: each if each and counted[each] == 1 else name for name, each in short.items()}


def model(name: Any) -> str:
    """Return what a model is called in prose."""
    return MODELS.get(str(name), clean(name, 80))


def protocol(name: Any) -> str:
    """Return what a protocol is called in prose, followed by its argument.

    Examples
    --------
    >>> protocol("leave-one-layer-out:10"), protocol("random:0.2")
    ('unseen layers (10 folds)', 'random split (0.2)')
    """
    base, _, argument = str(name).partition(":")
    text = PROTOCOLS.get(base, clean(base, 80))
    if not argument:
        return text
    return f"{text} ({clean(argument, 40)}{'' if base == 'random' else ' folds'})"


def is_random(protocol_name: Any) -> bool:
    """Return whether a protocol splits rows at random, so that repeats lie on both sides."""
    return str(protocol_name).partition(":")[0] == "random"


def members(value: object) -> tuple[str, ...]:
    """Return the members of a metric group, given as a sequence or as one string."""
    if isinstance(value, str):
        parts = re.split(r"[,;|\n]\s*", value)
        return tuple(clean(part, 120) for part in parts if part.strip())
    if isinstance(value, Sequence):
        return tuple(clean(part, 120) for part in value)
    try:
        return tuple(clean(part, 120) for part in iter(value))  # type: ignore[call-overload]
    except TypeError:
        return (clean(value, 120),)


@dataclass(frozen=True)
class Entry:
    """One word."""

    name: str  # the word, as a heading
    sentence: str  # what it means
    spelled: tuple[str, ...] = ()  # how texts spell it else; a plural is known

    @property
    def texts(self) -> tuple[str, ...]:
        """How it is spelled, plurals too."""
        given = (self.name, *self.spelled)
        return (*given, *(f"{text}s" for text in given if text[-1].isalpha() and "_" not in text))

    @property
    def anchor(self) -> str:
        """Its address on a page."""
        kept = "".join(sign if sign.isalnum() or sign == "_" else "-" for sign in self.name.lower())
        return "g-" + "-".join(part for part in kept.split("-") if part)


_TEXT = (resources.files(__package__) / "glossary.toml").read_text(encoding="utf-8")
_FILE = tomllib.loads(_TEXT)

WORDS = tuple(
    Entry(each["name"], each["sentence"], tuple(each.get("spelled", ()))) for each in _FILE["words"]
)
"""Words of the report, in the order of the appendix."""

CAUSES: dict[str, str] = _FILE["causes"]
"""Id of a cause to what it means; the others are told by their counters."""


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Return every word, cause and metric that a report may use."""
    from perfml.explain import TERMS
    from perfml.metrics import load_catalogue

    catalogue = load_catalogue()
    found = {entry.name: entry for entry in WORDS}
    spelled = {text for entry in WORDS for text in entry.texts}
    for term in TERMS.values():
        if term.label in spelled or term.label.split(" (")[0] in catalogue.names:
            continue
        known = [catalogue[name].description for name in term.evidence if name in catalogue.names]
        counters = "; ".join(known)
        text = CAUSES.get(term.id) or (
            f"Measured by: {counters}." if counters else "What no counter separates."
        )
        found.setdefault(term.label, Entry(term.label, text))
    for name in catalogue.names:
        description = catalogue[name].description
        found.setdefault(name, Entry(name, f"{capital(description)}."))
    return tuple(found.values())
