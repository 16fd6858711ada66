"""What is known of jobs when they are submitted, as columns that models read, with what similar jobs took lately."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from throughputs.arrays import Floats, Ints, Positions, Texts
from throughputs.errors import InputError
from throughputs.frames import FrameReader
from throughputs.numerics import exp, log, quotient
from throughputs.trace import Trace

if TYPE_CHECKING:
    import pandas as pd


_WORDS = 4
"""Words of a name that count; what comes behind them tells runs apart more often than kinds of work."""

_HASH = re.compile(r"(?=[a-f]*\d)[0-9a-f]{6,}")
_PART = re.compile(r"[^\W_]+")
_LETTERS = re.compile(r"[^\W\d_]+")


def name_group(name: str) -> str:
    """What a name has in common with those of similar jobs: its first four words, without numbers and hashes.

    A word is a run of letters, in lower case. Numbers separate words and are dropped, and so is a part of six or more
    hexadecimal digits with a numeral among them (a hash). Names that have no word are alike.

    >>> name_group("BERT_base-lr0.001-seed42")
    'bert-base-lr-seed'
    >>> name_group("bert-base_lr3e-4_seed7_9f86d08")
    'bert-base-lr-e'
    """
    parts = (part for part in _PART.findall(name.lower()) if not _HASH.fullmatch(part))
    words = [word for part in parts for word in _LETTERS.findall(part)]
    return "-".join(words[:_WORDS])


def name_groups(names: Texts) -> Texts:
    """(N,) `name_group` of each name; each distinct name is looked at once."""
    groups = {name: name_group(name) for name in set(names.tolist())}
    return np.array([groups[name] for name in names.tolist()], dtype=object)


def recent(group: Ints, submitted: Floats, ended: Floats, values: Floats, most: int) -> tuple[Floats, Floats]:
    """Of the jobs of the same group that had ended before each job was submitted: the last value, and a mean.

    Parameters
    ----------
    group : (N,) of each job, from 0.
    submitted, ended : (N,) seconds; jobs whose end is nan never count.
    values : (N,) what is averaged.
    most : the mean is over so many jobs, those that ended last.

    Returns
    -------
    Last and mean, (N,) each; nan where none had ended. Sums are over the same few values in the same order whatever
    other jobs there are, so that later jobs change no bit.
    """
    n = len(group)
    known = np.flatnonzero(~np.isnan(ended))
    done = known[np.lexsort((known, ended[known], group[known]))]
    first = np.searchsorted(group[done], np.arange(group.max(initial=-1) + 1))
    # Ends and submissions in one line, group by group; at the same second the end comes first.
    both = np.concatenate([done, np.arange(n)])
    is_job = np.repeat([False, True], [len(done), n])
    line = np.lexsort((is_job, np.concatenate([ended[done], submitted]), group[both]))
    ends_so_far = np.cumsum(~is_job[line])
    asks = is_job[line]
    behind = np.empty(n, dtype=np.int64)
    behind[both[line][asks]] = ends_so_far[asks]
    begin = first[group] if n else np.empty(0, dtype=np.int64)
    count = np.minimum(behind - begin, most)
    total = np.zeros(n)
    for back in range(1, most + 1):
        there = count >= back
        total[there] += values[done[behind[there] - back]]
    last = np.full(n, np.nan)
    some = count > 0
    last[some] = values[done[behind[some] - 1]]
    return last, quotient(total, count, np.nan)


_DAY = 86400.0
_RECENT = 10
"""Jobs of a group over which what it took lately is averaged."""

_FEWEST = 10
"""Jobs that must have had a category before it counts; rarer ones are taken together."""

_TEXTS = ("user", "partition", "job_type")


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of N jobs that a model reads.

    Attributes
    ----------
    numbers : (N,) by name; nan where unknown.
    categories : (N,) texts by name; empty where unknown.
    """

    numbers: Mapping[str, Floats]
    categories: Mapping[str, Texts]

    @cached_property
    def coded(self) -> dict[str, tuple[NDArray[np.str_], Positions]]:
        """Of each category its texts in alphabetical order, and (N,) the place of each job's among them."""
        found = {name: np.unique(texts.astype(str), return_inverse=True) for name, texts in self.categories.items()}
        return {name: (texts, places) for name, (texts, places) in found.items()}

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, source: str = "columns", first_line: int = 1) -> Columns:
        """Columns of a table: those in which every cell is a number or empty are numbers, others categories.

        Of a column ``name`` only `name_groups` are kept.
        """
        reader = FrameReader(frame, source, first_line)
        numbers, categories = {}, {}
        for name in map(str, frame.columns):
            try:
                numbers[name] = reader.numbers(name, empty=np.nan)
            except InputError:
                texts = reader.text(name, empty="")
                categories[name] = name_groups(texts) if name == "name" else texts
        return cls(numbers, categories)


