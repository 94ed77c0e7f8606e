"""The ranks of one tensor-parallel group: how they find each other and what they exchange.

All ranks of a group share one machine (their placement is strict), so everything stays on the
loopback interface, on a port that the system chose.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

# Documented, but missing from the module's __all__.
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

LOOPBACK = "127.0.0.1"
GROUP_TIMEOUT = timedelta(seconds=20)
"""A peer that is this late in a collective is lost."""
IDLE_TIMEOUT = timedelta(days=365)
"""Followers wait for the next announcement as long as the leader lives; when it dies, its
connections close and they notice at once."""


class RankError(RuntimeError):
    """Another rank is lost or late: this group is of no use any more."""


@contextmanager
def _collective() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise RankError(f"tensor-parallel group: {error}") from error


@dataclass(frozen=True)
class Ranks:
    """This process's place among ``size`` ranks; ``control`` carries announcements on the CPU."""

    rank: int
    size: int
    control: dist.ProcessGroup

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def sum(self, x: Tensor) -> Tensor:
        """Sum over all ranks, the same bits on each (in place)."""
        with _collective():
            dist.all_reduce(x)
        return x

    def largest(self, x: Tensor) -> Tensor:
        """Elementwise maximum over all ranks, the same bits on each (in place)."""
        with _collective():
            dist.all_reduce(x, dist.ReduceOp.MAX)
        return x

    def gather_last(self, x: Tensor) -> Tensor:
        """On rank 0 all ranks' ``x`` side by side along the last dimension; elsewhere ``x``."""
        parts = [torch.empty_like(x) for _ in range(self.size)] if self.leads else None
        with _collective():
            dist.gather(x.contiguous(), parts, dst=0)
        return torch.cat(parts, dim=-1) if parts else x

    def announce(self, message: Tensor) -> Tensor:
        """Rank 0's CPU tensor, on every rank (in place)."""
        with _collective():
            dist.broadcast(message, src=0, group=self.control)
        return message


def open_store() -> TCPStore:
    """Rank 0's meeting point; its ``port`` was chosen by the system."""
    listener = socket.create_server((LOOPBACK, 0))
    return TCPStore(
        LOOPBACK,
        listener.getsockname()[1],
        is_master=True,
        timeout=GROUP_TIMEOUT,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def reach_store(port: int) -> TCPStore:
    """The other ranks' way to :func:`open_store`."""
    return TCPStore(LOOPBACK, port, is_master=False, timeout=GROUP_TIMEOUT)


def join_ranks(
    store: TCPStore, rank: int, size: int, device: str, timeout: timedelta = GROUP_TIMEOUT
) -> Ranks:
    """Form the group: gloo for CPU tensors, NCCL for CUDA tensors. One group a process.

    Raises :class:`RankError` when the others do not come within ``timeout``.
    """
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    os.environ["GLOO_SOCKET_IFNAME"] = loopback
    backend = "gloo" if torch.device(device).type == "cpu" else "cpu:gloo,cuda:nccl"
    with _collective():
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
        control = dist.new_group(backend="gloo", timeout=IDLE_TIMEOUT)
    assert isinstance(control, dist.ProcessGroup)
    return Ranks(rank, size, control)


def leave_ranks() -> None:
    """Close the process's group, if it is in one."""
    if dist.is_initialized():
        dist.destroy_process_group()
