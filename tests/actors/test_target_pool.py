"""A pool of target groups on the session's Ray: shared, queued for, and outliving a lost group."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.util.placement_group import (
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from actors.group_keeper import GroupKeeper, NoRoom
from actors.group_setup import GroupSetup, Share, usual_share
from actors.placing import num_fitting
from actors.target_group import PREFIX, GroupGone, TargetGroup, Waiting
from actors.target_pool import PoolConfig, TargetPool
from actors.target_rank import GroupError
from cluster.session import Resources
from decoders.options import DecodeOptions
from decoders.request import Request
from drafters.config import DrafterConfig
from models.config import TargetConfig

ROWS = [{"id": "a", "prompt_ids": [4, 5]}]
OPTIONS = DecodeOptions(max_new_tokens=6, ignore_stop=True)


def answer(group: TargetGroup) -> list[int]:
    return group.generate(ROWS, OPTIONS)[0]["token_ids"]


def test_nodes_hold_whole_groups_of_whole_and_of_shared_gpus() -> None:
    node = {"CPU": 8.0, "GPU": 4.0}
    assert num_fitting(node, {"GPU": 1.0}, tp=2) == 2
    assert num_fitting(node, {"GPU": 1.0}, tp=3) == 1
    assert num_fitting(node, {"GPU": 0.1}, tp=1) == 40
    assert num_fitting(node, {"GPU": 1.0, "CPU": 4.0}, tp=1) == 2
    assert num_fitting({"CPU": 8.0}, {"GPU": 1.0}, tp=1) == 0
    assert num_fitting({"GPU": 2.0}, {"GPU": 0.4}, tp=1) == 4, "a share lies on one of them"


def test_a_rank_takes_a_gpu_on_cuda_and_nothing_on_the_cpu_unless_asked() -> None:
    cuda, cpu = TargetConfig(device="cuda"), TargetConfig()
    assert PoolConfig().share(cuda) == usual_share(cuda) == Share(gpus=1.0)
    assert PoolConfig().share(cpu) == Share()
    assert PoolConfig(gpus_per_rank=0.25).share(cuda) == Share(gpus=0.25)
    with pytest.raises(ValueError, match=r"pool\.gpus_per_rank 0\.5: target\.tp 2"):
        PoolConfig(gpus_per_rank=0.5).share(TargetConfig(device="cuda", tp=2))
    with pytest.raises(ValueError, match=r"gpus_per_rank 1\.5: .*valid: below 1, or a whole"):
        PoolConfig(gpus_per_rank=1.5).share(cuda)


def test_who_asks_a_group_that_was_stopped_is_told_so_and_nothing_is_built() -> None:
    setup = GroupSetup(TargetConfig(), DrafterConfig(), ("chain",), 1, Share())

    async def ask() -> None:
        keeper = GroupKeeper(setup, "ended")
        await keeper.stop()
        await keeper.lead()

    with pytest.raises(GroupError, match="target group ended was stopped"):
        asyncio.run(ask())


def test_a_stream_of_a_group_without_a_place_is_not_the_requests_fault() -> None:
    class Keeper:
        """As a group's, whose node was lost for good."""

        class lead:
            @staticmethod
            async def remote(lost: str) -> None:
                raise NoRoom("no node had room")

    stream = TargetGroup("tiny", Keeper).stream(Request("a", (5,), OPTIONS))
    with pytest.raises(GroupGone, match="target group tiny was lost: no node had room"):
        asyncio.run(anext(stream))


@pytest.mark.ray
def test_a_pool_is_as_large_as_asked_or_as_fits(ray_cluster: Resources) -> None:
    target = TargetConfig()
    assert PoolConfig().size(target) == 1, "on shared cores one is the quiet choice"
    assert PoolConfig(cpus_per_rank=1).size(target) == 4
    assert PoolConfig(cpus_per_rank=1).size(TargetConfig(tp=2)) == 2
    assert PoolConfig(groups=3).size(target) == 3
    with pytest.raises(ValueError, match=r"pool\.groups 5: the cluster has room for 4 groups"):
        PoolConfig(groups=5, cpus_per_rank=1).size(target)


def test_a_group_that_fails_unforeseen_is_given_up_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Group:
        name = "second"
        stopped = False

        def bring_up(self, waiting: object) -> None:
            raise MemoryError("no room for the weights")

        def stop(self) -> None:
            self.stopped = True

    class Call:
        def remote(self, *words: str) -> tuple[str, ...]:
            return words

    monkeypatch.setattr("actors.target_pool.fetch", lambda call: given_up.append(call))
    given_up: list[tuple[str, ...]] = []
    told: list[str] = []
    pool, group = TargetPool.__new__(TargetPool), Group()  # its own part needs Ray
    pool._closing, pool._tell_user, pool._waiting = False, told.append, Waiting()
    pool.leases = SimpleNamespace(desk=SimpleNamespace(give_up=Call()))  # type: ignore[assignment]
    pool._bring_up(group)  # type: ignore[arg-type]
    assert told == ["second: MemoryError: no room for the weights"]
    assert given_up == [("second", "MemoryError: no room for the weights")]
    assert group.stopped


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def pool(ray_cluster: Resources, tiny_folder: Path, told: list[str]) -> Iterator[TargetPool]:
    config = PoolConfig(groups=2, cpus_per_rank=1, wait_seconds=20)
    target = TargetConfig(path=str(tiny_folder))
    with TargetPool.open(target, DrafterConfig(), ("chain",), config, told.append) as opened:
        yield opened


