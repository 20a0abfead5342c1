"""A stand-in for objects of NVIDIA's report package, whose facts are all methods."""

from __future__ import annotations

from typing import Any


class Answers:
    """An object of which each method answers what was given for it.

    A function is called with the arguments of the method; anything else is the answer itself.
    """

    def __init__(self, **answers: Any) -> None:
        self.__dict__.update(
            (name, answer if callable(answer) else lambda *_, answer=answer: answer)
            for name, answer in answers.items()
        )


def instances(values: dict[Any, float], kind: str) -> Answers:
    """Return a metric with a value for each id; `kind` names the method that gives an id."""
    ids, numbers = list(values), list(values.values())
    return Answers(
        has_correlation_ids=bool(values),
        correlation_ids=Answers(**{kind: ids.__getitem__}),
        num_instances=len(values),
        as_double=lambda place: float(numbers[place]),
    )
