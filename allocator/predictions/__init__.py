"""What is done with predictions beside scheduling: a page on how good they are, and nodes that sleep by a forecast."""

from allocator.predictions.nodes import (
    PUBLISHED_SLEEP,
    NodeSleep,
    SleepSettings,
    jobs_that_wait,
    known_ahead,
    nodes_in_use,
    put_to_sleep,
    use_ahead,
)
from allocator.predictions.page import render_page

__all__ = [
    "PUBLISHED_SLEEP",
    "NodeSleep",
    "SleepSettings",
    "jobs_that_wait",
    "known_ahead",
    "nodes_in_use",
    "put_to_sleep",
    "render_page",
    "use_ahead",
]
