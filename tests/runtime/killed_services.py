"""Serve a state folder, and kill the service again and again: ``killed_services.py STATE KILLS SEED JOBS``.

Services are forked from one process that has everything imported, so that a life may be short. Prints a line of JSON:
the state of every job at the end, and how many services were killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
import uuid
from pathlib import Path

from allocator.presets import preset
from allocator.registry import get_policy
from allocator.runtime.adapters.local import LocalAdapter, virtual_accelerators
from allocator.runtime.decisions.hardware import Hardware
from allocator.runtime.decisions.world import World
from allocator.runtime.service import Service
from allocator.runtime.settings import ServiceSettings

TRAINER = Path(__file__).with_name("quick_trainer.py")


def world(hardware):
    mechanism = preset("default").replace(round_seconds=0.5, hysteresis_rounds=0.0).mechanism
    return World(hardware.cluster, get_policy("max_min_fairness_perf"), mechanism)


async def serve(state, jobs, until_done):
    settings = ServiceSettings(poll_seconds=0.02, notice_seconds=30.0, grace_seconds=60.0)
    service = Service(state, LocalAdapter(state, virtual_accelerators("v100:2,k80:2")), settings)
    await service.open(world)
    for number in range(len(service.book.by_id), jobs):
        key = uuid.uuid5(uuid.NAMESPACE_OID, str(number)).hex
        command = [sys.executable, "-I", "-S", str(TRAINER), str(20 + number % 7), "0.02", str(state / f"job{number}")]
        service.submit([(key, {"command": command, "working_directory": "/", "total_steps": 20 + number % 7})])
    serving = asyncio.ensure_future(service.run())
    while until_done and service.book.active:
        await asyncio.sleep(0.05)
    if until_done:
        service.close()
    await serving
    return {"states": [job.state for job in service.book.by_id], "epochs": [job.epoch for job in service.book.by_id]}


def main():
    state, kills, seed, jobs = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    draw, killed = random.Random(seed), 0
    # what the first decision imports is there before the first fork
    world(_hardware()).check()
    for life in range(kills):
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(serve(state, min(jobs, 1 + life), until_done=False))
            finally:
                os._exit(70)
        time.sleep(draw.choice((0.02, 0.05, 0.1, 0.3, 0.6)) * draw.random())
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
    print(json.dumps(asyncio.run(serve(state, jobs, until_done=True)) | {"killed": killed}))


def _hardware():
    from allocator.runtime.adapters.base import Node

    return Hardware((Node("here", "v100", 1),))


if __name__ == "__main__":
    main()
