"""The 26 job types of the published workload, and how each is started on a real cluster.

The order matters: the published generator picks by position. Source: D. Narayanan et al.,
"Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020, public artifact
stanford-futuredata/gavel (MIT).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from throughputs.errors import InputError, did_you_mean


@dataclass(frozen=True)
class JobType:
    """A kind of training job.

    Attributes
    ----------
    name : key into a throughput table, for example ``"LM (batch size 20)"``.
    distributed : whether a gang of several GPUs can train it.
    command : shell command; ``%s`` stands for the data directory.
    working_directory : where the command runs.
    num_steps_arg : flag of the command that takes the number of steps.
    needs_data_dir : whether `command` takes a data directory.
    """

    name: str
    distributed: bool
    command: str
    working_directory: str
    num_steps_arg: str
    needs_data_dir: bool = True


def _family(
    model: str,
    batch_sizes: tuple[int, ...],
    command: str,
    working_directory: str,
    num_steps_arg: str,
    *,
    distributed: bool = True,
) -> tuple[JobType, ...]:
    """One job type per batch size; ``{}`` in `command` stands for it."""
    return tuple(
        JobType(
            name=f"{model} (batch size {size})",
            distributed=distributed,
            command=command.format(size),
            working_directory=working_directory,
            num_steps_arg=num_steps_arg,
        )
        for size in batch_sizes
    )


JOB_TYPES: tuple[JobType, ...] = (
    *_family(
        "ResNet-18",
        (16, 32, 64, 128, 256),
        "python3 main.py --data_dir=%s/cifar10 --batch_size {}",
        "image_classification/cifar10",
        "--num_steps",
    ),
    *_family(
        "ResNet-50",
        (16, 32, 64, 128),
        "python3 main.py -j 8 -a resnet50 -b {} %s/imagenet/",
        "image_classification/imagenet",
        "--num_minibatches",
    ),
    *_family(
        "Transformer",
        (16, 32, 64, 128, 256),
        "python3 train.py -data %s/translation/multi30k.atok.low.pt -batch_size {} -proj_share_weight",
        "translation",
        "-step",
    ),
    *_family(
        "LM",
        (5, 10, 20, 40, 80),
        "python main.py --cuda --data %s/wikitext2 --batch_size {}",
        "language_modeling",
        "--steps",
    ),
    *_family(
        "Recommendation",
        (512, 1024, 2048, 4096, 8192),
        "python3 train.py --data_dir %s/ml-20m/pro_sg/ --batch_size {}",
        "recommendation",
        "-n",
        distributed=False,
    ),
    JobType(
        "A3C",
        distributed=False,
        command="python3 main.py --env PongDeterministic-v4 --workers 4 --amsgrad True",
        working_directory="rl",
        num_steps_arg="--max-steps",
        needs_data_dir=False,
    ),
    JobType(
        "CycleGAN",
        distributed=False,
        command="python3 cyclegan.py --dataset_path %s/monet2photo --decay_epoch 0",
        working_directory="cyclegan",
        num_steps_arg="--n_steps",
    ),
)
"""The published job types, in the published order."""

_BY_NAME = {job.name: job for job in JOB_TYPES}


def job_type(name: str) -> JobType:
    """The published job type of that name; raises `InputError` for any other."""
    if name not in _BY_NAME:
        hint = did_you_mean(name, _BY_NAME)
        raise InputError("job types", found=name, expected=f"one of the {len(JOB_TYPES)} published ones{hint}")
    return _BY_NAME[name]


def launch_columns(kinds: Sequence[JobType]) -> dict[str, list[Any]]:
    """Columns of a trace that say how each job is started."""
    return {
        name: [getattr(kind, name) for kind in kinds]
        for name in ("command", "working_directory", "num_steps_arg", "needs_data_dir")
    }
