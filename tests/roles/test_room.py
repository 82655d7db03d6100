"""A scheduler whose memory is full makes room."""

from __future__ import annotations

from holdfast import Signal, step, workflow
from holdfast.config import Config
from holdfast.testing.world import World

go = Signal("go", str)


@step
async def note(what: str) -> str:
    return what


@workflow
async def waits_for_a_word() -> str:
    return await note(await go.wait())


@workflow
async def quick() -> str:
    return await note("done")


def test_runs_that_wait_leave_memory_soon_when_there_is_no_room() -> None:
    """However long they may stay while there is room. Else a few sleepers would keep all others from beginning."""
    with World(config=Config(runs_max=2, park_after_s=3600.0)) as world:
        one = world.process("one")
        world.run(one.open())
        sleepers = [world.run(one.start(waits_for_a_word)) for _ in range(2)]
        world.loop.run_for(0.5)
        other = world.run(one.start(quick))
        begun = world.loop.now
        assert world.run(other.result(60)) == "done"
        assert world.loop.now - begun < 10
        world.run(one.send_signal(sleepers[0].id, "go", b'"awake"', None))
        assert world.run(sleepers[0].result(60)) == "awake"
