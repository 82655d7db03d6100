"""Whatever a commit raises, each operation is answered, and what no one in this node knows does not stay `running`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from holdfast import Holdfast, RunFailed, Stop, here, step, workflow
from holdfast.config import Config
from holdfast.errors import StoreError
from holdfast.model import NewRun, Outcome, RunState, StepState
from holdfast.run import Run
from holdfast.store.operations import Hop, Op, Start
from tests.roles import flows
from tests.roles.conftest import FAST, until

SLOW_S = 20.0
"""How late a busy machine may be."""

Commit = Callable[[str, Sequence[Op]], Awaitable[list[Any]]]


class Disturbed:
    """The real store, whose commits a test may spoil: before they happen, or afterwards, when their answer is lost."""

    def __init__(self, hf: Holdfast) -> None:
        self._commit: Commit = hf.store.batches.commit
        self.before: Callable[[Sequence[Op]], None] = lambda ops: None
        self.after: Callable[[Sequence[Op]], None] = lambda ops: None
        self.batches: list[Sequence[Op]] = []
        hf.node.writer._store = self

    async def commit(self, node: str, ops: Sequence[Op]) -> list[Any]:
        self.batches.append(list(ops))
        self.before(ops)
        answers = await self._commit(node, ops)
        self.after(ops)
        return answers


def times(count: int) -> Callable[[Sequence[Op]], None]:
    """Raise an exception that the code does not expect, this many times."""
    left = [count]

    def spoil(ops: Sequence[Op]) -> None:
        if left[0]:
            left[0] -= 1
            raise AttributeError("'NoneType' object has no attribute 'is_closed'")

    return spoil


def whenever(condition: Callable[[Op], bool]) -> Callable[[Sequence[Op]], None]:
    def spoil(ops: Sequence[Op]) -> None:
        if any(condition(op) for op in ops):
            raise TypeError("this cannot be encoded")

    return spoil


@workflow
async def three(x: int) -> int:
    for _ in range(3):
        x = await flows.add(x)
    return x


@step(name="writer.answer")
async def answer(fails: bool) -> str:
    flows.effects["answer"] += 1
    if fails:
        raise Stop("no")
    return "yes"


@workflow(name="writer.calls_answer")
async def calls_answer(fails: bool) -> str:
    return await answer(fails)


@step(name="writer.saving")
async def saving() -> str:
    try:
        await here.save({"done": 1})
    except StoreError as error:
        return f"not saved: {error}"
    return "saved"


@workflow(name="writer.saves")
async def saves() -> str:
    return await saving()


@step(name="writer.elsewhere", needs=["what nobody has"])
async def elsewhere() -> None: ...


@workflow(name="writer.out_of_reach")
async def out_of_reach() -> None:
    await elsewhere()


async def nothing_left(hf: Holdfast) -> None:
    assert [name for name, _, rows in await hf.store.reads.doctor() if rows] == []
    assert hf.node.agent is not None
    assert hf.node.agent.assignments == {}


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_an_exception_that_nobody_foresaw_loses_nothing(hf: Holdfast, moment: str) -> None:
    """A driver breaks in the middle of a commit, before it is done or after. The writer checks the commit and tries
    again. Every run ends with its result, and no step is executed twice."""
    disturbed = Disturbed(hf)
    for round_ in range(5):
        setattr(disturbed, moment, times(2))
        runs = [await hf.start(three.using(id=f"{round_}-{i}"), i) for i in range(20)]
        setattr(disturbed, moment, times(2))
        assert [await run.result(60) for run in runs] == [i + 3 for i in range(20)]
    assert flows.effects["add"] == 5 * 20 * 3
    await nothing_left(hf)


async def test_what_cannot_be_written_is_found_and_refused_alone(hf: Holdfast) -> None:
    """One start of forty breaks every batch it is in. It alone is refused, with the reason, and the others are
    accepted."""
    disturbed = Disturbed(hf)
    disturbed.before = whenever(lambda op: "bad" in (op.run.id if isinstance(op, Start) else op.run_id))
    starts = [hf.start(three.using(id="bad" if i == 17 else f"good-{i}"), i) for i in range(40)]
    answers = await asyncio.gather(*starts, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    assert len(refused) == 1
    assert isinstance(answers[17], StoreError)
    assert "the write failed: TypeError: this cannot be encoded" in str(answers[17])
    for i, run in enumerate(answers):
        if isinstance(run, Run):
            assert await run.result(60) == i + 3
    assert "bad" not in {run.id for run in await hf.runs()}
    await nothing_left(hf)


async def test_an_outcome_that_cannot_be_written_is_a_failure(store_url: str) -> None:
    """What a step returned breaks the commit, again and again. The step has failed, with that as its reason. It is not
    executed over and over, and is not lost."""
    async with (
        Holdfast(store_url, roles=["scheduler", "supervisor"], config=FAST) as hf,
        Holdfast(store_url, roles=["agent"], config=FAST) as agent,
    ):
        Disturbed(agent).before = whenever(lambda op: isinstance(op, Outcome) and op.output == b'"yes"')
        run = await hf.start(calls_answer, False)
        with pytest.raises(RunFailed, match="cannot be recorded: the write failed: TypeError"):
            await run.result(60)
        assert flows.effects["answer"] == 1
        (row,) = await hf.store.reads.steps(run.id)
        assert json.loads(row.error or "")["unsure"], "it may have had its effect"


async def test_an_outcome_that_no_hop_can_carry_holds_no_run_back(hf: Holdfast) -> None:
    """The same holds in one process, where the outcome travels with the next decision."""
    bad = whenever(
        lambda op: (
            (isinstance(op, Outcome) and op.output == b'"yes"')
            or (isinstance(op, Hop) and any(end.output == b'"yes"' for end in op.outcomes))
        )
    )
    Disturbed(hf).before = bad
    run = await hf.start(calls_answer, False)
    with pytest.raises(RunFailed, match="cannot be recorded"):
        await run.result(60)
    assert flows.effects["answer"] == 1
    await nothing_left(hf)


async def test_a_run_whose_decision_cannot_be_written_is_held_with_the_reason(hf: Holdfast) -> None:
    """Replaying it does not help. The run is held, and `why` gives the reason."""
    Disturbed(hf).before = whenever(lambda op: isinstance(op, Hop) and op.close is not None)
    run = await hf.start(calls_answer, False)

    async def held() -> bool:
        return await run.state() is RunState.HELD

    async with asyncio.timeout(60):
        while not await held():  # noqa: ASYNC110  a state in the store has no event here
            await asyncio.sleep(0.05)
    assert "this cannot be encoded" in await run.why()
    assert flows.effects["answer"] == 1


async def test_a_checkpoint_that_is_not_written_raises_in_its_step(hf: Holdfast) -> None:
    """A step that believed otherwise would go on as if it were written."""
    Disturbed(hf).before = whenever(lambda op: type(op).__name__ == "Save")
    run = await hf.start(saves)
    assert "not saved: the write failed: TypeError" in await run.result(60)


async def test_hand_backs_survive_the_driver(store_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """An agent that leaves while its driver breaks hands everything back all the same."""
    flows.gates["gate"] = asyncio.Event()
    async with Holdfast(store_url, roles=["scheduler", "supervisor"], config=FAST) as hf:
        agent = await Holdfast(store_url, roles=["agent"], config=FAST).open()
        runs = [await hf.start(flows.gate, "gate") for _ in range(9)]
        assert agent.node.agent is not None
        await until(lambda: agent.node.agent is not None and len(agent.node.agent.assignments) == 9)
        disturbed = Disturbed(agent)
        disturbed.before = times(2)
        await agent.close()
        assert sum("failed with an unexpected error" in record.message for record in caplog.records) == 2
        for run in runs:
            assert [(row.state, row.excused, row.losses) for row in await run.steps()] == [
                (StepState.READY, 1, 0)
            ]


async def test_what_runs_here_unknown_goes_back_within_a_lease(store_url: str) -> None:
    """The store says that a node has a run and a step which the node does not know, and nothing else is wrong. The
    check that every node makes twice in a lease finds them, and they go back at no cost."""
    lease_s = 5.0
    config = Config(lease_s=lease_s, renew_s=0.4, poll_s=0.05, sweep_s=0.05)
    async with Holdfast(store_url, config=config) as hf, Holdfast(store_url, roles=[]) as other:
        run = await hf.start(out_of_reach)
        lanes = [lane.id for lane in await other.store.agents.lanes() if lane.needs]
        claimed: list[Any] = []
        while not claimed:
            claimed = await other.store.agents.claim_steps(hf.node.id, lanes, 10)
        await other.store.batches.commit(
            "x", [Start(NewRun("unknown", "no.such.workflow", "1", b"{}", b"d"))]
        )
        assert await other.store.schedulers.claim_run(hf.node.id, "unknown") is not None
        async with asyncio.timeout(lease_s + SLOW_S):
            while True:
                (row,), info = await run.steps(), await other.store.reads.run("unknown")
                assert info is not None
                if row.state is StepState.READY and info.owner is None:
                    break
                await asyncio.sleep(0.02)
        assert (row.excused, row.losses, info.state) == (1, 0, RunState.PENDING)
        assert not hf.node.fenced
