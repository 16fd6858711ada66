"""The speed of a trainer that reports what it is told to."""

from __future__ import annotations

from allocator.lease.files import LEASE_FILE, REPORT_FILE, Grant, Report, read_file, write_file
from allocator.runtime.adapters.base import Node, Seen
from allocator.runtime.profiling import Program, Window, steps_per_second


class Trainer:
    """An adapter of one trainer, which has a report more at every look."""

    def __init__(self, *reports):
        self.reports = list(reports)

    async def start(self, order):
        self.order = order

    async def observe(self):
        if self.reports:
            steps, seconds = self.reports.pop(0)
            report = Report(self.order.job, 1, "training", trained_steps=steps, trained_seconds=seconds)
            write_file(self.order.folder / REPORT_FILE, report)
        ends = read_file(self.order.folder / LEASE_FILE, Grant).ends
        return [] if ends else [Seen(self.order.job, 1, "running")]

    async def forget(self, *_):
        pass

    stop = kill = forget


async def test_what_was_before_the_window_is_not_counted(tmp_path):
    """A step in the first ten seconds, 100 in the ten after them."""
    trainer, program = Trainer((1.0, 10.0), (101.0, 20.0)), Program("mine", ("train",))
    window = Window(seconds=5.0, warm_up=8.0)
    assert await steps_per_second(trainer, tmp_path, Node("v", "v100", 1), 1, [program], window) == [10.0]
