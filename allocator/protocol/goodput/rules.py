"""What is known of jobs with goodput, and what may be chosen for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


@dataclass(frozen=True)
class GoodputRules:
    """What jobs and policies know, and what a policy may choose.

    Attributes
    ----------
    knowledge : "grown": models are fitted to what a job has run, and it may get at most twice the GPUs that it has run
        on; "profiled": the same after each job was measured on one GPU of every type, before it runs (Sia, sec. 3.2);
        "true": step times are known as they are, for jobs whose batch size is fixed.
    batch_size : "tuned": adaptive jobs choose their batch size; "submitted": all keep the one that they asked for.
    columns : numbers of GPUs to choose from: "powers" of two within a node and whole nodes, or "all".
    projection : on a type that a job has not run on, it is taken to do what it does on one that it has, times the
        ratio of its speeds on one GPU; otherwise it may try one GPU there, worth its least goodput.
    counts : the unit of steps and rates: "progress", or "iterations" with the batch size asked for, of whole epochs.
    most_gpus : of a job; None: no limit but the cluster.
    most_gpus_of_model : pairs (model, GPUs): the most of its jobs, if that is less.
    batch_size_of_model : pairs (model, samples): the batch size that its jobs keep.
    values : how columns are valued: "model": with the best batch size that the job's model allows, on nodes of the
        column's type; "sia": as Sia's simulator has it, with batches up to the one that the job asked for (when it runs
        it goes beyond all the same), and by a model of another type as on nodes of that type.
    models : "by_type": a job has a model for each type, fitted to what it ran there; "merged": one for all types, as
        schedulers have it that take them for equal, with the limits and the nodes of the first type.
    fit : how models are fitted: "least_loss", or as published for "pollux" or "sia" (`throughputs.goodput.fit_model`).
    """

    knowledge: str = "grown"
    batch_size: str = "tuned"
    columns: str = "powers"
    projection: bool = True
    counts: str = "progress"
    most_gpus: int | None = None
    most_gpus_of_model: tuple[tuple[str, int], ...] = ()
    batch_size_of_model: tuple[tuple[str, int], ...] = ()
    values: str = "model"
    models: str = "by_type"
    fit: str = "least_loss"


@dataclass(frozen=True, eq=False)
class NumbersOfGpus:
    """The numbers of GPUs that may be chosen on one type.

    Attributes
    ----------
    gpus, nodes : (C,) of each.
    per_node : GPUs of a node of the type.
    only_gangs : (C,) whether these are for jobs alone that run with this number and no other.
    """

    gpus: Whole
    nodes: Whole
    per_node: int
    only_gangs: NDArray[np.bool_]


def numbers_of_gpus(capacity: int, per_node: int, columns: str, gangs: Iterable[int] = ()) -> NumbersOfGpus:
    """Numbers of GPUs to choose from on a type with so many, `per_node` on a node, and those of fixed `gangs`."""
    if columns == "all":
        gpus = np.arange(1, capacity + 1)
    else:
        within = [1 << k for k in range(per_node.bit_length()) if 1 << k <= min(per_node, capacity)]
        gpus = np.array(sorted({*within, *range(per_node, capacity + 1, per_node)}), dtype=np.int64)
    every = np.union1d(gpus, np.array([gang for gang in gangs if gang <= capacity], dtype=np.int64))
    return NumbersOfGpus(every, -(-every // per_node), per_node, ~np.isin(every, gpus))
