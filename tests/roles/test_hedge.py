"""A hedged step and its twin: whatever happens to either, the step has one outcome and is undone once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.durations import step_name
from holdfast.errors import RunCancelled, RunFailed, RunUndone
from holdfast.model import Ending, StepState, TwinState
from holdfast.run import Run
from tests.roles import stragglers
from tests.roles.conftest import FAST, until
from tests.roles.outside import effects
from tests.roles.test_hedge_pays import straggler_node

QUICK = msgspec.structs.replace(FAST, learn_s=0.05, hedge_floor_s=0.05, hedge_share=1.0)


@pytest.fixture
async def two(store_url: str) -> AsyncIterator[list[Holdfast]]:
    """Two nodes with all roles."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Holdfast(store_url, config=QUICK)) for _ in range(2)]


async def both_run(hf: Holdfast, folder: Path, then_fails: bool = False) -> Run[str]:
    """Start a run whose step takes long, and wait until its twin has begun."""
    await learned(hf, folder)
    (folder / "slow").touch()
    run = await hf.start(stragglers.guarded_run, str(folder), "x", then_fails)
    await until(lambda: "second" in words(folder))
    assert "first" in words(folder)
    return run


async def until_stored(true: Callable[[], Awaitable[bool]], limit_s: float = 60.0) -> None:
    """Wait until a condition of the store is true."""
    async with asyncio.timeout(limit_s):
        while not await true():  # noqa: ASYNC110  a condition of the store has no event
            await asyncio.sleep(0.02)


async def learned(hf: Holdfast, folder: Path) -> None:
    """Wait until the store knows how long the step takes."""
    await (await hf.start(stragglers.warm_up, str(folder), 40)).result(60)
    await learned_by(hf)


async def learned_by(hf: Holdfast) -> None:
    async def known() -> bool:
        counts = await hf.store.durations.durations([step_name(stragglers.guarded.name)])
        return sum(count for _, _, count in counts) >= 30

    await until_stored(known)


def words(folder: Path) -> list[str]:
    """Return who began, in order."""
    return [line.split()[0] for line in effects(folder) if "began" in line]


def keys(folder: Path) -> set[str]:
    return {line.split()[2] for line in effects(folder) if "began" in line}


def undone(folder: Path) -> list[str]:
    return [line for line in effects(folder) if line.startswith("undone")]


async def sound(hf: Holdfast) -> None:
    assert {name for name, _, rows in await hf.store.reads.doctor() if rows} == set()


async def test_the_twin_is_first(two: list[Holdfast], tmp_path: Path) -> None:
    """The run gets the twin's result. The step itself is stopped, and its attempt is recorded as outrun."""
    run = await both_run(two[0], tmp_path)
    (tmp_path / "second").write_text("end")
    assert await run.result(60) == "second"
    await until(lambda: "first stopped" in effects(tmp_path))
    assert len(keys(tmp_path)) == 1
    view = await run.view()
    (outran,) = view.attempts
    (done,) = view.steps
    assert "twin" in str(outran.error)
    assert (done.state, done.attempt) == (StepState.SUCCEEDED, 1)
    assert done.agent != outran.agent
    (twin,) = await two[0].store.twins.twins(run.id)
    assert (twin.state, twin.agent, twin.not_agent) == (TwinState.WON, done.agent, outran.agent)
    await sound(two[0])


async def test_the_step_is_first(two: list[Holdfast], tmp_path: Path) -> None:
    """The run gets the step's result, and the twin is stopped."""
    run = await both_run(two[0], tmp_path)
    (tmp_path / "first").write_text("end")
    assert await run.result(60) == "first"
    await until(lambda: "second stopped" in effects(tmp_path))
    assert (await run.view()).attempts == []
    await sound(two[0])


async def test_a_twin_that_fails_costs_its_step_nothing(two: list[Holdfast], tmp_path: Path) -> None:
    """The step goes on, and no attempt of it is spent."""
    run = await both_run(two[0], tmp_path)
    (tmp_path / "second").write_text("fail")
    await until(lambda: "second ends" in effects(tmp_path))

    async def twin_ended() -> bool:
        return (await two[0].store.twins.twins(run.id))[0].state is not TwinState.RUNNING

    await until_stored(twin_ended)
    (tmp_path / "first").write_text("end")
    assert await run.result(60) == "first"
    assert words(tmp_path) == ["first", "second"]


async def test_a_step_that_fails_waits_for_its_twin(two: list[Holdfast], tmp_path: Path) -> None:
    """The step has no attempt left, but its twin succeeds. So the step succeeds."""
    run = await both_run(two[0], tmp_path)
    (tmp_path / "first").write_text("fail")
    await until(lambda: "first ends" in effects(tmp_path))
    (tmp_path / "second").write_text("end")
    assert await run.result(60) == "second"
    await sound(two[0])


