"""How jobs train: epochs, batch sizes that change on the way, and forecasts of what is left."""

from __future__ import annotations

from throughputs.training.course import Course, CourseChange
from throughputs.training.forecast import Forecast, ForecastMode, Regimes, forecast_jobs
from throughputs.training.profile import profile_trace
from throughputs.training.profiles import MOST_STEADY_EPOCHS, STEADY_EPOCHS, Profiles
from throughputs.training.rules import AdaptationRules, CriticalWindow, ModelRules, default_rules, read_rules

__all__ = [
    "MOST_STEADY_EPOCHS",
    "STEADY_EPOCHS",
    "AdaptationRules",
    "Course",
    "CourseChange",
    "CriticalWindow",
    "Forecast",
    "ForecastMode",
    "ModelRules",
    "Profiles",
    "Regimes",
    "default_rules",
    "forecast_jobs",
    "profile_trace",
    "read_rules",
]
