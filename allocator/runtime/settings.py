"""Times and limits of the service, by name, and its clock."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from pathlib import Path

from allocator.conversion import AtLeastOne, NotNegative, NotNegativeWhole, Positive, check_fields
from throughputs import InputError


@dataclass(frozen=True)
class ServiceSettings:
    """How the service deals with jobs.

    Attributes
    ----------
    poll_seconds : between two looks at cluster and reports. nodes_seconds : between two looks at the nodes.
    cluster_seconds : that a look at the cluster may take; one that takes longer is begun anew.
    notice_seconds : what a trainer that reads its lease has to end by itself before it is sent SIGTERM; others are sent
        it at once.
    grace_seconds : what any trainer has before it is killed.
    retries : a job that ends with an error is started again so many times in all, where it does not say itself.
    max_fruitless : a job is given up whose leases end so many times in a row without a newly saved step in between.
    retry_seconds : pause after a first failure or loss; doubled with each, up to `longest_retry_seconds`.
    hang_seconds : a trainer that has reported and then makes no step for so long is killed and counted as failed;
        None: never.
    early_dispatch : in rounds, decide as soon as GPUs fall idle that a waiting job could use, and start those of the
        next round whose GPUs are free before it begins.
    least_measured_steps, least_measured_seconds : of a measurement of speed.
    hook : a program that is told what happens, in words as a shell has them; None or "": nobody is.
    user_gpus : that jobs of one user may ask for at a time; those beyond wait for others of theirs to be through. 0:
        any number.
    log_bytes : of output that are kept of each job.
    max_jobs : that may wait or run at once; more are refused.

    Options
    -------
    notice_seconds : --notice SECONDS
        What a trainer that reads its lease has before it is sent SIGTERM; 10.
    grace_seconds : --grace SECONDS
        What a job has to save and end before it is killed; 30.
    retries
        Reruns of a job that ends with an error, where it does not say itself; 0.
    max_fruitless
        Leases in a row without a newly saved step after which a job is given up; 20.
    hang_seconds : --hang SECONDS
        A trainer that makes no step for so long has failed.
    early_dispatch : --early-dispatch/--whole-rounds
        Fill GPUs that fall idle before the round ends.
    hook : COMMAND
        A program that is told what happens, JSON lines on its standard input.
    user_gpus : COUNT
        GPUs that jobs of one user may ask for at a time; 0: any number.
    """

    poll_seconds: Positive = 0.1
    nodes_seconds: Positive = 5.0
    cluster_seconds: Positive = 120.0
    notice_seconds: NotNegative = 10.0
    grace_seconds: Positive = 30.0
    retries: NotNegativeWhole = 0
    max_fruitless: AtLeastOne = 20
    retry_seconds: Positive = 0.5
    longest_retry_seconds: Positive = 60.0
    hang_seconds: Positive | None = None
    early_dispatch: bool = True
    hook: str | None = None
    user_gpus: NotNegativeWhole = 0
    least_measured_steps: float = 2.0
    least_measured_seconds: float = 0.5
    log_bytes: AtLeastOne = 16 << 20
    max_jobs: AtLeastOne = 100_000

    def __post_init__(self) -> None:
        check_fields(self, "settings")
        if self.hook and not self.hook_words:
            raise InputError("settings", field="hook", found=self.hook, expected="a program, and its arguments")

    @property
    def hook_words(self) -> list[str]:
        """The program and its arguments; no shell reads them."""
        try:
            return shlex.split(self.hook or "")
        except ValueError:
            return []


@dataclass(frozen=True)
class DoorSettings:
    """Where the web door is, and what it lets do.

    Attributes
    ----------
    web : ``HOST:PORT`` or ``unix:PATH``.
    tls_cert, tls_key : files for TLS. tls_ca : certificates by which jobs check that; the certificate itself if None.
    token_file : made where it does not exist; None: the file ``token`` in the state folder.
    web_url : by which jobs and people reach it, if not as `web` says.
    web_api : whether requests that change something are answered.

    Options
    -------
    web : HOST:PORT|unix:PATH
        Serve a live page, metrics and requests there; a TCP address needs TLS.
    tls_cert : FILE
        Certificate for --web, with its chain.
    tls_key : FILE
        Its private key.
    tls_ca : FILE
        What jobs check the certificate by; if omitted the certificate itself.
    token_file : FILE
        Token asked for over TCP; made if absent; if omitted DIR/token.
    web_url : URL
        By which jobs reach --web, if not as it says.
    web_api : --web-api/--web-reads
        Take jobs and other orders through --web, too.
    """

    web: str
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    token_file: Path | None = None
    web_url: str | None = None
    web_api: bool = False


# ----------------------------------------------------------------------------------------------------------------------
# The clock of a service: seconds since it was first started, which never jump.
# ----------------------------------------------------------------------------------------------------------------------


class Clock:
    """Counts on from where it was, by the monotonic clock.

    That clock goes on while no service runs, until the machine is booted. Then, and on another machine, time counts as
    far as the wall clock says so; one that was set back or far ahead meanwhile cannot undo what has happened.

    Parameters
    ----------
    last : what the clock of the service last said, seconds; 0 for a new one.
    since : when that was, seconds since 1970; 0: not known.
    ahead : seconds that it was ahead of the monotonic clock of this boot; None: not known.
    """

    def __init__(self, last: float = 0.0, since: float = 0.0, ahead: float | None = None) -> None:
        away = max(time.time() - since, 0.0) if since else 0.0
        self._offset = last + (away if away < _LONGEST_ABSENCE else 0.0) - time.monotonic() if ahead is None else ahead

    def __call__(self) -> float:
        """Seconds."""
        return self._offset + time.monotonic()


_LONGEST_ABSENCE = 366 * 86400.0
"""Seconds; a longer absence is taken for a clock that was set."""
