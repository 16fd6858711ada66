"""Who may come in over TCP: who shows the token of the service, and a job, with a token of its own, for its progress.

All that is handed out is derived from the one token by HMAC-SHA256: what a browser keeps, and what jobs are given. So
nothing has to be remembered, a service that starts again knows them all, and none of them tells the token.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.runtime.records.book import HOLDS_GPUS, Job
from allocator.runtime.records.ownership import check_parents
from allocator.runtime.watching import Told
from throughputs import InputError

if TYPE_CHECKING:
    from allocator.runtime.service import Service


_SESSION_SECONDS = 12 * 3600
"""How long a browser stays logged in."""

_SHORTEST_TOKEN = 20
_LONGEST_TOKEN = 4096


class Access:
    """Knows the token, and what is derived from it.

    Parameters
    ----------
    token : of the service.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def is_token(self, shown: str) -> bool:
        """Whether something is the token of the service."""
        return hmac.compare_digest(shown.encode(errors="replace"), self._token)

    def in_header(self, authorization: str) -> bool:
        """Whether a header ``Authorization: Bearer ...`` has the token of the service."""
        return self.is_token(_bearer(authorization))

    def session(self, now: float) -> str:
        """What a browser keeps that has shown the token: good for reading, for some hours, `now` in seconds."""
        until = str(int(now) + _SESSION_SECONDS)
        return f"{until}.{self._derived('session', until)}"

    def is_session(self, shown: str, now: float) -> bool:
        """Whether a browser shows what it was given, and in time."""
        until, _, mark = shown.partition(".")
        good = hmac.compare_digest(mark.encode(errors="replace"), self._derived("session", until).encode())
        return good and now < int(until)

    def of_job(self, uuid: str, epoch: int | str) -> str:
        """What one start of a job shows when it posts its progress."""
        return self._derived("job", f"{uuid} {epoch}")

    def is_of_job(self, authorization: str, uuid: str, epoch: str) -> bool:
        """Whether a header is that of a start of a job."""
        return hmac.compare_digest(_bearer(authorization).encode(errors="replace"), self.of_job(uuid, epoch).encode())

    def _derived(self, purpose: str, what: str) -> str:
        return hmac.digest(self._token, f"{purpose} {what}".encode(errors="replace"), hashlib.sha256).hex()


def _bearer(authorization: str) -> str:
    kind, _, shown = authorization.partition(" ")
    return shown.strip() if kind.lower() == "bearer" else ""


def read_token(path: Path) -> str:
    """The token in a file; a new one, in a file private to the user, where there is none.

    Raises
    ------
    InputError
        Others can use the file or replace it, or what is in it is no token.
    """
    check_parents(path)
    with suppress(FileExistsError), open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(32) + "\n")
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as kept:
        status = os.fstat(kept.fileno())
        if status.st_uid not in (0, os.geteuid()) or not stat.S_ISREG(status.st_mode):
            found = f"owner {status.st_uid}, mode {status.st_mode:o}"
            raise InputError(str(path), found=found, expected="a file of yours or of the administrator's")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise InputError(str(path), found="a file that others can use", expected=f"chmod 600 {path}")
        token = kept.read(_LONGEST_TOKEN).decode(errors="replace").strip()
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        expected = f"a token: one line of at least {_SHORTEST_TOKEN} characters without spaces"
        raise InputError(str(path), found=f"{len(token)} characters", expected=expected)
    return token


# ----------------------------------------------------------------------------------------------------------------------
# Progress that trainers post, by the status protocol of Kubeflow Trainer.
#
#     POST <URL>                          Authorization: Bearer <token>
#     {"trainerStatus": {"progressPercentage": 45, "estimatedRemainingSeconds": 120, "lastUpdatedTime": "...",
#                        "metrics": [{"name": "loss", "value": "0.23"}, ...]}}
#
# URL, file of the token and file of the certificate are in the environment of the trainer: as
# KUBEFLOW_TRAINER_SERVER_*, which the callback of Hugging Face Transformers and Kubeflow's SDK read, and as
# KUBEFLOW_TRAINER_STATUS_*, the name in the enhancement proposal (KEP-2779). That callback also sends
# ``current_step`` and ``total_steps`` among the metrics, which are finer than percentages.
# ----------------------------------------------------------------------------------------------------------------------


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
        steps, before = self._steps(job, percentage, metrics), watching.of(job).told
        begins = steps is None and (before is None or before.begins)
        if steps is None:
            # a trainer that begins may do so in the middle
            steps = job.steps if before is None else before.steps
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
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise InputError("post", field=name, found=value, expected=f"a number from 0 to {most:g}")
    return float(value)


def _metrics(listed: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(listed, list | None):
        raise InputError("post", field="metrics", found=type(listed).__name__, expected="a list of names and values")
    for one in (listed or [])[:_MOST_METRICS]:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise InputError("post", field="metrics", found=type(one).__name__, expected="names and values")
        yield one["name"][:_LONGEST_METRIC], str(one.get("value", ""))[:_LONGEST_METRIC]


def _step(metrics: Mapping[str, str], name: str, least: float) -> float | None:
    try:
        value = float(metrics[name])
    except (KeyError, ValueError):
        return None
    return value if isfinite(value) and least <= value <= _MOST_STEPS else None
