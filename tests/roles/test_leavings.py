"""Whatever leaves a step's code is recorded as its failure, and what may have had an effect is undone."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.errors import RunFailed, RunUndone
from holdfast.model import RunState, StepState
from tests.roles import leavings
from tests.roles.conftest import FAST, until
from tests.roles.outside import effects

SMALL = msgspec.structs.replace(FAST, payload_max_bytes=4000, breaker_failures_min=10_000)
KINDS = ["async", "thread", "isolated"]


@pytest.fixture
async def hf(store_url: str) -> AsyncIterator[Holdfast]:
    """A Holdfast whose breakers do not open, although these tests let one step fail many times."""
    async with Holdfast(store_url, config=msgspec.structs.replace(SMALL, payload_max_bytes=2**21)) as found:
        yield found


@pytest.fixture
async def small(store_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(store_url, config=SMALL) as hf:
        yield hf


async def healthy(hf: Holdfast) -> None:
    """The agent goes on serving, and the store finds nothing wrong."""
    assert await (await hf.start(leavings.working, 5)).result(60) == 5
    assert not [name for name, _, rows in await hf.store.reads.doctor() if rows]


@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_leaves_a_step_is_its_recorded_failure(
    hf: Holdfast, tmp_path: Path, kind: str
) -> None:
    """For every class of exception, the run ends, its step has failed once, and the agent goes on. After an interrupt
    it is unknown how far the step came, so it is undone. An ordinary exception says that nothing happened."""

    async def one(how: str) -> None:
        folder = tmp_path / how
        folder.mkdir()
        run = await hf.start(leavings.leaving, kind, str(folder), how)
        unsure = how in leavings.INTERRUPTS
        with pytest.raises(RunUndone if unsure else RunFailed):
            await run.result(60)
        first = (await run.steps())[0]
        assert (first.state, first.attempt) == (StepState.FAILED, 1), how
        assert effects(folder) == (["acted", "undone"] if unsure else ["acted"]), how
        assert await run.why(), how
        if kind == "isolated":
            return  # each takes a process, and the workflow gets the same as from the others
        caught = await hf.start(leavings.caught, kind, str(folder), how)
        assert await caught.result(60) != "?", how

    gate = asyncio.Semaphore(4)

    async def gated(how: str) -> None:
        async with gate:
            await one(how)

    await asyncio.gather(*map(gated, leavings.RAISED))
    await healthy(hf)


@pytest.mark.parametrize("inner", [False, True], ids=["main", "task"])
async def test_whatever_leaves_a_workflow_ends_its_run(hf: Holdfast, inner: bool) -> None:
    """The same holds for workflow code, in its main task and in one that it started."""
    flow = leavings.raising_in_a_task if inner else leavings.raising
    for how in leavings.RAISED:
        run = await hf.start(flow, how)
        with pytest.raises(RunFailed):
            await run.result(60)
        assert await run.state() is RunState.FAILED, how
    await healthy(hf)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", leavings.RETURNED)
async def test_a_result_that_cannot_be_stored_is_undone(
    small: Holdfast, tmp_path: Path, kind: str, what: str
) -> None:
    """The step acted and returned. It is not executed again, and it is undone with None."""
    if kind == "isolated" and what not in ("wrong type", "too large"):
        pytest.skip("a process each, for the same code as in a thread")
    run = await small.start(leavings.giving, kind, str(tmp_path), what)
    with pytest.raises(RunUndone, match=r"gives_\w+\(\) result"):
        await run.result(60)
    key = f"{run.id}::gives_{kind}"
    assert effects(tmp_path) == [f"acted {key}", f"undone {key} with None"]
    await healthy(small)


@pytest.mark.parametrize("what", leavings.ODD)
async def test_a_result_whose_class_raises_or_changes_it_is_undone(
    hf: Holdfast, tmp_path: Path, what: str
) -> None:
    """Whatever an author's class does while it is encoded and decoded, the result is the same."""
    run = await hf.start(leavings.giving_odd, str(tmp_path), what)
    with pytest.raises(RunUndone, match=r"gives_\w+\(\) result"):
        await run.result(60)
    assert [line.split()[0] for line in effects(tmp_path)] == ["acted", "undone"]
    await healthy(hf)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_saga_undoes_a_result_that_cannot_be_stored(
    small: Holdfast, tmp_path: Path, kind: str
) -> None:
    """The workflow takes another branch, and what was done is undone."""
    run = await small.start(leavings.giving_in_a_saga, kind, str(tmp_path), "too large")
    assert await run.result(60) == "InvalidInput"
    assert [line.split()[0] for line in effects(tmp_path)] == ["acted", "undone"]


@pytest.mark.parametrize("isolated", [False, True])
async def test_undo_failed_looks_into_groups(hf: Holdfast, tmp_path: Path, isolated: bool) -> None:
    """A step that works with task groups raises its ConnectionError inside an ExceptionGroup."""
    run = await hf.start(leavings.splitting, isolated, str(tmp_path))
    with pytest.raises(RunUndone):
        await run.result(60)
    assert effects(tmp_path) == ["acted", "undone"]


async def test_a_step_that_was_interrupted_by_its_agents_leaving_may_have_had_its_effect(
    store_url: str, tmp_path: Path
) -> None:
    """The step is executed again elsewhere and spends no attempt. When that fails, it is undone all the same."""
    async with Holdfast(store_url, config=FAST) as first:
        run = await first.start(leavings.interrupting.using(id="moved"), str(tmp_path))
        await until(lambda: effects(tmp_path) == ["acted 1"])
    async with Holdfast(store_url, config=FAST) as second:
        with pytest.raises(RunUndone, match="refused"):
            await second.run(run.id).result(60)
        assert effects(tmp_path) == ["acted 1", "acted 2", "undone"]
        await healthy(second)


@pytest.mark.parametrize("how", ["SystemExit", "KeyboardInterrupt"])
def test_plain_code_survives_a_step_that_exits_in_a_task(store_url: str, how: str) -> None:
    """Holdfast's own event loop goes on."""
    with Holdfast(store_url, config=FAST) as hf:
        with pytest.raises(RunFailed, match=how):
            hf.wait(hf.wait(hf.start(leavings.exiting_in_a_task, how)).result(60))
        assert hf.wait(hf.wait(hf.start(leavings.working, 5)).result(60)) == 5


@pytest.mark.parametrize("where", ["step", "workflow"])
@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 5), ("SIGINT", -signal.SIGINT)])
async def test_a_signal_ends_the_process_and_no_step_and_no_run(
    store_url: str, tmp_path: Path, where: str, number: str, code: int
) -> None:
    """It arrives as an exception in whatever code runs. This is no failure of that code: the run goes on elsewhere."""
    program = [sys.executable, "-m", "tests.roles.leavings", number, store_url, where, str(tmp_path)]
    process = await asyncio.create_subprocess_exec(*program, stderr=subprocess.DEVNULL)
    try:
        await until(lambda: bool(effects(tmp_path)))
        process.send_signal(signal.Signals[number])
        assert await asyncio.wait_for(process.wait(), 30) == code
    finally:
        if process.returncode is None:
            process.kill()
    async with Holdfast(store_url, config=FAST) as hf:
        flow = leavings.being_busy if where == "step" else leavings.busy_itself
        if where == "workflow":
            await hf.start(flow.using(id="busy"), str(tmp_path))  # nothing of its first turn was committed
        assert await hf.run("busy", flow).result(60) == 2
