"""The published numbers (Nazir 2024, chapter 2), from ``published.toml``: perfml measured none."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources

_TEXT = (resources.files(__package__) / "published.toml").read_text(encoding="utf-8")
_FILE = tomllib.loads(_TEXT)

ROWS: int = _FILE["rows"]
CONSTANT: tuple[str, ...] = tuple(_FILE["constant"])
MAPE_BELOW: float = _FILE["mape_below"]
KEY_METRIC: str = _FILE["key_metric"]
CLASS_CODES: dict[str, int] = _FILE["class_codes"]

RANGES: dict[str, tuple[float, float]] = {
    name: (low, high) for name, (low, high) in _FILE["ranges"].items()
}
"""Table 2.2: lowest and highest value; type is a class code, time is in microseconds."""


@dataclass(frozen=True)
class Published:
    """What tables 2.5 and 2.6 say of one model."""

    title: str  # the model's name there
    score: float  # test MAPE (a fraction), or test accuracy
    top: tuple[str, ...]  # important features in the published order


def _models(task: str) -> dict[str, Published]:
    return {
        name: Published(each["title"], each["score"], tuple(each["top"]))
        for name, each in _FILE[task].items()
    }


REGRESSION, CLASSIFICATION = _models("regression"), _models("classification")
