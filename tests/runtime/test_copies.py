"""State folders that were copied or moved: what runs belongs to one of them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from allocator.runtime.records.journal import Event, Journal
from tests.runtime.lives import leave, started, states
from tests.runtime.model_cluster import job, one_type, run_on, service_on
from throughputs import InputError


def test_a_copy_beside_the_original_is_refused_and_touches_no_job(tmp_path: Path) -> None:
    async def go() -> None:
        cluster = one_type()
        service = await started(tmp_path / "state", cluster, job(30.0), job(30.0))
        # of a service that runs
        shutil.copytree(tmp_path / "state", tmp_path / "copy", symlinks=True)
        told = (
            f"found 'a copy of a state', expected the original, allocator serve --state {tmp_path}/state, or an empty"
        )
        for _ in range(2):
            with pytest.raises(InputError, match=told):
                await service_on(tmp_path / "copy", cluster)
        assert len(cluster.running()) == 2
        await run_on(service, cluster, 40.0)
        assert states(service) == ["completed"] * 2
        await leave(service)
        # of one that does not
        with pytest.raises(InputError, match="a copy of a state"):
            await service_on(tmp_path / "copy", cluster)

    asyncio.run(go())


def test_a_folder_that_was_moved_goes_on(tmp_path: Path) -> None:
    async def go() -> None:
        cluster = one_type()
        service = await started(tmp_path / "state", cluster, job(30.0))
        await leave(service)
        (tmp_path / "state").rename(tmp_path / "moved")
        # another service in its old place is none of it
        Journal(tmp_path / "state").close()
        service = await service_on(tmp_path / "moved", cluster)
        assert states(service) == ["running"]
        await leave(service)
        # and now that place counts
        shutil.copytree(tmp_path / "moved", tmp_path / "copy")
        with pytest.raises(InputError, match=f"a copy of a state.*{tmp_path}/moved, or"):
            Journal(tmp_path / "copy")

    asyncio.run(go())


def test_another_name_of_the_same_folder_is_no_copy(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state")
    journal.append([Event("service")])
    journal.close()
    (tmp_path / "link").symlink_to(tmp_path / "state")
    Journal(tmp_path / "link").close()
    Journal(tmp_path / "state").close()
