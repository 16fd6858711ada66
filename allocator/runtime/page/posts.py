"""Progress that trainers post, by the status protocol of Kubeflow Trainer.

    POST <URL>                          Authorization: Bearer <token>
    {"trainerStatus": {"progressPercentage": 45, "estimatedRemainingSeconds": 120, "lastUpdatedTime": "...",
                       "metrics": [{"name": "loss", "value": "0.23"}, ...]}}

URL, file of the token and file of the certificate are in the environment of the trainer: as KUBEFLOW_TRAINER_SERVER_*,
which the callback of Hugging Face Transformers and Kubeflow's SDK read, and as KUBEFLOW_TRAINER_STATUS_*, the name in
the enhancement proposal (KEP-2779). That callback also sends ``current_step`` and ``total_steps`` among the metrics,
which are finer than percentages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.runtime.page.access import Access
from allocator.runtime.records.book import HOLDS_GPUS, Job
from allocator.runtime.watching import Told
from throughputs import InputError

if TYPE_CHECKING:
    from allocator.runtime.service import Service

_SPELLINGS = ("KUBEFLOW_TRAINER_SERVER", "KUBEFLOW_TRAINER_STATUS")
_TOKEN_FILE = "status-token"
_MOST_METRICS, _LONGEST_METRIC = 32, 64
_MOST_STEPS = 1e15


class Posts:
    """Takes what trainers post.

    Parameters
    ----------
    service : whose jobs they are. access : knows their tokens.
    """

    def __init__(self, service: Service, access: Access) -> None:
        self._service, self._access = service, access

    def variables(self, job: Job, url: str, authority: Path) -> dict[str, str]:
        """Environment of the present start of a job: where to post, what to show, and what to check the other side by.

        Parameters
        ----------
        url : of the service. authority : file of certificates.
        """
        path = self._service.watching.folder(job) / _TOKEN_FILE
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(self._access.of_job(job.uuid, job.epoch))
        except OSError:
            # a full disk: the job does without
            return {}
        said = {"URL": f"{url}/jobs/{job.uuid}/{job.epoch}/status", "TOKEN": path.absolute(), "CA_CERT": authority}
        return {f"{spelling}_{name}": str(value) for spelling in _SPELLINGS for name, value in said.items()}

    def job(self, uuid: str, epoch: str) -> Job | None:
        """The job whose start of that number runs; None if there is no such."""
        job = self._service.book.jobs.get(uuid)
        return job if job is not None and str(job.epoch) == epoch and job.state in HOLDS_GPUS else None

    def take(self, job: Job, posted: Any) -> None:
        """Progress of a job; InputError where it cannot be understood."""
        status = posted.get("trainerStatus") if isinstance(posted, dict) else None
        if not isinstance(status, dict):
            raise InputError("post", field="trainerStatus", found=type(status).__name__, expected="an object")
        percentage = _number(status, "progressPercentage", 100.0)
        left = _number(status, "estimatedRemainingSeconds", _MOST_STEPS)
        metrics = dict(_metrics(status.get("metrics")))
        watching = self._service.watching
        steps = self._steps(job, percentage, metrics)
        if steps is None:
            # a trainer that begins may do so in the middle
            before = watching.told(job)
            steps, begins = (job.steps, True) if before is None else (before.steps, before.begins)
        else:
            begins = False
        watching.tell(job, Told(steps, self._service.clock(), (0.0, 0.0), left, metrics, begins))

    @staticmethod
    def _steps(job: Job, percentage: float | None, metrics: Mapping[str, str]) -> float | None:
        """Steps of a job so far; None where the post says nothing of them, or only that it begins."""
        current, total = _step(metrics, "current_step", 0.0), _step(metrics, "total_steps", 1.0)
        if current is not None:
            # a trainer may count otherwise than whoever submitted the job: then its share of the way counts
            scale = job.total_steps / total if job.total_steps and total else 1.0
            return min(current * scale, job.total_steps or _MOST_STEPS)
        of = job.total_steps or total
        return percentage / 100 * of if percentage and of else None


def _number(status: Mapping[str, Any], name: str, most: float) -> float | None:
    value = status.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise InputError(
            "post",
            field=name,
            found=repr(value)[:80] if isinstance(value, int | float) else type(value).__name__,
            expected=f"a number from 0 to {most:g}",
        )
    return float(value)


def _metrics(listed: Any) -> Iterator[tuple[str, str]]:
    if listed is None:
        return
    if not isinstance(listed, list):
        raise InputError("post", field="metrics", found=type(listed).__name__, expected="a list of names and values")
    for one in listed[:_MOST_METRICS]:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise InputError("post", field="metrics", found=type(one).__name__, expected="names and values")
        yield one["name"][:_LONGEST_METRIC], str(one.get("value", ""))[:_LONGEST_METRIC]


def _step(metrics: Mapping[str, str], name: str, least: float) -> float | None:
    try:
        value = float(metrics[name])
    except (KeyError, ValueError):
        return None
    return value if isfinite(value) and least <= value <= _MOST_STEPS else None
