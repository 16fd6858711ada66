"""Metrics for Prometheus, in its text format (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from allocator.runtime.door.views import service_view
from allocator.runtime.page.history import DECISION_SECONDS, History

if TYPE_CHECKING:
    from allocator.runtime.service import Service

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_Sample = tuple[Mapping[str, str], float]
_OVER = ("completed", "failed", "cancelled", "rejected")


def metrics(service: Service, history: History) -> str:
    """All metrics. Counters count from the start of this service, unless they say otherwise."""
    return "".join(f"{line}\n" for line in _lines(service, history))


def _lines(service: Service, history: History) -> Iterator[str]:
    view, book = service_view(service), service.book
    counts: Mapping[str, int] = view["counts"]
    nodes = view["nodes"]
    total: Mapping[str, int] = view["cluster"]
    busy = dict.fromkeys([*total, *(node["accelerator"] for node in nodes)], 0)
    for node in nodes:
        busy[node["accelerator"]] += sum(map(bool, node["jobs"]))
    waits = [service.clock() - job.submitted_at for job in book.active.values() if job.started_at is None]

    yield from _metric("info", "gauge", "Policy and cluster of the service.", [(_about(view), 1)])
    yield from _metric("up_to_date", "gauge", "1 unless something hinders the service.", _one(not view["trouble"]))
    yield from _metric("clock_seconds", "gauge", "Clock of the service, from its first start on.", _one(view["clock"]))
    active = {state: count for state, count in counts.items() if state not in _OVER}
    yield from _metric("jobs", "gauge", "Jobs that wait or hold GPUs.", _by("state", active))
    yield from _metric("queue_length_jobs", "gauge", "Jobs that wait for GPUs.", _one(counts["queued"]))
    yield from _metric("longest_wait_seconds", "gauge", "Of jobs that never ran.", _one(max(waits, default=0.0)))
    over = {state: counts[state] for state in _OVER}
    yield from _metric("jobs_over_total", "counter", "Jobs that are through, ever.", _by("outcome", over))
    yield from _metric("gpus", "gauge", "GPUs that can be used.", _by("accelerator", total))
    yield from _metric("gpus_busy", "gauge", "GPUs that jobs hold.", _by("accelerator", busy))
    states: Iterable[str] = (node["state"] for node in nodes)
    by_state = dict.fromkeys(("up", "drained", "down"), 0)
    for state in states:
        by_state[state] += 1
    yield from _metric("nodes", "gauge", "Nodes of the cluster.", _by("state", by_state))
    help_of_prices = "Price of one more GPU by the last decision, in the unit of the policy's objective."
    yield from _metric("gpu_price", "gauge", help_of_prices, _by("accelerator", view["prices"]))
    yield from _decision_seconds(history)
    help_of_last = "Wall time of the last decision, placement included."
    yield from _metric("last_decision_seconds", "gauge", help_of_last, _one(view["decision_seconds"]))
    restarts = sum(job.restarts for job in book.by_id)
    yield from _metric("job_restarts_total", "counter", "Starts of jobs after their first, ever.", _one(restarts))
    yield from _metric("job_failures_total", "counter", "Starts of jobs that failed.", _one(history.failures))
    gpu_seconds = sum(job.gpu_seconds for job in book.by_id)
    help_of_gpu = "GPU time in leases that are over, ever."
    yield from _metric("job_gpu_seconds_total", "counter", help_of_gpu, _one(gpu_seconds))
    yield from _metric("journal_events_total", "counter", "Events in the journal, ever.", _one(history.last))
    yield from _metric("events_total", "counter", "Events written down.", _by("kind", history.kinds))


def _about(view: Mapping[str, str]) -> dict[str, str]:
    return {"policy": view["policy"], "adapter": view["adapter"]}


def _decision_seconds(history: History) -> Iterator[str]:
    name = "allocator_decision_seconds"
    yield f"# HELP {name} Time that the policy took for decisions in which it was asked."
    yield f"# TYPE {name} histogram"
    *below, count = accumulate(history.by_seconds)
    for most, reached in zip(DECISION_SECONDS, below, strict=True):
        yield f'{name}_bucket{{le="{most!r}"}} {reached}'
    yield f'{name}_bucket{{le="+Inf"}} {count}'
    yield f"{name}_sum {history.decision_seconds!r}"
    yield f"{name}_count {count}"


def _one(value: float) -> list[_Sample]:
    return [({}, value)]


def _by(label: str, values: Mapping[str, float]) -> list[_Sample]:
    return [({label: name}, value) for name, value in values.items()]


def _metric(name: str, kind: str, text: str, samples: Iterable[_Sample]) -> Iterator[str]:
    full = f"allocator_{name}"
    yield f"# HELP {full} {text}"
    yield f"# TYPE {full} {kind}"
    for labels, value in samples:
        yield f"{full}{_labels(labels)} {_number(value)}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items()) + "}"


def _quoted(value: str) -> str:
    readable = value.encode(errors="backslashreplace").decode()
    return readable.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    number = float(value)
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "+Inf" if number > 0 else "-Inf"
    return repr(int(number)) if number.is_integer() else repr(number)
