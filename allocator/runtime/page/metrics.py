"""Metrics for Prometheus, in its text format (version 0.0.4), by its own library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import accumulate
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from allocator.runtime.door.views import busy_gpus, service_view
from allocator.runtime.page.picture import DECISION_SECONDS, History

if TYPE_CHECKING:
    from allocator.runtime.service import Service

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_OVER = ("completed", "failed", "cancelled", "rejected")


def metrics(service: Service, history: History) -> str:
    """All metrics. Counters count from the start of this service, unless they say otherwise."""
    collected: Any = SimpleNamespace(collect=lambda: _families(service, history))
    return generate_latest(collected).decode()


def _families(service: Service, history: History) -> Iterator[Metric]:
    view, jobs, counts = service_view(service), service.book.by_id, service.book.counts
    busy = dict.fromkeys(view["cluster"], 0) | busy_gpus(view)
    nodes = dict.fromkeys(("up", "drained", "down"), 0) | Counter(node["state"] for node in view["nodes"])
    waits = [view["clock"] - job.submitted_at for job in service.book.active.values() if job.started_at is None]
    gauge, counter = partial(_family, GaugeMetricFamily), partial(_family, CounterMetricFamily)

    info = gauge("info", "Policy and cluster of the service.", {}, "policy", "adapter")
    info.add_metric([view["policy"], view["adapter"]], 1)
    yield info
    yield gauge("up_to_date", "1 unless something hinders the service.", not view["trouble"])
    yield gauge("clock_seconds", "Clock of the service, from its first start on.", view["clock"])
    active = {state: count for state, count in counts.items() if state not in _OVER}
    yield gauge("jobs", "Jobs that wait or hold GPUs.", active, "state")
    yield gauge("queue_length_jobs", "Jobs that wait for GPUs.", counts["queued"])
    yield gauge("longest_wait_seconds", "Of jobs that never ran.", max(waits, default=0.0))
    yield counter("jobs_over_total", "Jobs that are through, ever.", {s: counts[s] for s in _OVER}, "outcome")
    yield gauge("gpus", "GPUs that can be used.", view["cluster"], "accelerator")
    yield gauge("gpus_busy", "GPUs that jobs hold.", busy, "accelerator")
    yield gauge("nodes", "Nodes of the cluster.", nodes, "state")
    of_prices = "Price of one more GPU by the last decision, in the unit of the policy's objective."
    yield gauge("gpu_price", of_prices, view["prices"], "accelerator")
    yield HistogramMetricFamily(
        "allocator_decision_seconds",
        "Time that the policy took for decisions in which it was asked.",
        list(zip(map(str, (*DECISION_SECONDS, "+Inf")), accumulate(map(float, history.by_seconds)), strict=True)),
        history.decision_seconds,
    )
    of_last = "Wall time of the last decision, placement included."
    yield gauge("last_decision_seconds", of_last, view["decision_seconds"])
    yield counter("job_restarts_total", "Starts of jobs after their first, ever.", sum(job.restarts for job in jobs))
    yield counter("job_failures_total", "Starts of jobs that failed.", history.failures)
    gpu_seconds = sum(job.gpu_seconds for job in jobs)
    yield counter("job_gpu_seconds_total", "GPU time in leases that are over, ever.", gpu_seconds)
    yield counter("journal_events_total", "Events in the journal, ever.", history.last)
    yield counter("events_total", "Events written down.", history.kinds, "kind")


def _family(
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    text: str,
    values: float | Mapping[str, float],
    *labels: str,
) -> GaugeMetricFamily | CounterMetricFamily:
    """One value, or one for each value of a label; names of types and nodes may be any text."""
    made = kind(f"allocator_{name}", text, labels=labels)
    for label, value in values.items() if isinstance(values, Mapping) else [("", values)]:
        made.add_metric([label.encode(errors="backslashreplace").decode()][: len(labels)], float(value))
    return made
