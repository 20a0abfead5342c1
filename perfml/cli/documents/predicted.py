"""The document of the verb predict."""

from __future__ import annotations

from typing import Annotated, TypedDict

from perfml.cli.documents.common import Number, Warnings
from perfml.predict.results import PredictedLayer


class Predict(TypedDict):
    """Layers beside layers like them; the slow ones first, by the time they lose."""

    dataset: str
    reference: str
    networks: int
    distinct_layers: int
    confidence: float
    shift: Annotated[Number, "median of measured over expected"]
    compared: int
    slower: int
    summary: str
    layers: list[PredictedLayer]
    warnings: Warnings
