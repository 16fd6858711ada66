"""The rule of jobs that choose their batch size as they train."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from allocator.conversion import AtLeastOne
from allocator.simulator.goodput.runs import GoodputRuns
from allocator.simulator.rules.base import Rule, RunningRule
from allocator.simulator.rules.starts import check_by_name
from throughputs.goodput.fit import check_fit

if TYPE_CHECKING:
    from allocator.simulator.world import World

_LEAST_ABOVE_0 = 5e-324
"""The smallest number above 0."""


@dataclass(frozen=True)
class Goodput(Rule):
    """What is known of jobs with goodput, what may be chosen for them, and how they train.

    Attributes
    ----------
    goodput_knowledge : "grown": models are fitted to what a job has run, and it may get at most twice the GPUs that it
        has run on; "profiled": the same after each job was measured on one GPU of every type, before it runs (Sia,
        sec. 3.2); "true": step times are known as they are, for jobs whose batch size is fixed.
    goodput_batch_size : "tuned": adaptive jobs choose their batch size; "submitted": all keep the one that they asked
        for.
    goodput_columns : numbers of GPUs to choose from: "powers" of two within a node and whole nodes, or "all".
    goodput_projection : on a type that a job has not run on, it is taken to do what it does on one that it has, times
        the ratio of its speeds on one GPU; otherwise it may try one GPU there, worth its least goodput.
    goodput_counts : the unit of steps and rates: "progress", or "iterations" with the batch size asked for, of whole
        epochs.
    goodput_most_gpus : of a job; None: no limit but the cluster.
    goodput_most_gpus_of_model : pairs (model, GPUs): the most of its jobs, if that is less.
    goodput_batch_size_of_model : pairs (model, samples): the batch size that its jobs keep.
    goodput_values : how columns are valued: "model": with the best batch size that the job's model allows, on nodes of
        the column's type; "submitted": with batches up to the one that the job asked for (when it runs it goes beyond
        all the same), and by a model of another type as on nodes of that type, as Sia's simulator has it.
    goodput_models : "by_type": a job has a model for each type, fitted to what it ran there; "merged": one for all
        types, as schedulers have it that take them for equal, with the limits and the nodes of the first type.
    goodput_fit : how models are fitted: "least_loss", or as another of `throughputs.goodput.fits()` has it.
    goodput_slowdown : pairs (model, factor): how much longer steps take than they were measured.
    goodput_work : when a job with goodput is through: "training": when it is trained; "samples": after the samples that
        its trace asks for, its steps times its batch size, however large its batches are and whatever they are worth,
        or when it is trained, if that comes first.
    goodput_in_rounds : how jobs with goodput train under policies in rounds, with the GPUs and the batch size that they
        asked for: "mean": at the mean throughput on packed nodes; "trained": as under policies at events, epoch by
        epoch, on the nodes where they are. Then policies count with steps as they were measured, time received is
        whole rounds, a start is busy first, and with slot_grid rounds begin with the slots.
    epoch_ends : when jobs with goodput begin another epoch, with another batch size: "exact": then, which is an event;
        "second": at a whole second, unnoticed until the next event.
    """

    goodput_knowledge: Literal["grown", "profiled", "true"] = "grown"
    goodput_batch_size: Literal["tuned", "submitted"] = "tuned"
    goodput_columns: Literal["powers", "all"] = "powers"
    goodput_projection: bool = True
    goodput_counts: Literal["progress", "iterations"] = "progress"
    goodput_most_gpus: AtLeastOne | None = None
    goodput_most_gpus_of_model: tuple[tuple[str, int], ...] = ()
    goodput_batch_size_of_model: tuple[tuple[str, int], ...] = ()
    goodput_values: Literal["model", "submitted"] = "model"
    goodput_models: Literal["by_type", "merged"] = "by_type"
    goodput_fit: str = "least_loss"
    goodput_slowdown: tuple[tuple[str, float], ...] = ()
    goodput_work: Literal["training", "samples"] = "training"
    goodput_in_rounds: Literal["mean", "trained"] = "mean"
    epoch_ends: Literal["exact", "second"] = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fit(self.goodput_fit)
        check_by_name("goodput_slowdown", self.goodput_slowdown, "a factor above 0", _LEAST_ABOVE_0)
        check_by_name("goodput_most_gpus_of_model", self.goodput_most_gpus_of_model, "at least 1 GPU", 1)
        check_by_name("goodput_batch_size_of_model", self.goodput_batch_size_of_model, "at least 1 sample", 1)

    def start(self, world: World) -> Iterable[RunningRule]:
        """Jobs with goodput go at a pace of their own."""
        if world.jobs.goodput is None:
            return ()
        return (GoodputRuns(world, dict(self.goodput_slowdown), self.epoch_ends == "second"),)
