"""From the text in the cells of a job log to numbers: GPUs, durations, times on the clock; nan for what is none."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from throughputs.arrays import Dates, Flags, Floats, Texts, Values
from throughputs.errors import InputError
from throughputs.frames import parsed_number, parsed_numbers
from throughputs.limits import LATEST_TIME
from throughputs.trace import date_texts
from throughputs.traces.logs.columns import SECONDS

if TYPE_CHECKING:
    import pandas as pd


_BLANK = frozenset({"", "unknown", "none", "null", "nan", "nat", "n/a", "-"})
"""How logs write that there is nothing, in small letters."""

_LONGEST_BLANK = 12
"""Cells that are longer, spaces included, say something."""

_SAMPLE = 1000
"""By so many cells it is told whether a column holds dates or numbers."""

_CLOCK = re.compile(r"(?:(\d+)(?:-| days?,? ))?(?:(\d+):)?(\d{1,2}):(\d{1,2}(?:\.\d+)?)", re.ASCII)
_DAYS = re.compile(r"(\d+)-(\d{1,2})(?::(\d{1,2}))?", re.ASCII)
_GPUS = re.compile(r"gres/gpu(:[^=,]*)?=(\d+)", re.ASCII)
_LAST_SECOND = 1e11
"""In the year 5138: so many seconds since 1970 are none."""

_FIRST_DATE, _NO_DATE = "1970-01-01T00:00:00Z", "9999-01-01T00:00:00Z"
"""Earlier dates are no times of jobs, and those of year 9999 stand for never."""

_DAY = len("2024-05-31")
_MICROSECONDS = 1_000_000


def is_blank(cells: Texts) -> Flags:
    """(N,) whether a cell says nothing."""
    return of_distinct(cells, says_nothing, bool)


def numbers(cells: Texts, decimal_comma: bool = False) -> Floats:
    """(N,) finite numbers, in ASCII digits."""
    try:
        values = parsed_numbers(cells)
    except ValueError:
        values = of_distinct(cells, lambda text: _number(text, decimal_comma), float)
    values[~np.isfinite(values)] = np.nan
    return values


def durations(cells: Texts, unit: str, minutes: bool = False, decimal_comma: bool = False) -> Floats:
    """(N,) seconds of numbers of `unit`, and of ``[D-]HH:MM:SS`` and ``D-HH[:MM]``; with `minutes` of ``MM:SS`` too."""
    values = _in_seconds(numbers(cells, decimal_comma), unit)
    clocks = np.flatnonzero(np.isnan(values))
    if len(clocks):
        values[clocks] = of_distinct(cells[clocks], lambda text: _clock(text, minutes), float)
    return values


def gpu_counts(cells: Texts) -> Floats:
    """(N,) GPUs of whole numbers, and of Slurm's resources, as ``cpu=8,gres/gpu=2,gres/gpu:a100=2``; 0 for none."""
    return of_distinct(cells, _gpus, float)


def gpu_types(cells: Texts) -> Texts:
    """(N,) names of the types in Slurm's resources, as ``a100`` for ``gres/gpu:a100=2,gres/gpu=2``; of several with
    bars between; empty for none.
    """
    return of_distinct(cells, _gpu_types, object)


