"""Two models behind one interface: gradient boosting, and sums of one function per column (boosted, explainable).

Sources: G. Ke et al., "LightGBM: A Highly Efficient Gradient Boosting Decision Tree", NeurIPS 2017; Y. Lou et al.,
"Intelligible Models for Classification and Regression", KDD 2012, in InterpretML. Both are extras, and fitted on one
thread from fixed seeds: the same input gives the same trees.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from throughputs.arrays import Floats, Ints, Values
from throughputs.errors import InputError, expect_one_of

MODELS = ("fast", "interpretable")
"""Names of the models: LightGBM, and an explainable boosting machine of InterpretML without interactions."""

_PACKAGES = {"fast": "lightgbm", "interpretable": "interpret"}

_LIGHTGBM = {
    "verbosity": -1,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "seed": 0,
}
_TREES = 100
"""Boosting rounds of LightGBM, its default."""

_BOOSTING = {"interactions": 0, "outer_bags": 1, "n_jobs": 1, "random_state": 0}
_STEPS = {"max_rounds": 1000, "learning_rate": 0.05, "max_bins": 64}
_LEAF_ROWS = 50
_LEAF_SHARE = 100
"""A leaf has so many rows, or of few rows this part of all: functions that follow single jobs do not last."""


class Fitted(Protocol):
    """A fitted model."""

    def predict(self, columns: Floats) -> Floats:
        """(K,) value, or (K, C) probabilities of classes, of K rows of columns."""


def check_model(model: str) -> None:
    """Raise `InputError` for a model that there is not, or whose package is not installed."""
    expect_one_of(model, MODELS, "model")
    package = _PACKAGES[model]
    try:
        import_module(package)
    except ImportError:
        expected = "the extra: pip install 'cluster-allocator[predict]'"
        raise InputError(f"model {model}", field=package, found="no such package", expected=expected) from None


def fit_values(
    model: str, columns: Floats, categories: Sequence[bool], values: Floats, *, median: bool = False
) -> Fitted:
    """A model of values.

    Parameters
    ----------
    model : of `MODELS`.
    columns : (K, F) numbers; nan where unknown.
    categories : which of the F columns are numbers of categories.
    values : (K,) what is to be predicted.
    median : predict the median instead of the mean, where the model can: `fast` alone.
    """
    if model == "fast":
        return _Trees(columns, categories, values, {"objective": "regression_l1" if median else "regression"})
    return _Functions("ExplainableBoostingRegressor", columns, categories, values)


def fit_classes(model: str, columns: Floats, categories: Sequence[bool], classes: Ints) -> Fitted:
    """A model of classes 0 to C - 1, each of which occurs; parameters as for `fit_values`."""
    if model == "fast":
        settings = {
            "objective": "multiclass",
            "num_class": int(classes.max()) + 1,
            # classes are told from a few dozen measured programs
            "min_data_in_leaf": 3,
            "num_leaves": 4,
        }
        return _Trees(columns, categories, classes.astype(float), settings)
    return _Functions("ExplainableBoostingClassifier", columns, categories, classes)


class _Trees:
    """Gradient boosting of LightGBM."""

    def __init__(self, columns: Floats, categories: Sequence[bool], values: Floats, settings: dict[str, Any]) -> None:
        import lightgbm

        kinds = [place for place, is_category in enumerate(categories) if is_category]
        rows = lightgbm.Dataset(columns, values, categorical_feature=kinds, params=_LIGHTGBM)
        self.model = lightgbm.train(_LIGHTGBM | settings, rows, _TREES)

    def predict(self, columns: Floats) -> Floats:
        return np.asarray(self.model.predict(columns, num_threads=1), dtype=float)


class _Functions:
    """An explainable boosting machine of InterpretML."""

    def __init__(self, kind: str, columns: Floats, categories: Sequence[bool], values: Values) -> None:
        import interpret.glassbox

        # a column of one value says nothing, and the package warns of it
        self.told = np.array([len(np.unique(column[~np.isnan(column)])) > 1 for column in columns.T], dtype=bool)
        types = ["nominal" if is_category else "continuous" for is_category in np.asarray(categories)[self.told]]
        leaf = min(_LEAF_ROWS, 2 + len(values) // _LEAF_SHARE)
        machine = getattr(interpret.glassbox, kind)(feature_types=types, min_samples_leaf=leaf, **_BOOSTING, **_STEPS)
        with warnings.catch_warnings():
            # that its own pictures, which are not drawn here, leave unknown values out
            warnings.filterwarnings("ignore", "Missing values detected", UserWarning)
            self.model = machine.fit(columns[:, self.told], values)
        self.predicted = self.model.predict_proba if kind.endswith("Classifier") else self.model.predict

    def predict(self, columns: Floats) -> Floats:
        return np.asarray(self.predicted(columns[:, self.told]), dtype=float)
