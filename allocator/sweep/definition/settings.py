"""Settings as the definition of a sweep names them: one flat mapping from names to values.

Names are "preset", fields of `MechanismSettings` and of rules, "policy.<name>" and "workload.<name>".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from allocator.conversion import convert, convert_text, kinds_of
from allocator.presets import kinds_of_presets, preset
from allocator.protocol.entities import Entities
from allocator.sweep.definition.point import Workload
from allocator.sweep.definition.reading import Definition, is_number, setting_value
from throughputs.errors import did_you_mean, one_of
from throughputs.goodput.trainings.finding import EMBEDDED
from throughputs.trace import CATEGORIES, OWNERS

Settings = Mapping[str, Any]

_WORKLOAD = kinds_of(Workload)
_TOLD_IN_OTHER_WORDS = ("generator", "throughputs", "trace", "prices", "entities", "categories")
_GENERATORS = ("gavel", "shockwave", "default", "deadlines", "goodput", "recorded")


def setting_of_text(name: str, text: str, policies: Sequence[Mapping[str, Any]], option: str) -> Any:
    """The value that `text` of a command line stands for, by the declared type of the setting; `policies`: of theirs.

    Settings that nobody has stay text, or what it is as JSON; `assignment` says what is wrong with them.

    Raises
    ------
    InputError
        The text stands for nothing of that type, or there is no such policy.
    """
    group, _, rest = name.partition(".")
    kinds: list[Any] = [Any]
    if group == "workload":
        kinds = [_WORKLOAD.get(rest, Any)]
    elif group == "policy":
        kinds = [known[rest] for known in policies if rest in known]
    elif name in kinds_of_presets():
        kinds = [kinds_of_presets()[name]]
    return convert_text(text, (kinds or [Any])[0], source=option, field=name)


def settings_under(settings: Settings, group: str) -> dict[str, Any]:
    """Those of a group ("policy", "workload"), without its name."""
    prefix = f"{group}."
    return {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}


def assignments(data: object, top: Definition, place: str, folder: Path) -> dict[str, Any]:
    """The settings that a table of a definition names; files are relative to `folder`.

    Raises
    ------
    InputError
        An unknown name, or a value that no run could take.
    """
    return {
        name: assignment(name, value, top, f"{place}.{name}" if place else name, folder)
        for name, value in flat(data, top, place).items()
    }


def flat(data: object, top: Definition, place: str) -> dict[str, Any]:
    """Settings by name, those of the tables "policy" and "workload" with a dot."""
    if not isinstance(data, Mapping):
        raise top.error(place, data, "a table")
    named: dict[str, Any] = {}
    for name, value in data.items():
        if name in ("policy", "workload") and isinstance(value, Mapping):
            named |= {f"{name}.{inner}": item for inner, item in value.items()}
        else:
            named[name] = value
    return named


def assignment(name: str, value: Any, top: Definition, place: str, folder: Path) -> Any:
    """The value of one setting; whether mechanism and simulator take it is seen when points are made."""
    group, _, rest = name.partition(".")
    if group == "workload" and rest:
        return _workload_value(rest, value, top, place, folder)
    if name == "preset":
        top.checked(place, value, partial(preset, value))
    elif name not in kinds_of_presets() and not (group == "policy" and rest):
        known = ("preset", *kinds_of_presets(), "policy.<name>", "workload.<name>")
        raise top.error(place, value, f"a setting: {one_of(name, known)}")
    if isinstance(value, float) and not is_number(value):
        raise top.error(place, value, 'a finite number, or "none"')
    # settings of policies are checked with the policies that have them
    return convert(setting_value(value), kinds_of_presets().get(name, Any), source=top.source, field=place)


def _workload_value(name: str, value: Any, top: Definition, place: str, folder: Path) -> Any:
    if name not in _WORKLOAD:
        raise top.error(place, value, one_of(name, _WORKLOAD))
    value = setting_value(value)
    if name not in _TOLD_IN_OTHER_WORDS:
        value = convert(value, _WORKLOAD[name], source=top.source, field=place)
    if name == "generator" and value not in _GENERATORS:
        raise top.error(place, value, f"{', '.join(_GENERATORS[:-1])} or {_GENERATORS[-1]}")
    if name == "fixed_duration_seconds" and value is not None and not (is_number(value) and value > 0):
        raise top.error(place, value, "seconds above 0")
    if name == "prices" and isinstance(value, Mapping):
        if not value or not all(is_number(price) and price >= 0 for price in value.values()):
            raise top.error(place, value, "dollars per GPU hour by accelerator type")
        return {str(accelerator): float(price) for accelerator, price in value.items()}
    if name == "categories" and value is not None:
        return _categories(value, top, place)
    if name == "entities" and value is not None:
        return _entities(value, top, place)
    if name == "profiling_percentage" and value is not None and not (is_number(value) and 0 <= value <= 1):
        raise top.error(place, value, "a number from 0 to 1")
    if name == "reference_models" and value is not None and not (type(value) is int and value >= 1):
        raise top.error(place, value, "a whole number of at least 1")
    if name == "mean_interarrival_seconds" and value is not None and not (is_number(value) and value > 0):
        raise top.error(place, value, "seconds above 0")
    if name == "n_durations" and value is not None and not (type(value) is int and value >= 5):
        raise top.error(place, value, "a whole number of at least 5")
    if name == "deadline_factors" and value is not None and not 0 <= value[0] <= value[1]:
        raise top.error(place, value, "the least multiple of the duration, of at least 0, then the largest")
    if name == "best_effort" and value is not None and not 0 <= value <= 1:
        raise top.error(place, value, "a number from 0 to 1")
    if name == "entities_by" and value is not None and value not in OWNERS:
        raise top.error(place, value, f"{' or '.join(OWNERS)}{did_you_mean(value, OWNERS)}")
    if name in ("throughputs", "trace", "prices") and value is not None:
        path = folder / value if isinstance(value, str) else None
        if name == "throughputs" and value == EMBEDDED and path is not None and not path.exists():
            return EMBEDDED
        if path is None or not (path.is_file() or (name == "throughputs" and path.is_dir())):
            raise top.error(place, value, "the name of a file that exists")
        return str(path.resolve())
    return value


def _categories(value: Any, top: Definition, place: str) -> dict[str, float]:
    """Shares by category, in the order of all categories, so that other shares change as few jobs as they can."""
    if not isinstance(value, Mapping) or not value:
        raise top.error(place, value, f"shares of the jobs by category: {', '.join(CATEGORIES)}")
    for name, share in value.items():
        if name not in CATEGORIES:
            raise top.error(place, name, one_of(name, CATEGORIES))
        if not is_number(share) or share < 0:
            raise top.error(f"{place}.{name}", share, "a share of at least 0")
    if not any(value.values()):
        raise top.error(place, dict(value), "a share above 0")
    return {name: float(value[name]) for name in CATEGORIES if name in value}


def _entities(value: Any, top: Definition, place: str) -> tuple[dict[str, Any], ...]:
    """Entities with the number of jobs that each gets in its turn: 1 where it is not said, 0 for parents."""
    listed = value if isinstance(value, list | tuple) else [value]
    for i, entity in enumerate(listed):
        if not isinstance(entity, Mapping):
            raise top.error(f"{place}[{i}]", entity, "a table with name, and weight, policy, parent or jobs")
        jobs = entity.get("jobs", 0)
        if type(jobs) is not int or jobs < 0:
            raise top.error(f"{place}[{i}].jobs", jobs, "a whole number of at least 0")
    stated = [{key: item for key, item in entity.items() if key != "jobs"} for entity in listed]
    parsed = top.checked(place, stated, partial(Entities.parse, stated))
    parents = {entity.parent for entity in parsed}
    turns = {entity["name"]: entity.get("jobs", int(entity["name"] not in parents)) for entity in listed}
    if not any(turns.values()):
        raise top.error(place, list(turns), "at least one entity with jobs")
    found = {entity.name: dataclasses.asdict(entity) for entity in parsed}
    return tuple({**found[name], "jobs": jobs} for name, jobs in turns.items())
