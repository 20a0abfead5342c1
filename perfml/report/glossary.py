"""The words of a report, each in one sentence: shown on hover and in the appendix.

Causes (`perfml.explain.TERMS`) and metrics (the catalogue) are read from where they are defined;
the words around them stand in ``glossary.toml``.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources

from perfml.report.labels import capital


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
