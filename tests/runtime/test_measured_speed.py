"""The speed of a trainer that reports what it is told to."""

from __future__ import annotations

from allocator.lease.files import REPORT_FILE, Report, write_file
from allocator.runtime.adapters.base import Node, Seen
from allocator.runtime.profiling import Program, Window, steps_per_second


class Trainer:
    """An adapter of one trainer, which has a report more at every look."""

    def __init__(self, *reports):
        self.reports, self.ended = list(reports), False

    async def start(self, order):
        self.order = order

    async def observe(self):
        if self.reports:
            steps, seconds = self.reports.pop(0)
            report = Report(self.order.job, 1, "training", trained_steps=steps, trained_seconds=seconds)
            write_file(self.order.folder / REPORT_FILE, report)
        return [] if self.ended else [Seen(self.order.job, 1, "running")]

    async def stop(self, *_):
        self.ended = True

    async def forget(self, *_):
        pass


async def test_what_was_before_the_window_is_not_counted(tmp_path):
    """A step in the first ten seconds, 100 in the ten after them."""
    trainer, program = Trainer((1.0, 10.0), (101.0, 20.0)), Program("mine", ("train",))
    window = Window(seconds=5.0, warm_up=8.0)
    assert await steps_per_second(trainer, tmp_path, Node("v", "v100", 1), 1, [program], window) == [10.0]
