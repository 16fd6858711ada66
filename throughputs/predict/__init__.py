"""Prediction of what is not known at submission: durations, sharing classes, and how much work comes next.

Models are fitted to the past alone and need the extra ``predict``; predictions from files and with stated noise do not.
"""

from throughputs.predict.durations import (
    DurationPredictions,
    given_durations,
    predict_durations,
    rank_correlation,
    shape_functions,
)
from throughputs.predict.given import noisy, read_predictions, with_predictions
from throughputs.predict.models import MODELS
from throughputs.predict.series import arrivals_by_bin, forecast
from throughputs.predict.sharing import predict_sharing, sharing_class
from throughputs.predict.submissions import Columns, Submissions, name_group

__all__ = [
    "MODELS",
    "Columns",
    "DurationPredictions",
    "Submissions",
    "arrivals_by_bin",
    "forecast",
    "given_durations",
    "name_group",
    "noisy",
    "predict_durations",
    "predict_sharing",
    "rank_correlation",
    "read_predictions",
    "shape_functions",
    "sharing_class",
    "with_predictions",
]
