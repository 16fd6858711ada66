"""A small network in PyTorch on one or more processes, each with a DataLoader; the lines of the lease are marked.

    python torch_trainer.py --steps 300 --out model.pt
    torchrun --nproc-per-node 2 torch_trainer.py --steps 300 --out model.pt

A step takes the same samples however many processes share them, so that a job may go on with another number of them.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler, TensorDataset

from allocator.lease import Lease  # lease

BATCH = 24
"""Samples in a step, of all processes together."""


class SharesOfSteps(Sampler[list[int]]):
    """What one process takes of the samples of each step, from a step on; every epoch has an order of its own."""

    def __init__(self, samples: int, first_step: int, rank: int, world: int) -> None:
        self.samples, self.first_step, self.rank, self.world = samples, first_step, rank, world

    def __iter__(self) -> Iterator[list[int]]:
        step, steps_in_epoch = self.first_step, self.samples // BATCH
        while True:
            epoch, place = divmod(step, steps_in_epoch)
            order = torch.randperm(self.samples, generator=torch.Generator().manual_seed(epoch)).tolist()
            yield order[place * BATCH : (place + 1) * BATCH][self.rank :: self.world]
            step += 1


def dataset() -> TensorDataset:
    """Points in the plane, and whether they lie in the unit circle."""
    points = 2 * torch.rand(960, 2, generator=torch.Generator().manual_seed(1))
    return TensorDataset(points, (points.norm(dim=1, keepdim=True) < 1).float())


def main() -> None:
    """Train, or go on training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-seconds", type=float, default=0.0, help="that a step takes besides the arithmetic")
    parser.add_argument("--out", type=Path, default=Path("model.pt"))
    parser.add_argument("--workers", type=int, default=0, help="processes of the DataLoader")
    parser.add_argument("--every-rank", action="store_true", help="every process writes its part of the checkpoint")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    network = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    model: torch.nn.Module = network
    if world > 1:
        distributed.init_process_group("gloo")
        model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)

    def save(folder: Path) -> None:
        torch.save({"model": network.state_dict(), "optimizer": optimizer.state_dict()}, folder / f"state-{rank}.pt")

    def load(folder: Path) -> None:
        state = torch.load(folder / "state-0.pt", weights_only=True)
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    lease = Lease(chosen.steps)  # lease
    lease.restore(load)  # lease
    data = dataset()
    shares = SharesOfSteps(len(data), lease.steps, rank, world)
    for points, inside in lease(DataLoader(data, batch_sampler=shares, num_workers=chosen.workers)):  # lease
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(points), inside)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(chosen.step_seconds)
        lease.checkpoint_if_ending(save, every_rank=chosen.every_rank)  # lease
    if rank == 0 and not lease.has_ended:  # lease
        torch.save(network.state_dict(), chosen.out)
    print(f"rank {rank} of {world}: {lease.steps} steps")
    if world > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
