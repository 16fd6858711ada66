"""Reading the definition of a sweep: values with their place in the file, so that every error can name it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from throughputs import InputError
from throughputs.errors import did_you_mean, one_of
from throughputs.limits import LARGEST_WHOLE_NUMBER

T = TypeVar("T")

MOST_VALUES = 1_000_000
"""Loads or seeds of a sweep, and points in all, at most."""

NOTHING = "none"
"""What stands for Python's None, which TOML does not have."""


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes`: tables are merged key by key, everything else is replaced."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key, value)
        result[key] = merged(old, value) if _is_table(old) and _is_table(value) else value
    return result


def _is_table(value: Any) -> bool:
    """Whether the value is a table of settings; {first, last, count} is one value."""
    return isinstance(value, Mapping) and "count" not in value


class Definition:
    """A table of a definition, from which every key is taken once.

    Parameters
    ----------
    data : the table.
    source : file, for errors.
    place : keys that lead to the table, "" for the whole file.
    """

    def __init__(self, data: object, source: object, place: str = "") -> None:
        self.source = source
        self.place = place
        if not isinstance(data, Mapping):
            raise self.error(None, data, "a table")
        self._left = {str(key): value for key, value in data.items()}
        self._known: list[str] = []

    def error(self, key: str | None, found: object, expected: str) -> InputError:
        """An error about a key of this table."""
        field = ".".join(part for part in (self.place, key) if part)
        return InputError(self.source, field=field or None, found=found, expected=expected)

    def inner(self, data: object, place: str) -> Definition:
        """A table inside this one, whose errors name the place of both."""
        return Definition(data, self.source, ".".join(part for part in (self.place, place) if part))

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def take(self, key: str, default: Any = None) -> Any:
        """The value of a key, as it stands."""
        self._known.append(key)
        return self._left.pop(key, default)

    def text(self, key: str, default: str | None = None, choices: Iterable[str] = ()) -> str | None:
        """A text, one of `choices` if there are any."""
        value = self.take(key, default)
        allowed = tuple(choices)
        if value is None and default is None:
            return None
        if not isinstance(value, str) or (allowed and value not in allowed):
            hint, listed = did_you_mean(value, allowed), " or ".join(allowed) or "text"
            raise self.error(key, value, f"a known name{hint}: {listed}" if hint else listed)
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.take(key, default)
        if not isinstance(value, bool):
            raise self.error(key, value, "true or false")
        return value

    def items(self, key: str) -> list[Any]:
        """A list that is not empty; one value stands for a list of it."""
        value = self.take(key)
        listed = value if isinstance(value, list | tuple) else [] if value is None else [value]
        if not listed:
            raise self.error(key, value, "a list with at least one value")
        return list(listed)

    def numbers(self, key: str, *, whole: bool, least: float, above: bool = False) -> tuple[float, ...]:
        """Distinct numbers in ascending order: a list, or {first, last, count} for evenly spaced ones."""
        value = self.take(key)
        if isinstance(value, Mapping):
            found = self._spaced(key, value)
        else:
            found = list(value) if isinstance(value, list | tuple) else [value]
        if not found:
            raise self.error(key, value, "at least one number")
        if len(found) > MOST_VALUES:
            raise self.error(key, f"{len(found):,} values", f"at most {MOST_VALUES:,}")
        bound = f"{'above' if above else 'at least'} {least:g}"
        for number in found:
            proper = is_number(number) and (number > least if above else number >= least)
            if not proper or (whole and (number != int(number) or number > LARGEST_WHOLE_NUMBER)):
                kind, most = ("whole numbers", f" and at most {LARGEST_WHOLE_NUMBER:,}") if whole else ("numbers", "")
                raise self.error(key, number, f"{kind} {bound}{most}")
        if len(set(found)) < len(found):
            raise self.error(key, value, "each number once")
        return tuple(sorted(map(float, found)))

    def _spaced(self, key: str, value: Mapping[str, Any]) -> list[float]:
        first, last, count = (value.get(name) for name in ("first", "last", "count"))
        proper = set(value) == {"first", "last", "count"} and is_number(first) and is_number(last)
        if isinstance(count, int) and count > MOST_VALUES:
            raise self.error(key, count, f"at most {MOST_VALUES:,} values")
        if not proper or not isinstance(count, int) or isinstance(count, bool) or count < 2:
            raise self.error(key, dict(value), "a list of numbers, or first, last and a count of at least 2")
        low, high = float(first or 0), float(last or 0)
        # Twelve digits, so that 0.4 + 0.4 * 2 is 1.2 and has one identity.
        return [float(f"{low + (high - low) * i / (count - 1):.12g}") for i in range(count)]

    def finish(self) -> None:
        """Refuse what nobody has asked for."""
        for key, value in self._left.items():
            raise self.error(key, value, one_of(key, sorted(self._known)))

    def checked(self, key: str | None, found: object, make: Callable[[], T]) -> T:
        """What `make` returns; its errors are told as errors of this key."""
        try:
            return make()
        except InputError as error:
            detail = f"{error.field}: " if error.field else ""
            shown = found if error.found is None else error.found
            raise self.error(key, shown, f"{detail}{error.expected}") from error
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise self.error(key, found, f"another value ({error})") from error


def is_number(value: object) -> bool:
    """Whether the value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def setting_value(value: Any) -> Any:
    """A setting's value as settings take it: "none" is None, lists are tuples."""
    if isinstance(value, list | tuple):
        return tuple(setting_value(item) for item in value)
    return None if value == NOTHING else value
