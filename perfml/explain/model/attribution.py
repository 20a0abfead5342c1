"""What a fitted model says of two sides of a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, TypedDict

import pandas as pd

from perfml.util.json_values import json_object


class ModelValue(TypedDict):
    """A metric's part in a model's prediction."""

    metric: str
    family: str | None
    baseline: float
    target: float
    log_ratio: float


@dataclass(frozen=True)
class ModelAttribution:
    """How a fitted model gets from the baseline's prediction to the target's.

    Attributes
    ----------
    model
        Its name in the registry; it was fitted to the logarithm of the time.
    values
        One `ModelValue` a metric: exact Shapley values with the baseline as background, which add
        up to `predicted_log_ratio`.
    predicted_log_ratio
        Of the model fitted with this layer.
    held_out_log_ratio
        Predicted by the same model fitted without this layer; None if nothing is left to fit.
    held_out_errors
        Relative errors of that model on the baseline's and the target's time, or None.
    training_rows
        Rows the model was fitted to.
    """

    model: str
    values: Annotated[pd.DataFrame, ModelValue]
    predicted_log_ratio: float
    held_out_log_ratio: float | None
    held_out_errors: tuple[float, float] | None
    training_rows: int

    @property
    def by_metric(self) -> dict[str, float]:
        """The values alone, by metric."""
        return dict(zip(self.values["metric"], self.values["log_ratio"].tolist(), strict=True))

    @property
    def target(self) -> str:
        """What it was fitted to."""
        return "log-time"

    JSON: ClassVar = (
        *("model", "target", "values", "predicted_log_ratio", "held_out_log_ratio"),
        *("held_out_errors", "training_rows"),
    )
    to_dict = json_object
