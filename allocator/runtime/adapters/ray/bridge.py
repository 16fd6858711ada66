"""The process that is connected to Ray, for the service, which it serves until that is gone.

A driver of Ray's dies with Ray's head; the service must not. What of Ray is used, and what of that is internal, is here
alone.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import pickle
import socket
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from allocator.runtime.adapters.ray.supervisor import Supervisor

NAMESPACE = "allocator"

OLDEST = (2, 55)
"""Release: of pinning groups to nodes by their labels."""

_TYPES = "accelerator_type:"


def held(groups: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """GPUs that groups have, by id of the node."""
    gpus: dict[str, float] = {}
    for group in groups:
        for number, bundle in group["bundles"].items():
            node = group["bundles_to_node_id"].get(number, "")
            gpus[node] = gpus.get(node, 0.0) + bundle.get("GPU", 0.0) * (group["state"] == "CREATED")
    return gpus


def groups_of(service: str) -> dict[str, dict[str, Any]]:
    """Placement groups of a service, or of all whose names begin so, by name."""
    import ray

    table: Any = ray.util.placement_group_table()
    return {one["name"]: one for one in table.values() if one["name"].startswith(service) and one["state"] != "REMOVED"}


def _where() -> tuple[list[int], dict[str, str], str]:
    """A task in a group: the GPUs that it has, its variables, and its working directory."""
    import ray

    home = os.path.dirname(sys.executable)
    variables = dict(os.environ) | {"PATH": f"{home}:{os.environ.get('PATH', os.defpath)}"}
    return [int(one) for one in ray.get_gpu_ids()], variables, os.getcwd()


def _uploaded(runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """A runtime_env with its working directory in Ray's own store, where it is one of this machine."""
    packing: Any = importlib.import_module("ray._private.runtime_env.working_dir")
    scratch = tempfile.gettempdir()
    return dict(packing.upload_working_dir_if_needed(dict(runtime_env), include_gitignore=True, scratch_dir=scratch))


class RefusedError(Exception):
    """What was asked for is not done, and will not be."""


