"""Metrics for Prometheus, in its text format (version 0.0.4), by its own library."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from allocator.runtime.door.views import busy_gpus, service_view
from allocator.runtime.records.book import FINAL

if TYPE_CHECKING:
    from allocator.runtime.records.journal import Event
    from allocator.runtime.service import Service

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_DECISION_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Upper ends of the classes in which decisions are counted by the time that they took."""

_OF_JOBS = {
    "restarts": "Starts of jobs after their first",
    "failures": "Starts of jobs that failed",
    "gpu_seconds": "GPU time in leases that are over",
}
"""What is counted over all jobs, from the book."""

# Times of creation, which no panel shows, would double the number of samples.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """All metrics of a service. Counters count from its start, unless they say otherwise.

    Parameters
    ----------
    service : that is listened to.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = CollectorRegistry()
        made: dict[str, Any] = {"namespace": "allocator", "registry": self._registry}
        of_decisions = "Time that the policy took for decisions in which it was asked."
        self._decisions = Histogram("decision_seconds", of_decisions, buckets=_DECISION_SECONDS, **made)
        self._events = Counter("events", "Events written down.", ["kind"], **made)
        self._registry.register(self)
        service.listeners.append(self.hear)

    def hear(self, event: Event) -> None:
        """Something was written down."""
        self._events.labels(event.kind).inc()
        if event.kind == "decision" and event["asked"]:
            self._decisions.observe(event["seconds"])

    def text(self) -> str:
        """In the format of Prometheus."""
        return generate_latest(self._registry).decode()

    def collect(self) -> Iterator[Metric]:
        """Those that say how things are."""
        book, view = self._service.book, service_view(self._service)
        counts = book.counts
        busy = dict.fromkeys(view["cluster"], 0) | busy_gpus(view)
        nodes = dict.fromkeys(("up", "drained", "down"), 0) | collections.Counter(
            node["state"] for node in view["nodes"]
        )
        waits = [view["clock"] - job.submitted_at for job in book.active.values() if job.started_at is None]
        gauge, counter = partial(_family, GaugeMetricFamily), partial(_family, CounterMetricFamily)

        info = gauge("info", "Policy and cluster of the service.", {}, "policy", "adapter")
        info.add_metric([view["policy"], view["adapter"]], 1)
        yield info
        yield gauge("up_to_date", "1 unless something hinders the service.", not view["trouble"])
        yield gauge("clock_seconds", "Clock of the service, from its first start on.", view["clock"])
        active = {state: count for state, count in counts.items() if state not in FINAL}
        yield gauge("jobs", "Jobs that wait or hold GPUs.", active, "state")
        yield gauge("longest_wait_seconds", "Of jobs that never ran.", max(waits, default=0.0))
        yield counter(
            "jobs_over_total", "Jobs that are through, ever.", {s: counts[s] for s in sorted(FINAL)}, "outcome"
        )
        yield gauge("gpus", "GPUs that can be used.", view["cluster"], "accelerator")
        yield gauge("gpus_busy", "GPUs that jobs hold.", busy, "accelerator")
        yield gauge("nodes", "Nodes of the cluster.", nodes, "state")
        of_prices = "Price of one more GPU by the last decision, in the unit of the policy's objective."
        yield gauge("gpu_price", of_prices, view["prices"], "accelerator")
        of_last = "Wall time of the last decision, placement included."
        yield gauge("last_decision_seconds", of_last, view["decision_seconds"])
        for name, text in _OF_JOBS.items():
            total = sum(getattr(job, name) for job in book.by_id)
            yield counter(f"job_{name}_total", f"{text}, ever.", total)


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
