"""Rules by which training jobs change their batch size: what the modes "accordion" and "gns" mean for each model.

>>> rules = default_rules()
>>> model, batch_size = rules.find("ResNet-18 (batch size 64)")
>>> model.samples_per_epoch, batch_size, model.doublings[64, 1]
(50000, 64, (11, 31))

Accordion trains with the largest batch size outside of critical windows; gns (gradient noise scale) doubles the batch
size from some epochs on. Sources: P. Zheng et al., "Shockwave: Fair and Efficient Cluster Scheduling for Dynamic
Adaptation in Machine Learning", NSDI 2023, and its public artifact; S. Agarwal et al., "Accordion", MLSys 2021;
S. McCandlish et al., "An Empirical Model of Large-Batch Training", 2018.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from throughputs.errors import did_you_mean
from throughputs.files import Document, JsonObject, StrPath, parse_toml, read_text
from throughputs.limits import Range

View = Literal["profile", "course"]
"""Which critical windows: those that profiles are drawn with, or those that the true course of a job follows."""

NEVER = 2**63 - 1
"""An epoch that does not come."""

_OTHERWISE = "otherwise"
_MOST_DIGITS = 16
"""Digits of a key of a rule at most."""
_JOB_TYPE = re.compile(r"(?P<model>.+) \(batch size (?P<size>[1-9]\d{0,15})\)")


@dataclass(frozen=True)
class CriticalWindow:
    """Epochs during which an accordion job keeps its initial batch size.

    Attributes
    ----------
    first, end : the epochs first, ..., end - 1, counted from 0.
    every : period in epochs with which the window comes back; 0: it does not.
    before : no epoch from here on belongs to it; None: no such bound.
    """

    first: int
    end: int
    every: int = 0
    before: int | None = None

    @property
    def packed(self) -> tuple[int, int, int, int]:
        """All four as numbers."""
        return self.first, self.end, self.every, NEVER if self.before is None else self.before


@dataclass(frozen=True)
class ModelRules:
    """How jobs of one model train and adapt.

    Attributes
    ----------
    samples_per_epoch : size of the data set.
    largest_batch_size : no adaptation goes beyond it; a job that begins there, or above, never changes.
    critical : for each view the critical windows by initial batch size, None for all sizes not named. An accordion
        job for which there are no windows at all never changes.
    doublings : by (initial batch size, GPUs) the epochs from which a gns job trains with 2, 4, 8, ... times its
        initial batch size; a job without an entry never changes.
    batch_size : of jobs whose type names none; None: every job type has to.
    """

    samples_per_epoch: int
    largest_batch_size: int
    critical: Mapping[View, Mapping[int | None, tuple[CriticalWindow, ...]]] = field(default_factory=dict)
    doublings: Mapping[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    batch_size: int | None = None

    def windows(self, initial_batch_size: int, view: View) -> tuple[CriticalWindow, ...] | None:
        """Critical windows of an accordion job; None if it never changes."""
        by_size = self.critical.get(view, {})
        return by_size.get(initial_batch_size, by_size.get(None))


@dataclass(frozen=True)
class AdaptationRules:
    """Rules for any number of models.

    Attributes
    ----------
    models : by name, as job types begin: ``"LM"`` for ``"LM (batch size 20)"``.
    accordion_start : profiles keep the initial batch size of an accordion job up to this share of its epochs.
    """

    models: Mapping[str, ModelRules]
    accordion_start: float = 0.0

    def find(self, job_type: str) -> tuple[ModelRules, int] | None:
        """Rules and batch size of a job type, as in ``"LM (batch size 20)"``; None if the model is not known."""
        named = _JOB_TYPE.fullmatch(job_type)
        if named is not None and named["model"] in self.models:
            return self.models[named["model"]], int(named["size"])
        model = self.models.get(job_type)
        return (model, model.batch_size) if model is not None and model.batch_size is not None else None


def stated_batch_size(job_type: str) -> int | None:
    """Batch size that a job type names, or None."""
    named = _JOB_TYPE.fullmatch(job_type)
    return None if named is None else int(named["size"])


def with_batch_size(job_type: str, batch_size: int) -> str:
    """The job type of the same model with another batch size."""
    named = _JOB_TYPE.fullmatch(job_type)
    return f"{job_type if named is None else named['model']} (batch size {batch_size})"


@cache
def default_rules() -> AdaptationRules:
    """The rules that come with the package: six models of the Shockwave artifact."""
    resource = files("throughputs.training") / "tables" / "shockwave.toml"
    return _parse(resource.read_text(encoding="utf-8"), "default adaptation rules")


def read_rules(path: StrPath) -> AdaptationRules:
    """Rules from a TOML file; its keys are described in docs/training.md.

    Raises
    ------
    InputError
        The file is not TOML, or names the key that cannot be used.
    OSError
        The file cannot be opened.
    """
    return _parse(read_text(Path(path)), str(path))


def _parse(text: str, source: str) -> AdaptationRules:
    return _Reader(source).rules(parse_toml(text, source))


class _Reader(Document):
    """Checks every value of the file; errors name its path, such as ``models.LM.doublings.20.1``."""

    def rules(self, content: JsonObject) -> AdaptationRules:
        self.table(content, "", ("source", "accordion_start", "models"))
        start = self.number(content.get("accordion_start", 0.0), "accordion_start", Range(0, 1), "a share from 0 to 1")
        models = self.table(content.get("models"), "models")
        if not models:
            raise self.error("models", None, "at least one model, [models.NAME]")
        return AdaptationRules({name: self._model(value, f"models.{name}") for name, value in models.items()}, start)

    def _model(self, value: object, where: str) -> ModelRules:
        table = self.table(value, where, [field.name for field in fields(ModelRules)])
        samples, largest = (
            self.whole(table.get(name), f"{where}.{name}") for name in ("samples_per_epoch", "largest_batch_size")
        )
        batch_size = table.get("batch_size")
        return ModelRules(
            samples,
            largest,
            self._critical(table.get("critical", {}), f"{where}.critical"),
            self._doublings(table.get("doublings", {}), f"{where}.doublings"),
            None if batch_size is None else self.whole(batch_size, f"{where}.batch_size"),
        )

    def _critical(self, value: object, where: str) -> dict[View, dict[int | None, tuple[CriticalWindow, ...]]]:
        views: dict[View, Any] = self.table(value, where, get_args(View))
        return {
            view: {
                None if size == _OTHERWISE else self._key(size, f"{where}.{view}"): tuple(
                    self._window(window, f"{where}.{view}.{size}[{i}]")
                    for i, window in enumerate(self.items(windows, f"{where}.{view}.{size}"))
                )
                for size, windows in self.table(by_size, f"{where}.{view}").items()
            }
            for view, by_size in views.items()
        }

    def _window(self, value: object, where: str) -> CriticalWindow:
        table = self.table(value, where, [field.name for field in fields(CriticalWindow)])
        first = self.whole(table.get("first"), f"{where}.first", 0)
        end = self.whole(table.get("end"), f"{where}.end", first + 1)
        least = {"every": end, "before": 1}
        return CriticalWindow(
            first, end, **{key: self.whole(table[key], f"{where}.{key}", least[key]) for key in least if key in table}
        )

    def _doublings(self, value: object, where: str) -> dict[tuple[int, int], tuple[int, ...]]:
        return {
            (self._key(size, where), self._key(gpus, f"{where}.{size}")): self._epochs(epochs, f"{where}.{size}.{gpus}")
            for size, by_gpus in self.table(value, where).items()
            for gpus, epochs in self.table(by_gpus, f"{where}.{size}").items()
        }

    def _epochs(self, value: object, where: str) -> tuple[int, ...]:
        epochs = self.items(value, where)
        least = 1
        for i, epoch in enumerate(epochs):
            least = self.whole(epoch, f"{where}[{i}]", least) + 1
        return tuple(epochs)

    def _key(self, text: str, where: str) -> int:
        if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) < 1:
            hint = did_you_mean(text, [_OTHERWISE]) if "critical" in where else ""
            raise self.error(where, text, f"a whole number of at least 1 as key{hint}")
        return int(text)