async def test_a_step_that_waits_for_its_twin_is_not_forgotten_when_its_agent_leaves(
    two: list[Holdfast], tmp_path: Path
) -> None:
    """The attempt had begun. So it is kept among the attempts, as one that may have had its effect."""
    run = await both_run(two[0], tmp_path)
    (tmp_path / "first").write_text("fail")
    await until(lambda: "first ends" in effects(tmp_path))
    agent = (await run.steps())[0].agent
    leaving, staying = sorted(two, key=lambda hf: hf.node.id != agent)
    await leaving.close()
    (attempt,) = (await staying.run(run.id).view()).attempts
    assert (attempt.attempt, attempt.agent, attempt.ending) == (1, agent, Ending.LOST)
    (tmp_path / "second").write_text("end")
    assert await staying.run(run.id).result(60) == "second"
    await sound(staying)


async def test_when_both_fail_the_step_failed_and_may_have_had_its_effect(
    two: list[Holdfast], tmp_path: Path
) -> None:
    """The run gets one failure. It is unknown what the twin did before it failed, so the step is undone, once."""
    run = await both_run(two[0], tmp_path)
    for who in ("first", "second"):
        (tmp_path / who).write_text("fail")
    with pytest.raises(RunUndone, match="first failed"):
        await run.result(60)
    assert len(undone(tmp_path)) == 1
    await sound(two[0])


async def test_a_step_that_fails_without_a_twin_did_nothing(two: list[Holdfast], tmp_path: Path) -> None:
    """Hedging does not make its failure less certain: there is nothing to undo."""
    (tmp_path / "slow").touch()
    (tmp_path / "first").write_text("fail")
    run = await two[0].start(stragglers.guarded_run, str(tmp_path), "x")
    with pytest.raises(RunFailed, match="first failed"):
        await run.result(60)
    assert undone(tmp_path) == []


@pytest.mark.parametrize("winner", ["first", "second"])
async def test_what_ran_twice_is_undone_once(two: list[Holdfast], tmp_path: Path, winner: str) -> None:
    """The run fails after the step. There is one undo, with the result of the attempt that was first, and with the key
    that both have."""
    run = await both_run(two[0], tmp_path, then_fails=True)
    (tmp_path / winner).write_text("end")
    await until(lambda: f"{winner} ends" in effects(tmp_path))
    (tmp_path / "fail run").touch()
    with pytest.raises(RunUndone):
        await run.result(60)
    (key,) = keys(tmp_path)
    assert undone(tmp_path) == [f"undone {winner} of {key}"]
    await sound(two[0])


async def test_cancelling_the_run_stops_both(two: list[Holdfast], tmp_path: Path) -> None:
    """It is unknown what either did. So the step is undone, once, after both have stopped."""
    run = await both_run(two[0], tmp_path)
    await run.cancel()
    with pytest.raises(RunCancelled):
        await run.result(60)
    lines = effects(tmp_path)
    assert len(undone(tmp_path)) == 1
    assert {"first stopped", "second stopped"} <= set(lines[: lines.index(undone(tmp_path)[0])])
    await sound(two[0])


async def test_a_held_run_takes_its_twins_outcome_when_it_is_released(
    two: list[Holdfast], tmp_path: Path
) -> None:
    """A held run takes the outcome of a twin as it takes any other."""
    run = await both_run(two[0], tmp_path)
    await run.hold()
    (tmp_path / "second").write_text("end")

    async def recorded() -> bool:
        return (await run.steps())[0].state is StepState.SUCCEEDED

    await until_stored(recorded)
    await run.release()
    assert await run.result(60) == "second"
    await sound(two[0])


async def test_one_agent_alone_makes_no_twins(store_url: str, tmp_path: Path) -> None:
    """There is no other agent to run it."""
    async with Holdfast(store_url, config=QUICK) as hf:
        await learned(hf, tmp_path)
        (tmp_path / "slow").touch()
        run = await hf.start(stragglers.guarded_run, str(tmp_path), "x")
        await until(lambda: words(tmp_path) == ["first"])

        async def is_long_overdue() -> bool:
            return len(await hf.store.durations.overlong_steps([(stragglers.guarded.name, 0.5)], 10)) == 1

        await until_stored(is_long_overdue)
        (tmp_path / "first").write_text("end")
        assert await run.result(60) == "first"
        assert await hf.store.twins.twins(run.id) == []


async def test_the_twin_survives_the_death_of_the_steps_agent(store_url: str, tmp_path: Path) -> None:
    """The process that runs the step and decides its run is killed. The twin's outcome is the step's."""
    async with straggler_node(store_url) as first, Holdfast(store_url, roles=[]) as caller:
        run = await caller.start(stragglers.warm_up, str(tmp_path), 40)
        await run.result(60)
        async with Holdfast(store_url, config=QUICK, roles=["supervisor"]) as leading:
            await learned_by(leading)
            (tmp_path / "slow").touch()
            run2 = await caller.start(stragglers.guarded_run, str(tmp_path), "x")
            await until(lambda: "first" in words(tmp_path))
            async with Holdfast(store_url, config=QUICK):
                await until(lambda: "second" in words(tmp_path))
                first.kill()
                await first.wait()
                (tmp_path / "second").write_text("end")
                assert await run2.result(60) == "second"
                (step,) = await run2.steps()
                assert step.state is StepState.SUCCEEDED
                await sound(caller)