@dataclass
class Clock:
    """Reads times: dates become seconds from the first date that was read, numbers seconds of their own clock.

    Attributes
    ----------
    zone : of dates that name none, as ``Europe/Berlin``; None: UTC.
    unit : of numbers; None: nothing told it, and numbers most of which are beyond any date in seconds are
        milliseconds, as programs count them since 1970, others seconds.
    dates : whether times are dates, as no fewer than numbers are among those that were read first; None: nothing was
        read yet.
    without_zone : whether some date named no zone.
    zone_assumed : whether nobody said the zone: it is that of the place where such logs are kept.
    date_format : of dates, as ``%d/%m/%Y %H:%M``; None: ISO 8601.
    since_1970 : whether numbers count from there, in UTC.
    twice : whether some date stands in an hour that comes twice, where clocks are put back: the first is taken.

    Raises
    ------
    InputError
        There is no such zone.
    """

    zone: str | None
    unit: str | None
    dates: bool | None = None
    without_zone: bool = False
    zone_assumed: bool = False
    date_format: str | None = None
    since_1970: bool = False
    twice: bool = False
    _first: np.datetime64 | None = None

    def __post_init__(self) -> None:
        if self.zone is not None:
            import pandas as pd

            # a name that is none is told even where no date needs it
            self._local(pd.Series([pd.Timestamp(0, tz="UTC")]), self.zone)

    def seconds(self, cells: Texts, decimal_comma: bool = False) -> Floats:
        """(N,) seconds; nan for blank cells and for what is no time of the kind that the first one is."""
        if self.dates is None:
            sample = cells[np.flatnonzero(~is_blank(cells))[:_SAMPLE]]
            figures = numbers(sample, decimal_comma)
            others = np.isnan(figures)
            dated = np.count_nonzero(~np.isnat(self._stamps(sample[others])))
            self.dates = self.date_format is not None or bool(dated >= np.count_nonzero(~others))
            if self.unit is None and not self.dates:
                # one number that is none of the clock must not decide for all others
                self.unit = "ms" if not others.all() and np.median(figures[~others]) > _LAST_SECOND else "s"
        if not self.dates:
            return _in_seconds(numbers(cells, decimal_comma), self.unit or "s")
        stamps = self._stamps(cells)
        if self._first is None:
            self._first = np.fmin.reduce(stamps, initial=np.datetime64("NaT"))
        return np.asarray((stamps - self._first) / np.timedelta64(1, "s"))

    def origin(self, seconds: float) -> str:
        """What the clock says at so many `seconds`."""
        if not (self.dates or self.since_1970):
            return f"{seconds:.6f}".rstrip("0").rstrip(".")
        return str(date_texts(self.dates_of(np.array([seconds])))[0])

    def dates_of(self, seconds: Floats) -> Dates:
        """(N,) datetime64[us] in UTC of so many `seconds`; NaT where times are no dates."""
        if not (self.dates or self.since_1970):
            return np.full(len(seconds), np.datetime64("NaT"), dtype="datetime64[us]")
        first = np.datetime64(0, "us") if self._first is None else self._first
        return np.asarray(first + np.rint(seconds * _MICROSECONDS).astype("timedelta64[us]"))

    @property
    def expected(self) -> str:
        """What a cell should hold."""
        if not self.dates:
            return "a number"
        if self.date_format is not None:
            return f"a date as {self.date_format} (date_format)"
        return "a date (ISO 8601), as 2024-05-31T08:15:00+02:00, or of another form (date_format)"

    def _stamps(self, cells: Texts) -> Dates:
        """(N,) datetime64[us] in UTC; NaT for what is no time."""
        import pandas as pd

        texts = [text.strip() for text in cells]
        form = self.date_format
        # years and months alone are no times
        whole = [text if text.isascii() and (form is not None or len(text) >= _DAY) else "" for text in texts]
        try:
            read = pd.to_datetime(pd.Series(whole, dtype=object), utc=True, format=form or "ISO8601", errors="coerce")
        except (ValueError, re.error) as error:
            raise InputError("date_format", found=form, expected=f"a form as %d/%m/%Y %H:%M ({error})") from error
        read = read.where((read >= pd.Timestamp(_FIRST_DATE)) & (read < pd.Timestamp(_NO_DATE)))
        zoned = (_has_zone(text) if form is None else "%z" in form for text in texts)
        bare = ~np.fromiter(zoned, bool, len(texts)) & read.notna().to_numpy()
        self.without_zone |= bool(bare.any())
        if self.zone is not None and bare.any():
            read = read.where(~bare, self._local(read.where(bare), self.zone))
        stamps: Dates = read.dt.tz_localize(None).to_numpy(dtype="datetime64[us]")
        return stamps

    def _local(self, read: pd.Series[Any], zone: str) -> pd.Series[Any]:
        """The same figures on the clock of a zone, as UTC; of an hour that comes twice the first, of one that the zone
        leaves out none.
        """
        first = np.ones(len(read), dtype=bool)
        plain = read.dt.tz_localize(None).dt
        try:
            there = plain.tz_localize(zone, ambiguous=first, nonexistent="NaT")
            self.twice |= bool(
                (there.notna() & plain.tz_localize(zone, ambiguous="NaT", nonexistent="NaT").isna()).any()
            )
        except (KeyError, ValueError, OSError) as error:  # whatever the zone's name finds in the data base of zones
            raise InputError("zone", found=zone, expected="a time zone, as Europe/Berlin") from error
        in_utc: pd.Series[Any] = there.dt.tz_convert("UTC")
        return in_utc


def _in_seconds(values: Floats, unit: str) -> Floats:
    """Rounded to microseconds, so that 1.1 hours are 3960 seconds; nan for what no clock shows."""
    with np.errstate(over="ignore"):
        seconds = np.round(values * SECONDS[unit], 6)
    seconds[~(np.abs(seconds) <= LATEST_TIME)] = np.nan
    return seconds


def says_nothing(text: str) -> bool:
    """Whether a cell is blank."""
    return len(text) <= _LONGEST_BLANK and text.strip().lower() in _BLANK


def _has_zone(date: str) -> bool:
    time = date[_DAY:]
    return time.endswith(("Z", "z")) or "+" in time or "-" in time


def _number(text: str, decimal_comma: bool) -> float:
    try:
        return parsed_number(text.replace(",", ".") if decimal_comma else text)
    except ValueError:
        return np.nan


def _clock(text: str, minutes: bool) -> float:
    if found := _DAYS.fullmatch(text.strip()):
        days, hours, mins = (float(part or 0) for part in found.groups())
        return ((days * 24 + hours) * 60 + mins) * 60 if hours < 24 and mins < 60 and len(text) <= 40 else np.nan
    found = _CLOCK.fullmatch(text.strip())
    if found is None or (found[2] is None and (not minutes or found[1] is not None)):
        return np.nan
    days, hours, mins, seconds = (float(part or 0) for part in found.groups())
    if mins >= 60 or seconds >= 60 or len(text) > 40:
        return np.nan
    return round(((days * 24 + hours) * 60 + mins) * 60 + seconds, 6)


def _gpus(text: str) -> float:
    text = text.strip()
    if says_nothing(text):
        return 0.0
    if "=" in text:
        counts = [(kind, float(number)) for kind, number in _GPUS.findall(text)]
        whole = [number for kind, number in counts if not kind]
        # With types or without, these are the same GPUs.
        return whole[0] if whole else sum(number for _, number in counts)
    return _number(text, False)


def _gpu_types(text: str) -> str:
    return "|".join(dict.fromkeys(kind[1:] for kind, number in _GPUS.findall(text) if len(kind) > 1 and int(number)))


def of_distinct(cells: Texts, read: Callable[[str], Any], dtype: type) -> Values:
    """(N,) what `read` makes of each cell, asked once for each distinct one."""
    import pandas as pd

    codes, distinct = pd.factorize(cells)
    return np.fromiter(map(read, distinct), dtype, len(distinct))[codes]
