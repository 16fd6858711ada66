"""Who ran where: rounds merged into bars, and how busy each accelerator type was."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from throughputs.arrays import Floats, Ints, Rowed

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Bars(Rowed):
    """B stretches of time in which one job ran on one GPU without a break, by GPU and then by time.

    Attributes
    ----------
    gpu : (B,) id of the GPU.
    job : (B,) position of the job in the table of jobs.
    first_round, last_round : (B,) both included.
    start, end : (B,) seconds.
    """

    gpu: Ints
    job: Ints
    first_round: Ints
    last_round: Ints
    start: Floats
    end: Floats


def merge_rounds(rounds: pd.DataFrame, job_position: Ints) -> Bars:
    """Merge consecutive rounds of the same job on the same GPU.

    Parameters
    ----------
    rounds : the table `SimulationResult.rounds`; rows without GPU ids (placement is off) give no bars.
    job_position : (len(rounds),) position of each row's job in the table of jobs.
    """
    places = rounds["gpus"].tolist()
    gpu = np.fromiter(chain.from_iterable(places), np.int64)
    row = np.repeat(np.arange(len(places)), list(map(len, places)))
    number, job = rounds["round"].to_numpy(np.int64)[row], job_position[row]
    order = np.lexsort((number, job, gpu))
    gpu, job, number, row = gpu[order], job[order], number[order], row[order]
    continues = (np.diff(gpu) == 0) & (np.diff(job) == 0) & (np.diff(number) == 1)
    opens, closes = (np.insert(~continues, at, True)[: len(gpu)] for at in (0, len(continues)))
    start = rounds["start_time"].to_numpy(float)[row[opens]]
    end = rounds["end_time"].to_numpy(float)[row[closes]]
    bars = Bars(gpu[opens], job[opens], number[opens], number[closes], start, end)
    return bars.take(np.lexsort((bars.first_round, bars.start, bars.gpu)))
