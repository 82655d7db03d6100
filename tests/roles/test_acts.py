"""Acts on many runs: `hf.plan`, who carries a plan out, and that the leader goes on when that process is gone."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Holdfast, InvalidInput, RunState, Signal, Stop, step, workflow
from holdfast.acts import Act, ActInfo
from holdfast.config import Config
from holdfast.errors import UnknownAct, UnknownWorkflow, WrongState
from holdfast.model import ActOptions, ActState, ActVerb

QUICK = Config(act_batch_max=2, act_lease_s=0.2, watch_s=0.1, sweep_s=0.05)
go = Signal("go", bool)
is_mended: set[str] = set()


@step
async def charge(number: int) -> int:
    return number


@charge.undo
async def refund(charged: int | None, number: int) -> None: ...


@step
async def ship(number: int) -> int:
    if "ship" not in is_mended:
        raise Stop("no ship")
    return number


@workflow
async def shipped(number: int) -> int:
    return await ship(number)


@workflow
async def paid(number: int) -> int:
    await charge(number)
    await go.wait()
    return number


async def failed_runs(hf: Holdfast, count: int) -> list[str]:
    is_mended.clear()
    runs = [await hf.start(shipped.using(id=f"f{number}"), number) for number in range(count)]
    for run in runs:
        with pytest.raises(Exception, match="no ship"):
            await run.result(timeout=30)
    is_mended.add("ship")
    return [run.id for run in runs]


async def test_many_failed_runs_are_retried_and_succeed(store_url: str) -> None:
    """The preview says what would happen, the act does it, and a second plan finds that it was done."""
    async with Holdfast(store_url) as hf:
        failed = await failed_runs(hf, 5)
        plan = await hf.plan("retry", workflow=shipped, note="mended")
        assert plan.preview.sentence == "5 runs would be retried"
        assert [one.count for one in plan.preview.changes] == [5]
        assert plan.preview.warnings == []
        done = await plan.carry_out()
        assert (done.state, done.done, done.left) == (ActState.DONE, 5, 0)
        for run_id in failed:
            assert isinstance(await hf.run(f"{run_id}~2").result(timeout=30), int)
        assert [run.fate async for run in plan.runs()] == ["done"] * 5
        again = await hf.plan("retry", state="failed")
        assert again.preview.sentence == "none of the 5 runs that are meant can be retried"
        assert [one.words for one in again.preview.left] == ["retried before"]
        assert (await again.carry_out()).runs == 0
        assert [one.id for one in await hf.acts()] == [plan.id]


async def test_a_plan_says_what_would_be_undone_and_what_waits(store_url: str) -> None:
    """Runs that have not begun end at once, and the undos of the others are counted. Code that no process has, open
    breakers and holds are warned of."""
    async with Holdfast(store_url) as hf:
        runs = [await hf.start(paid.using(id=f"p{number}"), number) for number in range(3)]
        async with asyncio.timeout(30):
            for run in runs:
                async for view in run.watch(0.02):
                    if len(view.steps) == 2:  # the charge, and the wait
                        break
        for run in runs:
            await run.hold()
        await hf.gates.open("charge", "they sleep")
    async with Holdfast(store_url, roles=()) as hf:
        await hf.start(shipped.using(id="new"), 1)
        plan = await hf.plan("cancel", state=["pending", "held"])
        assert {(one.count, one.words) for one in plan.preview.changes} == {
            (1, "cancelled at once: not begun yet"),
            (3, "asked to cancel themselves: up to 3 of their steps are undone"),
        }
        code, trouble = plan.preview.warnings
        assert "no process that is up has" in code
        assert "3 runs will wait" in code
        assert "in trouble" in trouble
        await plan.carry_out()
        assert await hf.run("new").state() is RunState.CANCELLED
    async with Holdfast(store_url) as hf:
        await hf.gates.reset("charge")
        for run in runs:
            with pytest.raises(Exception, match="cancelled"):
                await hf.run(run.id).result(timeout=30)


async def test_progress_is_shown_after_each_batch(store_url: str) -> None:
    """So it can be followed here, and from another process by `watch`."""
    async with Holdfast(store_url, config=Config(act_batch_max=2, act_share_s=60.0, act_lease_s=60.0)) as hf:
        await failed_runs(hf, 5)
        plan = await hf.plan("retry", state="failed")
        seen: list[int] = []

        async def watch() -> list[ActState]:
            return [info.state async for info in hf.act(plan.id).watch(0.01)]

        following = asyncio.create_task(watch())
        await plan.carry_out(lambda info: seen.append(info.done))
        assert seen == [2, 4, 5]
        assert (await following)[-1] is ActState.DONE


async def test_a_fork_from_a_step_leaves_out_runs_without_it(store_url: str) -> None:
    """The preview says so before anything is done, for many runs and for one."""
    async with Holdfast(store_url) as hf:
        await failed_runs(hf, 3)
        assert await (await hf.start(paid.using(id="p", begin_in=3600), 1)).state() is RunState.PENDING
        plan = await hf.plan("fork", from_="ship", since="1d")
        assert plan.preview.sentence == "3 runs would be forked; 1 more cannot be"
        assert [(one.count, one.words) for one in plan.preview.left] == [(1, "without a step ship")]
        none = await hf.plan("fork", from_="shop", state="failed")
        assert none.preview.sentence == "none of the 3 runs that are meant can be forked"
        assert (await none.carry_out()).runs == 0
        one = await hf.desk.overview.preview(hf.who, "p", ActVerb.FORK, ActOptions(start="ship"))
        assert (one.sentence, one.allowed) == ("p cannot be forked", False)


async def test_an_act_whose_process_died_is_ended_by_the_leader(store_url: str) -> None:
    """The lease of an act runs out when nobody carries out its batches. Then the leader does."""
    async with Holdfast(store_url, config=QUICK) as hf:
        failed = await failed_runs(hf, 6)
        plan = await hf.plan("retry", state="failed")
        # This is what a process leaves that was killed after its first batch.
        fence = await hf.store.acts.begin_act(plan.id, "gone", 0.2, 60.0)
        assert fence is not None
        await hf.store.acts.carry_out(plan.id, fence, lease_s=0.2, limit=2, share_s=9.0)
        async with asyncio.timeout(30):
            seen = [info async for info in plan.watch(0.02)]
        assert (seen[-1].state, seen[-1].done) == (ActState.DONE, 6)
        for run_id in failed:
            await hf.run(f"{run_id}~2").result(timeout=30)
            assert len(await hf.store.reads.journal(run_id)) == 1


async def test_two_who_carry_out_the_same_plan_do_it_once(store_url: str) -> None:
    """One does, the other waits for the end. Whoever comes later gets the same answer."""
    async with Holdfast(store_url, config=QUICK) as hf, Holdfast(store_url, roles=(), config=QUICK) as other:
        await failed_runs(hf, 5)
        plan = await hf.plan("retry", state="failed")
        one, two = await asyncio.gather(plan.carry_out(), other.act(plan.id).carry_out())
        three = await other.act(plan.id).carry_out()
        assert [(info.state, info.done) for info in (one, two, three)] == [(ActState.DONE, 5)] * 3
        assert len(await hf.runs(prefix="f", limit=99)) == 10


async def test_a_stopped_act_goes_on_when_it_is_carried_out_again(store_url: str) -> None:
    """What was done stays done."""
    async with Holdfast(store_url, config=QUICK) as hf:
        await failed_runs(hf, 5)
        plan = await hf.plan("retry", state="failed")
        stopping: list[asyncio.Task[ActInfo]] = []
        stopped = await plan.carry_out(lambda _: stopping.append(asyncio.ensure_future(plan.stop())))
        await asyncio.gather(*stopping)
        assert stopped.state in {ActState.STOPPED, ActState.DONE}
        assert (await plan.carry_out()).done == 5


@pytest.mark.parametrize(
    ("verb", "how", "words"),
    [
        ("destroy", {"state": "held"}, "expected one of cancel, hold"),
        ("cancel", {}, "say which runs are meant"),
        ("retry", {"state": "failed", "force": True}, "force is for cancel"),
        ("retry", {"state": "failed", "from_": "ship"}, "from_ is for fork"),
        ("retry", {"state": "faild"}, "no state of a run"),
        ("retry", {"since": "yesterday"}, "is no time"),
    ],
)
async def test_what_cannot_be_meant_is_refused(verb: str, how: dict[str, object], words: str) -> None:
    """And nothing is written."""
    async with Holdfast("sqlite://:memory:", roles=()) as hf:
        with pytest.raises(InvalidInput, match=words):
            await hf.plan(verb, **how)  # type: ignore[arg-type]
        assert await hf.acts() == []


async def test_what_does_not_exist_says_so() -> None:
    """An unknown workflow, an unknown act, and a plan whose process died while it was made."""
    async with Holdfast("sqlite://:memory:", roles=()) as hf:
        with pytest.raises(UnknownWorkflow):
            await hf.plan("cancel", workflow="nobody.knows")
        act: Act = hf.act("nothing")
        for ask in (act.info, act.carry_out, act.stop):
            with pytest.raises(UnknownAct, match="holdfast acts"):
                await ask()
        plan = await hf.plan("hold", state="running")
        assert plan.preview.sentence == "no run is meant by that"
        with pytest.raises(WrongState, match="a fate is one of"):
            _ = [run async for run in plan.runs("gone")]  # type: ignore[arg-type]