class Bridge:
    """Requests by the names of its methods, all of which are coroutines.

    Parameters
    ----------
    service : as in `Supervisor`. address : of the cluster.
    """

    def __init__(self, service: str, address: str) -> None:
        import ray

        self._ray: Any = ray
        self._service = service
        release = tuple(int(part) for part in ray.__version__.split(".")[:2])
        if release < OLDEST:
            raise RuntimeError(f"Ray {ray.__version__} is too old: 2.55 or newer is needed")
        ray.init(address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
        here = ray.get_runtime_context()
        self._address, self._node = here.gcs_address, here.get_node_id()
        self._where = ray.remote(num_cpus=0, max_calls=0, max_retries=0)(_where)
        self._actors: dict[str, Any] = {}
        # one at a time on a node, in a worker that stays: to start one takes Ray a second
        self._asking: dict[str, asyncio.Lock] = {}

    async def nodes(self) -> list[dict[str, Any]]:
        """Nodes that are there: id, name, type and number of GPUs, and how many of them others hold."""
        return await asyncio.to_thread(self._nodes)

    def _nodes(self) -> list[dict[str, Any]]:
        state: Any = importlib.import_module("ray._private.state")
        free = state.available_resources_per_node()
        ours = held(groups_of(self._service).values())
        told, nodes = [], self._ray.nodes()
        if not any(node["Alive"] and node["NodeID"] == self._node for node in nodes):
            # nothing starts by way of a raylet that has ended; the next process finds the one in its place
            print("Ray has lost the node of this service", file=sys.stderr, flush=True)
            os._exit(1)
        for node in nodes:
            resources, labels, number = node["Resources"], node.get("Labels") or {}, node["NodeID"]
            gpus = int(resources.get("GPU", 0))
            if node["Alive"] and gpus:
                kinds = [name.removeprefix(_TYPES) for name in resources if name.startswith(_TYPES)]
                others = gpus - free.get(number, resources).get("GPU", 0.0) - ours.get(number, 0.0)
                row = {"id": number, "name": f"{node['NodeName']}-{number[:6]}", "address": node["NodeManagerAddress"]}
                row |= {"type": labels.get("ray.io/accelerator-type") or (kinds or ["gpu"])[0], "gpus": gpus}
                told.append(row | {"others": others})
        return told

    async def groups(self) -> list[str]:
        """Names of the groups of this service."""
        return list(await asyncio.to_thread(groups_of, self._service))

    async def place(
        self, name: str, gpus: Mapping[str, int], runtime_env: Mapping[str, Any], seconds: float
    ) -> list[tuple[list[int], dict[str, str], str]]:
        """Have the GPUs of a start, by id of the node their number, in a group; where they are, see `_where`."""
        from ray.util import scheduling_strategies as strategies

        group = await asyncio.to_thread(self._group, name, gpus)
        if not await asyncio.to_thread(group.wait, seconds):
            await self.remove(name)
            raise RefusedError("the GPUs are not free: others hold them")

        async def ask(number: int, node: str) -> Any:
            strategy = strategies.PlacementGroupSchedulingStrategy(group, number)
            options = {"runtime_env": await asyncio.to_thread(_uploaded, runtime_env)} if runtime_env else {}
            async with self._asking.setdefault(node, asyncio.Lock()):
                return await self._where.options(num_gpus=gpus[node], scheduling_strategy=strategy, **options).remote()

        try:
            return list(await asyncio.gather(*(ask(number, node) for number, node in enumerate(gpus))))
        except (self._ray.exceptions.RuntimeEnvSetupError, ValueError, TypeError) as error:
            await self.remove(name)
            raise RefusedError(f"the runtime_env cannot be made: {error}") from error

    def _group(self, name: str, gpus: Mapping[str, int]) -> Any:
        try:
            return self._ray.util.get_placement_group(name)
        except ValueError:
            pins = [{"ray.io/node-id": node} for node in gpus]
            bundles = [{"GPU": count} for count in gpus.values()]
            return self._ray.util.placement_group(bundles, name=name, lifetime="detached", bundle_label_selector=pins)

    async def remove(self, name: str) -> None:
        """Give the GPUs of a start back."""
        await asyncio.to_thread(self._remove, name)

    def _remove(self, name: str) -> None:
        try:
            self._ray.util.remove_placement_group(self._ray.util.get_placement_group(name))
        except ValueError:
            return

    async def tell(self, node: str, request: str, arguments: Sequence[Any]) -> Any:
        """Ask the supervisor of a node, which is made where there is none."""
        if node not in self._actors:
            from ray.util import scheduling_strategies as strategies

            pinned = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
            made = self._ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=pinned)(Supervisor)
            name = {"name": f"supervisor-{self._service}-{node}", "lifetime": "detached", "get_if_exists": True}
            actor = made.options(**name).remote(self._service, node, self._address)
            self._actors[node] = actor
        return await getattr(self._actors[node], request).remote(*arguments)

    async def dismiss(self, node: str) -> None:
        """End the supervisor of a node, which has no jobs."""
        actor = self._actors.pop(node, None)
        if actor is not None:
            self._ray.kill(actor)


async def _serve(bridge: Bridge, control: socket.socket) -> None:
    """Answer on the sockets that come by another one, until that is closed at its other end."""
    loop, gone, under_way = asyncio.get_running_loop(), asyncio.Event(), set()
    # a start waits in a thread for its GPUs
    loop.set_default_executor(ThreadPoolExecutor(64))

    async def answer(number: int) -> None:
        reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=number))
        try:
            name, arguments = pickle.loads(await reader.read())
            told = True, await getattr(bridge, name)(*arguments)
        except Exception as error:
            told = False, (isinstance(error, RefusedError), (str(error).strip().splitlines() or [repr(error)])[-1])
        writer.write(pickle.dumps(told))
        writer.close()

    def accept() -> None:
        data, numbers, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            gone.set()
        for number in numbers:
            task = loop.create_task(answer(number))
            under_way.add(task)
            task.add_done_callback(under_way.discard)

    loop.add_reader(control, accept)
    await gone.wait()


def main() -> None:
    """Serve whoever has started this process, and has the other end of its standard input."""
    asyncio.run(_serve(Bridge(*sys.argv[1:]), socket.socket(fileno=0)))
    os._exit(0)


if __name__ == "__main__":
    main()