@dataclass(frozen=True, eq=False)
class Submissions:
    """N jobs by submission.

    Attributes
    ----------
    submitted : (N,) seconds. duration : (N,) seconds; nan where unknown.
    columns : what is known of each job when it is submitted.
    """

    submitted: Floats
    duration: Floats
    columns: Columns

    @property
    def ended(self) -> Floats:
        """(N,) seconds at which the duration of a job can be known at the earliest: as if no job had waited."""
        return np.asarray(self.submitted + self.duration)

    @classmethod
    def of_trace(
        cls, trace: Trace, duration: Floats | None = None, further: Columns | None = None, offset: float = 0.0
    ) -> Submissions:
        """What a trace says of its jobs.

        Columns are user, partition and job type where jobs differ in them, and the kind of job, which is what similar
        job types share (`name_groups`); GPUs, the hour and the day of the week; any `further` ones; and what the last
        jobs took of the same user, partition and so on for each category, each also with the same number of GPUs, and
        of those that agree in all of these.

        Parameters
        ----------
        trace : the jobs.
        duration : (N,) seconds, where they are not those that the trace states.
        further : columns of the same jobs in the same order.
        offset : seconds from the last Monday at midnight before second 0 of the trace to it; with 0, hours and days are
            counted from second 0.
        """
        duration = trace.duration if duration is None else duration
        categories = {name: getattr(trace, name) for name in _TEXTS}
        kinds = name_groups(trace.job_type)
        if len(set(kinds.tolist())) < len(set(trace.job_type.tolist())):
            categories["kind"] = kinds
        categories |= further.categories if further else {}
        categories = {name: texts for name, texts in categories.items() if len(set(texts.tolist())) > 1}
        clock = trace.arrival_time + offset
        numbers = {
            "GPUs": trace.scale_factor.astype(float),
            "hour": np.floor(clock / 3600.0) % 24.0,
            "day of week": np.floor(clock / _DAY) % 7.0,
        } | dict(further.numbers if further else {})
        told = Columns(numbers, categories)
        lately = _lately(told, trace.scale_factor, trace.arrival_time, duration)
        return cls(trace.arrival_time, duration, Columns(numbers | lately, categories))


def _lately(columns: Columns, gpus: Ints, submitted: Floats, duration: Floats) -> dict[str, Floats]:
    """Columns with what the last jobs of each group took: seconds of the last, and the geometric mean of ten."""
    codes = {name: places for name, (_, places) in columns.coded.items()}
    sizes = np.unique(gpus, return_inverse=True)[1]
    groups: dict[str, list[Positions]] = {"all jobs": [], "same GPUs": [sizes]}
    for name, code in codes.items():
        groups[f"same {name}"] = [code]
        groups[f"same {name}, GPUs"] = [code, sizes]
    if len(codes) > 1:
        groups["same in all"] = [*codes.values(), sizes]
    values, ended = log_seconds(duration), submitted + duration
    lately: dict[str, Floats] = {}
    for name, parts in groups.items():
        group = np.zeros(len(submitted), dtype=np.int64)
        for part in parts:
            joined = group * (part.max(initial=0) + 1) + part
            group = np.unique(joined, return_inverse=True)[1].astype(np.int64)
        last, mean = recent(group, submitted, ended, values, _RECENT)
        lately |= {f"last, {name}": exp(last), f"mean, {name}": exp(mean)}
    return lately


def log_seconds(duration: Floats) -> Floats:
    """Natural logarithm of durations; what takes less than a second counts as one."""
    return log(np.maximum(duration, 1.0))


@dataclass(frozen=True, eq=False)
class Encoded:
    """Columns of jobs as numbers.

    Attributes
    ----------
    known, asked : (K, F) of the jobs from which is learned, and (A, F) of those that are predicted.
    names : of the F columns; categories come first.
    labels : of each category, the texts by number; 0 is all that are rare or unknown.
    """

    known: Floats
    asked: Floats
    names: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]

    @property
    def categories(self) -> list[bool]:
        """Which of the F columns are numbers of categories."""
        return [place < len(self.labels) for place in range(len(self.names))]


def encoded(columns: Columns, known: Positions, asked: slice | Positions) -> Encoded:
    """Columns as numbers that a model reads, of `known` jobs and of those that are `asked` for.

    Categories are numbered by those that ten of the `known` jobs have, in alphabetical order; others are 0. So jobs
    that are not known have no influence on the numbers of those that are.
    """
    codes, labels = [], []
    for texts, place in columns.coded.values():
        kept = (np.bincount(place[known], minlength=len(texts)) >= _FEWEST) & (texts != "")
        codes.append((np.where(kept, np.cumsum(kept), 0).astype(float), place))
        labels.append(("others", *texts[kept].tolist()))

    def matrix(jobs: slice | Positions) -> Floats:
        categories = [number[place[jobs]] for number, place in codes]
        return np.column_stack([*categories, *(values[jobs] for values in columns.numbers.values())])

    return Encoded(matrix(known), matrix(asked), (*columns.categories, *columns.numbers), tuple(labels))
