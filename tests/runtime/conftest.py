"""Tests may be coroutines; what they open on a cluster in memory is finished after them."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from tests.runtime.model_cluster import OPEN, end
from tests.runtime.worlds import Local


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a coroutine on a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def go():
        try:
            await pyfuncitem.obj(**given)
        finally:
            for each in given.values():
                if hasattr(each, "leave"):
                    await each.leave()
        for service in list(OPEN):
            await end(service)

    try:
        asyncio.run(go())
    finally:
        OPEN.clear()
    return True


@pytest.fixture
def local(tmp_path):
    return Local(tmp_path)
