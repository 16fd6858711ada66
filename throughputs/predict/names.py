"""Names of jobs that belong together: runs of one experiment differ in numbers, seeds and hashes."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

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


def name_groups(names: NDArray[np.object_]) -> NDArray[np.object_]:
    """(N,) `name_group` of each name; each distinct name is looked at once."""
    groups = {name: name_group(name) for name in set(names.tolist())}
    return np.array([groups[name] for name in names.tolist()], dtype=object)
