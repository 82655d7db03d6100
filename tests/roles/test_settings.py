"""The effect of a node's settings: one test for each that no pure function decides and nothing else shows."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from holdfast import Holdfast, Signal, here, step, workflow
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import RunCancelled
from holdfast.supervisor.retention import RunPruner
from tests.roles.conftest import FAST, until

go = Signal("go", int)
at_once: dict[str, int] = {}
most: dict[str, int] = {}
undone_at: list[float] = []


@pytest.fixture(autouse=True)
def clean() -> None:
    at_once.clear()
    most.clear()
    undone_at.clear()


def enter(kind: str) -> None:
    at_once[kind] = at_once.get(kind, 0) + 1
    most[kind] = max(most.get(kind, 0), at_once[kind])


@step
async def waits_async(i: int) -> int:
    enter("async")
    await asyncio.sleep(0.05)
    at_once["async"] -= 1
    return i


@step
def waits_thread(i: int) -> int:
    enter("thread")
    time.sleep(0.05)
    at_once["thread"] -= 1
    return i


@step
async def quick(i: int) -> int:
    return i


@step
async def reports(times: int) -> None:
    for i in range(times):
        here.beat(i / times)
        await asyncio.sleep(0.02)


@step
async def hangs() -> None:
    enter("hangs")
    await asyncio.sleep(600)


@hangs.undo
async def unhang(done: None) -> None:
    undone_at.append(time.monotonic())


@workflow
async def wide(kind: str, width: int) -> int:
    return len(await (waits_async if kind == "async" else waits_thread).map(range(width)))


@workflow
async def waiting() -> int:
    await quick(1)
    return await go.wait()


@workflow
async def short(i: int) -> int:
    return await quick(i)


@workflow
async def reporting(times: int) -> None:
    await reports(times)


@workflow
async def hanging() -> None:
    await hangs()


def with_(**settings: object) -> Config:
    return msgspec.structs.replace(FAST, **settings)


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_an_agent_runs_so_many_steps_at_once(store_url: str, kind: str) -> None:
    """The limit is `steps_max` for `async def` steps, and `threads_max` for `def` steps."""
    async with Holdfast(store_url, config=with_(steps_max=3, threads_max=2)) as hf:
        assert await (await hf.start(wide, kind, 12)).result(60) == 12
    assert most[kind] == (3 if kind == "async" else 2)


async def test_a_scheduler_keeps_so_many_runs_in_memory(store_url: str) -> None:
    """When more are started, they wait for their turn."""
    async with Holdfast(store_url, config=with_(runs_max=3, park_after_s=600.0)) as hf:
        scheduler = hf.node.scheduler
        assert scheduler is not None
        runs = [await hf.start(waiting.using(id=f"w{i}")) for i in range(6)]
        assert len(scheduler.runs) == 3
        for run in runs:
            await go.send(run.id, 1)
        for run in runs:
            assert await run.result(60) == 1


@pytest.mark.parametrize("park_after_s", [0.1, 600.0])
async def test_a_run_that_waits_leaves_memory(store_url: str, park_after_s: float) -> None:
    """It leaves after `park_after_s`, and not before. It goes on all the same."""
    async with Holdfast(store_url, config=with_(park_after_s=park_after_s)) as hf:
        scheduler = hf.node.scheduler
        assert scheduler is not None
        run = await hf.start(waiting)
        if park_after_s < 1:
            await until(lambda: not scheduler.runs)
        else:
            await asyncio.sleep(1.5)  # it is checked several times in between whether it could leave
            assert run.id in scheduler.runs
        await go.send(run.id, 5)
        assert await run.result(60) == 5


async def test_a_commit_holds_so_many_writes(store_url: str) -> None:
    """With `batch_max=1` each start is its own commit; otherwise many share one."""
    commits = {}
    for batch_max in (1, 100):
        async with Holdfast(store_url, config=with_(batch_max=batch_max)) as hf:
            before = hf.node.writer.commits
            runs = await asyncio.gather(*(hf.start(short, i) for i in range(40)))
            await asyncio.gather(*(run.result(60) for run in runs))
            commits[batch_max] = hf.node.writer.commits - before
    assert commits[1] >= 80
    assert commits[100] < 40


async def test_progress_is_written_as_often_as_was_set(store_url: str) -> None:
    """It is written at most every `beat_s`. With a long one, no progress of a short step is written."""
    for beat_s, written in ((0.02, True), (600.0, False)):
        async with Holdfast(store_url, config=with_(beat_s=beat_s)) as hf:
            run = await hf.start(reporting, 20)
            await run.result(60)
            assert ((await run.steps())[0].progress is not None) is written


@pytest.mark.parametrize("stop_grace_s", [0.0, 2.0])
async def test_an_undo_waits_until_its_step_has_stopped(store_url: str, stop_grace_s: float) -> None:
    """The undo of a step that was given up while it ran begins `stop_grace_s` later."""
    async with Holdfast(store_url, config=with_(stop_grace_s=stop_grace_s)) as hf:
        run = await hf.start(hanging)
        await until(lambda: "hangs" in most)
        began = time.monotonic()
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(60)
        if stop_grace_s:
            assert undone_at[0] - began >= stop_grace_s * 0.9
        else:
            assert undone_at[0] - began < 1.9


async def test_pruning_takes_its_share_and_rests(store_url: str) -> None:
    """A pass takes `prune_share_s`, and the next one goes on. When everything is gone, pruning rests for
    `prune_every_s`."""
    calm = with_(sweep_s=600.0, watch_s=600.0, lease_s=600.0, leader_lease_s=600.0)  # one leader to the end
    async with Holdfast(store_url, config=calm) as hf:

        async def ended() -> None:
            for i in range(4):
                await (await hf.start(short, i)).result(60)

        async def one_pass(share_s: float) -> int:
            settings = with_(keep_days=0.0, prune_rows_max=3, prune_share_s=share_s)
            return await RunPruner(hf.store.retention, Environment(), settings).prune(
                epoch, await hf.store.now() + 600
            )

        epoch = 0
        while not epoch:
            await asyncio.sleep(0.01)
            leader = await hf.store.leader.leader()
            epoch = 0 if leader is None else leader.epoch
        await ended()
        assert await one_pass(0.0) < 4
        await one_pass(60.0)
        assert not await hf.runs()
        await ended()
        resting = RunPruner(
            hf.store.retention, Environment(), with_(keep_days=0.0, prune_share_s=60.0, prune_every_s=600.0)
        )
        eager = RunPruner(
            hf.store.retention, Environment(), with_(keep_days=0.0, prune_share_s=60.0, prune_every_s=0.0)
        )
        now = await hf.store.now() + 600
        assert await resting.prune(epoch, now) == 4
        await ended()
        assert await resting.prune(epoch, now) == 0
        assert await eager.prune(epoch, now) == 4
        await ended()
        assert await eager.prune(epoch, now) == 4
