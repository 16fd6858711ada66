"""The one error raised for bad input, whatever the format it came in."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


class InputError(ValueError):
    """Input that cannot be used: says where it is, what was found and what was expected.

    Parameters
    ----------
    source : file name or the name of the argument; ``-`` is the standard input.
    expected : what would have been accepted, in words.
    found : the offending value; shown with ``repr``.
    line : line (or row) number, counted from 1.
    field : name of the field, column or key.

    >>> raise InputError("jobs.csv", line=3, field="total_steps", found="many", expected="a whole number")
    Traceback (most recent call last):
        ...
    throughputs.errors.InputError: jobs.csv:3: field 'total_steps': found 'many', expected a whole number
    """

    def __init__(
        self,
        source: object,
        *,
        expected: str,
        found: object = None,
        line: int | None = None,
        field: str | None = None,
    ) -> None:
        self.source = "standard input" if str(source) == "-" else str(source)
        self.expected = expected
        self.found = found
        self.line = line
        self.field = field
        where = self.source if line is None else f"{self.source}:{line}"
        what = "" if field is None else f" field '{field}':"
        shown = "nothing" if found is None else _shown(found)
        super().__init__(f"{where}:{what} found {shown}, expected {expected}")

    def moved(self, lines: int) -> InputError:
        """The same error `lines` further down, for rows that stand below a header."""
        line = None if self.line is None else self.line + lines
        return InputError(self.source, expected=self.expected, found=self.found, line=line, field=self.field)


def expect(good: object, source: object, field: str | None, found: object, expected: str) -> None:
    """Raise `InputError` unless a value is `good`; of arrays `throughputs.limits.require` looks at each entry."""
    if not good:
        raise InputError(source, field=field, found=found, expected=expected)


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """`` (did you mean '...'?)`` with the closest of the known names, or nothing."""
    close = difflib.get_close_matches(str(name), [str(k) for k in known], n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def one_of(name: object, known: Iterable[object]) -> str:
    """What is expected where `name` is none of those `known`: the closest one, if any is close, and then all."""
    names = [str(k) for k in known]
    hint = did_you_mean(name, names)
    listed = f"one of {', '.join(names)}"
    return f"a known name{hint}: {listed}" if hint else listed


def expect_one_of(name: object, known: Collection[object], source: object, field: str | None = None) -> None:
    """Raise `InputError` unless `name` is one of those `known`."""
    if name not in known:
        raise InputError(source, field=field, found=name, expected=one_of(name, known))


def nearest_names(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Of the known names those that `name` most likely stands for, whatever their case: its extensions come first."""
    folded = {other.casefold(): other for other in known}
    wanted = name.casefold()
    longer = [other for other in folded if wanted and wanted in other]
    longer.sort(key=lambda other: (not other.startswith(wanted), len(other)))
    heads = {other.partition("(")[0].strip(): other for other in folded}
    close = [heads.get(other, other) for other in difflib.get_close_matches(wanted, [*folded, *heads], n=most)]
    return [folded[other] for other in dict.fromkeys([*longer, *close])][:most]


def _shown(found: object, limit: int = 80) -> str:
    """The value in one line of at most `limit` characters, or its type where it cannot be written down."""
    try:
        text = repr(found)
    except (ValueError, RecursionError):  # whole numbers have a limit of digits, lists one of depth
        return f"a value of type {type(found).__name__} that is too large to show"
    return text if len(text) <= limit else text[: limit - 3] + "..."
