"""Save fitted models and load them again without running anything that a file asks for.

A file of skops holds arrays and the names of types, and no code. Loaded are scikit-learn's
estimators and the types of `TRUSTED`; a file that names another one is refused before an object
of it exists. Trees are checked too: scikit-learn walks them in C, so a child or a feature that is
not there would be read from foreign memory.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml._extras import import_extra
from perfml._version import __version__
from perfml.errors import InputError, PerfmlError, TableError
from perfml.tables import replacing, require_file

TRUSTED = (
    "numpy.dtype",
    "perfml.modeling._forest.QuickForestClassifier",
    "perfml.modeling._lmt_classifier.LinearModelTreeClassifier",
    "perfml.modeling._lmt_gram.RidgeFit",
    "perfml.modeling._lmt_model.FittedTree",
    "perfml.modeling._lmt_model.Scale",
    "perfml.modeling._lmt_tree.Node",
    "perfml.modeling.estimators.log_features",
    "perfml.modeling.linear_model_tree.LinearModelTreeRegressor",
    "sklearn._loss.link.IdentityLink",
    "sklearn._loss.link.Interval",
    "sklearn._loss.loss.HalfSquaredError",
    "sklearn.gaussian_process.kernels.ConstantKernel",
    "sklearn.gaussian_process.kernels.Product",
    "sklearn.gaussian_process.kernels.RBF",
    "sklearn.gaussian_process.kernels.Sum",
    "sklearn.gaussian_process.kernels.WhiteKernel",
    "sklearn.tree._tree.Tree",
)
"""What may be in a file beyond the types that skops trusts by itself, by full name."""

LARGEST = 1 << 30
"""Bytes a file may hold when decompressed."""

_FORMAT = 1


@dataclass(frozen=True)
class SavedModels:
    """Models fitted on a whole Layers table, and what is needed to use them.

    Attributes
    ----------
    task
        ``regression`` of the time or ``classification`` of the backend.
    target
        What regression fits, see `perfml.modeling.targets.TARGETS`.
    features
        Columns of a Layers table, in the order the models expect.
    classes
        Backends that the class codes stand for; empty for regression.
    models
        Short name to fitted pipeline.
    facts
        Versions, rows and seed of the fit.
    """

    task: str
    target: str
    features: tuple[str, ...]
    classes: tuple[str, ...]
    models: dict[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)

    def predict(self, layers: pd.DataFrame, model: str | None = None) -> npt.NDArray[Any]:
        """Predict each row of a Layers table.

        Parameters
        ----------
        layers
            A table with the columns `features`; an undefined metric is NaN.
        model
            Short name; may be left out where there is one model.

        Returns
        -------
        ndarray of shape (rows,)
            Microseconds, or names of backends.

        Raises
        ------
        PerfmlError
            If the model is not among these, or must be named.
        TableError
            If a feature is missing.
        """
        from perfml.modeling.targets import make_target

        name = model or (next(iter(self.models)) if len(self.models) == 1 else None)
        if name not in self.models:
            msg = "say which model" if name is None else f"no model is called {name!r}"
            raise PerfmlError(msg, cure=f"There are: {', '.join(self.models)}.")
        missing = [each for each in self.features if each not in layers.columns]
        if missing:
            msg = f"features of the model are missing: {', '.join(missing[:6])}"
            raise TableError(msg, cure="Collect the metrics that the model was trained on.")
        values = layers[list(self.features)].to_numpy(dtype=float, na_value=np.nan)
        predicted = self.models[name].predict(values)
        if self.task == "classification":
            names = np.asarray(self.classes, dtype=object)
            return np.asarray(names[np.asarray(predicted, dtype=int)])
        rows = np.arange(len(layers))
        fitted = np.asarray(predicted, dtype=np.float64)
        milliseconds: npt.NDArray[np.float64] = make_target(self.target, layers).inverse(
            fitted, rows
        )
        return milliseconds * 1000.0


def fit_models(
    layers: pd.DataFrame,
    task: str = "regression",
    models: Sequence[str] | None = None,
    *,
    features: str | Sequence[str] = "published",
    target: str = "time",
    seed: int = 0,
) -> SavedModels:
    """Fit models on every row of a Layers table.

    Parameters
    ----------
    layers, task, models, features, target, seed
        As for `perfml.modeling.evaluate`, which tells how good such models are.

    Raises
    ------
    PerfmlError
        If a name is unknown, or the table has too few rows or backends.
    """
    import sklearn

    from perfml.modeling.estimators import get_models, make_estimator
    from perfml.modeling.features import build_problem
    from perfml.modeling.targets import make_target

    problem = build_problem(layers, task, features)
    goal = make_target(target, layers)
    truth = problem.truth
    if task == "regression":
        truth = goal.forward(truth, np.arange(problem.rows))
    fitted = {
        model.name: make_estimator(model.name, task, seed=seed).fit(problem.design.values, truth)
        for model in get_models(models, task)
    }
    facts = {"perfml": __version__, "sklearn": sklearn.__version__, "rows": problem.rows}
    return SavedModels(
        task, target, problem.design.names, problem.classes, fitted, {**facts, "seed": seed}
    )


def save_models(saved: SavedModels, path: str | Path) -> None:
    """Write models to a file, whole or not at all.

    Raises
    ------
    MissingExtraError
        If skops is not installed.
    PerfmlError
        If a model is of a type that `load_models` would refuse.
    InputError
        If the file cannot be written.
    """
    skops = require_skops()
    document = {
        "format": _FORMAT,
        "task": saved.task,
        "target": saved.target,
        "features": list(saved.features),
        "classes": list(saved.classes),
        "models": dict(saved.models),
        "facts": dict(saved.facts),
    }
    data = skops.dumps(document, compression=zipfile.ZIP_DEFLATED)
    foreign = _foreign(skops.get_untrusted_types(data=data))
    if foreign:
        msg = "a model holds types that could not be loaded again"
        cure = f"Can be saved: scikit-learn's and perfml's own. Given: {', '.join(saved.models)}."
        raise PerfmlError(msg, where=str(path), found=", ".join(foreign[:4]), cure=cure)
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def load_models(path: str | Path) -> SavedModels:
    """Read models that `save_models` wrote.

    Raises
    ------
    MissingExtraError
        If skops is not installed.
    InputError
        If the file is missing, damaged or too large, names a type that is not trusted, or holds
        something else than perfml's models.
    """
    path = Path(path)
    require_file(path)
    skops = require_skops()
    _check_size(path)
    try:
        foreign = _foreign(skops.get_untrusted_types(file=path))
        if foreign:
            msg = "the file holds types that are not trusted, so nothing of it was loaded"
            cure = "Only scikit-learn's and perfml's own models are loaded; train it again."
            raise InputError(msg, where=str(path), found=", ".join(foreign[:4]), cure=cure)
        document = skops.load(path, trusted=list(TRUSTED))
    except InputError:
        raise
    except Exception as error:
        # a damaged or hostile file can fail anywhere in the parser, under any name
        raise _damaged(path, f"{type(error).__name__}: {str(error)[:160]}") from error
    saved = _saved(document, path)
    for name, model in saved.models.items():
        for fault in _faults(model):
            raise _damaged(path, f"model {name}: {fault}")
    return saved


def require_skops() -> Any:
    """Return the module ``skops.io``.

    Raises
    ------
    MissingExtraError
        If it is not installed.
    """
    return import_extra("skops.io", "models", "saving and loading models", "skops")


def _foreign(names: Sequence[str]) -> list[str]:
    return sorted(set(names).difference(TRUSTED))


def _check_size(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(each.file_size for each in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    if size > LARGEST:
        raise _damaged(path, f"{size} bytes when decompressed, more than {LARGEST}")


def _damaged(path: Path, found: str) -> InputError:
    msg = "not a file of models that perfml can load"
    cure = "Write it again with: perfml train DATASET --save FILE"
    return InputError(msg, where=str(path), found=found, cure=cure)


def _saved(document: Any, path: Path) -> SavedModels:
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise _damaged(path, "another document")
    try:
        features = tuple(map(str, document["features"]))
        models = {str(name): model for name, model in document["models"].items()}
        classes = tuple(map(str, document["classes"]))
        task, target, facts = document["task"], document["target"], dict(document["facts"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _damaged(path, f"no {error}") from error
    from sklearn.pipeline import Pipeline

    for name, model in models.items():
        if not isinstance(model, Pipeline) or getattr(model, "n_features_in_", -1) != len(features):
            raise _damaged(path, f"model {name} does not fit {len(features)} features")
    if task not in ("regression", "classification") or not models:
        raise _damaged(path, f"task {task!r}, {len(models)} models")
    return SavedModels(task, target, features, classes, models, facts)


def _faults(pipeline: Any) -> Iterator[str]:
    """Yield what is wrong with the trees of a model: they must end, inside their own arrays."""
    from perfml.modeling._lmt_base import LinearModelTree

    for _, step in pipeline.steps:
        for each in (step, *(inner for _, inner in getattr(step, "steps", ()))):
            if isinstance(each, LinearModelTree):
                nodes = each.tree_.nodes
                left = np.array([node.left for node in nodes])
                right = np.array([node.right for node in nodes])
                feature = np.array([node.feature for node in nodes])
                yield from _tree_faults(left, right, feature, len(each.tree_.split_columns))
            for tree in _sklearn_trees(each):
                yield from _tree_faults(
                    tree.children_left, tree.children_right, tree.feature, each.n_features_in_
                )
                if tree.n_features != each.n_features_in_:
                    yield "a tree of other features"


def _sklearn_trees(estimator: Any) -> Iterator[Any]:
    grown = getattr(estimator, "estimators_", ())
    for each in (estimator, *np.asarray(grown, dtype=object).ravel()):
        tree = getattr(each, "tree_", None)
        if tree is not None and hasattr(tree, "children_left"):
            yield tree


def _tree_faults(
    left: npt.NDArray[Any], right: npt.NDArray[Any], feature: npt.NDArray[Any], n_features: int
) -> Iterator[str]:
    number = np.arange(len(left))
    split = (left != -1) | (right != -1)
    if not len(left):
        yield "a tree without nodes"
    # children stand after their parents, so every walk ends
    inside = (left > number) & (right > number) & (left < len(left)) & (right < len(left))
    if (split & ~inside).any():
        yield "a tree with a child that is not there"
    if (split & ((feature < 0) | (feature >= n_features))).any():
        yield "a tree that splits on a feature that is not there"