@pytest.mark.ray
def test_two_holders_decode_at_a_time_on_groups_of_their_own(pool: TargetPool) -> None:
    assert pool.grow(5) == 2
    both = threading.Barrier(2, timeout=120)
    found: list[tuple[str, list[int]]] = []

    def work(group: TargetGroup) -> None:
        both.wait()  # each has a group while the other has one
        found.append((group.name, answer(group)))

    holders = [threading.Thread(target=pool.leases.use, args=(h, work)) for h in ("one", "two")]
    for holder in holders:
        holder.start()
    for holder in holders:
        holder.join()
    assert len({name for name, _ in found}) == 2
    assert found[0][1] == found[1][1] == answer(pool.first)


@pytest.mark.ray
def test_who_finds_no_room_waits_with_a_message_and_gives_up_in_time(
    pool: TargetPool, tiny_folder: Path
) -> None:
    target, heard = TargetConfig(path=str(tiny_folder)), []
    config = PoolConfig(cpus_per_rank=4, wait_seconds=7)
    with (
        pytest.raises(NoRoom, match="no node had room for 1 ranks of 4 CPUs each"),
        TargetPool.open(target, DrafterConfig(), (), config, heard.append),
    ):
        pass
    assert ["others hold it; waiting up to 2 s more" in text for text in heard] == [True]
    never = PoolConfig(cpus_per_rank=5)
    with (
        pytest.raises(ValueError, match=r"need 5 CPUs each, on one node, and the largest has 4"),
        TargetPool.open(target, DrafterConfig(), (), never, heard.append),
    ):
        pass


@pytest.mark.ray
def test_a_pool_gives_a_free_group_back_while_somebody_waits(
    pool: TargetPool, tiny_folder: Path
) -> None:
    pool.grow(2)  # two of the four cores
    config = PoolConfig(groups=2, cpus_per_rank=1, wait_seconds=4)
    target, told = TargetConfig(path=str(tiny_folder)), []
    with TargetPool.open(target, DrafterConfig(), (), config, told.append) as beside:
        assert beside.grow(2) == 2
        both = [beside.leases.take(holder) for holder in ("one", "two")]
        assert len({group.name for group in both}) == 2
        beside.leases.give_back("one")
        assert not beside.others_wait()
        beside.shrink(2)
        other = placement_group([{"CPU": 1}], name=f"{PREFIX}of-another-program")
        assert not other.wait(1)
        assert beside.others_wait()
        beside.shrink(2)
        assert other.wait(30)
        beside.shrink(1)
        assert beside.leases.take("two").name == both[1].name, "the one in use stays"
        beside.grow(2)
        ended = time.monotonic() + 120
        while not any("no node had room" in text for text in told) or asked_for(beside):
            assert time.monotonic() < ended, "what did not come leaves the queue"
            time.sleep(0.2)
        remove_placement_group(other)
    assert [text for text in told if "free for others" in text] == [
        f"{both[0].name}: stopped, its place is free for others"
    ]


def asked_for(pool: TargetPool) -> list[str]:
    """The groups of a pool whose places are in Ray's queue."""
    places = placement_group_table().values()
    return [p["name"] for p in places if p["state"] == "PENDING" and p["name"] in pool._groups]


@pytest.mark.ray
def test_leases_outlive_the_process_that_keeps_them(pool: TargetPool) -> None:
    pool.grow(2)
    held = pool.leases.take("one").name
    ray.kill(pool.leases.desk, no_restart=False)
    group, reason = ray.get(pool.leases.desk.next_loss.remote(0))  # told by the new one
    assert group is None
    assert "a new one knows its 1" in reason
    assert pool.leases.use("two", lambda group: group.name) != held
    assert pool.leases.take("one").name == held
    pool.leases.give_back("one")


@pytest.mark.ray
def test_work_on_a_lost_group_begins_again_on_another_one(
    pool: TargetPool, told: list[str]
) -> None:
    expected = answer(pool.first)
    used: list[str] = []

    def work(group: TargetGroup) -> list[int]:
        used.append(group.name)
        if len(used) == 1:
            answer(group)
            ray.kill(group.keeper)
            ray.kill(group._lead.rank) if group._lead else None
        return answer(group)

    found: Any = pool.leases.use("three", work)
    assert found == expected
    assert len(set(used)) == 2
    assert any(used[0] in text and "going on without it" in text for text in told)
    pool.shrink(1)
    assert pool.leases.use("four", lambda group: group.name) == used[1]
