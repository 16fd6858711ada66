"""What the service takes for granted of an adapter, whatever cluster it stands for.

A subclass has a fixture ``stage``, an object with ``open()`` (an adapter, as another scheduler would make it),
``order(kind, job, epoch)``, ``ready(order)`` (has begun), ``release(order)`` and ``begun(job)``, the epochs that have.
Kinds: "waits" (until it is released, or told to end; then its status is 0), "ignores" (SIGTERM), "absent" (a command
that there is not).
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from allocator.runtime.adapters.base import CommandError
from allocator.runtime.adapters.node import NOT_FOUND
from tests.runtime.worlds import PATIENCE


async def seen(adapter, job):
    return {one.job: one for one in await adapter.observe()}.get(job)


async def until(adapter, order, phase):
    """Wait until the cluster tells of a phase of this very start."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        one = await seen(adapter, order.job)
        if one is not None and (one.epoch, one.phase) == (order.epoch, phase):
            return one
        await asyncio.sleep(0.03)
    raise AssertionError(f"{phase}: not seen, but {one}")


class AdapterContract:
    async def test_a_start_is_seen_adopted_and_forgotten_and_begins_once(self, stage):
        adapter = await stage.open()
        assert await adapter.observe() == []
        order, other = stage.order("waits"), stage.order("waits")
        await asyncio.gather(*(adapter.start(order) for _ in range(3)), adapter.start(other))
        await until(adapter, other, "running")
        await stage.ready(other)
        # another scheduler finds what runs, and may order it again
        adopter = await stage.open()
        await adopter.start(order)
        one = await until(adopter, order, "running")
        assert (one.epoch, one.code, one.signal) == (1, None, 0)
        await stage.release(order)
        end = await until(adopter, order, "ended")
        assert (end.code, end.signal) == (0, 0)
        await adopter.start(order)
        assert await seen(await stage.open(), order.job) == end
        assert (await until(adopter, other, "running")).epoch == 1
        await adopter.forget(order.job)
        for each in (adopter, await stage.open()):
            assert await seen(each, order.job) is None
        assert stage.begun(order.job) == stage.begun(other.job) == [1]

    async def test_orders_are_for_one_start_of_one_job(self, stage):
        adapter = await stage.open()
        order = stage.order("waits")
        await adapter.start(order)
        await until(adapter, order, "running")
        await stage.ready(order)
        for job, epoch in ((order.job, 2), ("unknown", 1)):
            await adapter.stop(job, epoch)
            await adapter.kill(job, epoch)
        assert (await until(adapter, order, "running")).epoch == 1
        for _ in range(2):
            # what was asked for once may be asked for again
            await adapter.stop(order.job, 1)
        await until(adapter, order, "ended")
        second = stage.order("waits", order.job, 2)
        await adapter.start(second)
        await until(adapter, second, "running")
        await stage.ready(second)
        await adapter.stop(order.job, 1)
        await adapter.kill(order.job, 1)
        assert (await until(adapter, second, "running")).epoch == 2
        assert stage.begun(order.job) == [1, 2]

    async def test_who_does_not_end_is_killed(self, stage):
        adapter = await stage.open()
        order = stage.order("ignores")
        await adapter.start(order)
        await until(adapter, order, "running")
        await stage.ready(order)
        await adapter.stop(order.job, 1)
        one = await seen(adapter, order.job)
        assert one.phase == "running", "its GPUs are not free yet"
        for _ in range(2):
            await adapter.kill(order.job, 1)
        assert (await until(adapter, order, "ended")).signal == 9

    async def test_a_command_that_there_is_not_is_told_apart(self, stage):
        adapter = await stage.open()
        order, refused = stage.order("absent"), []
        with suppress(CommandError):
            try:
                await adapter.start(order)
            except CommandError as error:
                refused.append(error.code)
                raise
        assert refused == [NOT_FOUND] or (await until(adapter, order, "ended")).code == NOT_FOUND

    async def test_nodes_have_names_types_and_gpus(self, stage):
        nodes = await (await stage.open()).nodes()
        assert len({node.name for node in nodes}) == len(nodes) >= 1
        assert all(node.up and not node.drained and node.gpus > 0 and node.accelerator for node in nodes)
