"""The rule of jobs that choose their batch size as they train."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from allocator.conversion import AtLeastOne
from allocator.simulator.goodput.ledger import GoodputRules
from allocator.simulator.goodput.runs import GoodputRuns
from allocator.simulator.rules.base import Rule, Running
from allocator.simulator.rules.starts import check_by_name

if TYPE_CHECKING:
    from allocator.simulator.world import World

_LEAST_ABOVE_0 = 5e-324
"""The smallest number above 0."""


@dataclass(frozen=True)
class Goodput(Rule):
    """What is known of jobs with goodput, what may be chosen for them, and how they train.

    Attributes
    ----------
    goodput_knowledge, goodput_batch_size, goodput_columns, goodput_projection, goodput_counts, goodput_most_gpus,
        goodput_most_gpus_of_model, goodput_batch_size_of_model, goodput_values, goodput_models, goodput_fit : what is
        known of jobs with goodput, and what may be chosen for them, see `GoodputRules`.
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
    goodput_values: Literal["model", "sia"] = "model"
    goodput_models: Literal["by_type", "merged"] = "by_type"
    goodput_fit: Literal["least_loss", "pollux", "sia"] = "least_loss"
    goodput_slowdown: tuple[tuple[str, float], ...] = ()
    goodput_work: Literal["training", "samples"] = "training"
    goodput_in_rounds: Literal["mean", "trained"] = "mean"
    epoch_ends: Literal["exact", "second"] = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_by_name("goodput_slowdown", self.goodput_slowdown, "a factor above 0", _LEAST_ABOVE_0)
        check_by_name("goodput_most_gpus_of_model", self.goodput_most_gpus_of_model, "at least 1 GPU", 1)
        check_by_name("goodput_batch_size_of_model", self.goodput_batch_size_of_model, "at least 1 sample", 1)

    @property
    def known(self) -> GoodputRules:
        """What is known of the jobs, and what may be chosen for them."""
        names = GoodputRules.__dataclass_fields__
        return GoodputRules(**{name: getattr(self, f"goodput_{name}") for name in names})

    def start(self, world: World) -> Iterable[Running]:
        """Jobs with goodput go at a pace of their own."""
        if world.jobs.goodput is None:
            return ()
        return (GoodputRuns(world, dict(self.goodput_slowdown), self.epoch_ends == "second"),)
