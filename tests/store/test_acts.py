"""Acts on many runs: what their plans list, who carries them out, and what becomes of each run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.config import DEFAULT
from holdfast.desk.plans import RETRIED, RETRIED_NOW, RETRIED_UNDOS, PlanTally, kind_of
from holdfast.model import CANCEL, ActOptions, ActRow, ActState, ActVerb, Fate, NewSignal, RunState
from holdfast.store.acts import NewAct
from holdfast.store.operations import Hop
from holdfast.store.reads import RunFilter
from holdfast.store.store import Store
from holdfast.supervisor.acts import ActKeeper, Carrier
from tests.store.conftest import Tamper
from tests.store.made import (
    LONG_S,
    SERVED,
    A,
    B,
    begin,
    call,
    child,
    closing,
    new_run,
    number_lane,
    parked,
    running_call,
    start,
    succeeded,
)

ACT = "an-act"


async def failed(store: Store, run_id: str, **more: Any) -> str:
    """Make a run that failed."""
    await begin(store, running_call(1), run=new_run(run_id, **more))
    hop = Hop(run_id, 1, dropped=[1], close=closing(RunState.FAILED, error='{"type": "E", "message": ""}'))
    assert await store.batches.commit(A, [hop]) == ["accepted"]
    return run_id


async def plan(
    store: Store, verb: str, where: RunFilter | None = None, act_id: str = ACT, note: str = "", **how: Any
) -> ActRow:
    """Plan an act as a client does, on all runs if no filter is given."""
    options = ActOptions(**how)
    await store.acts.plan_act(NewAct(act_id, ActVerb(verb), "ann", note, options))
    tally = PlanTally(ActVerb(verb), options)
    found = await store.acts.meant_runs(where or RunFilter(limit=1000))
    runs = [(run.id, str(run.state), run.fence) for run in found if tally.take(run, has_code=True)]
    await store.acts.add_act_runs(act_id, runs)
    planned = await store.acts.finish_plan(act_id, "{}")
    assert planned is not None
    return planned


async def begun(store: Store, act_id: str = ACT, holder: str = "me", lease_s: float = LONG_S) -> int:
    fence = await store.acts.begin_act(act_id, holder, lease_s, LONG_S)
    assert fence is not None
    return fence


async def carry_out(store: Store, fence: int, act_id: str = ACT, limit: int = 100) -> ActRow | None:
    return await store.acts.carry_out(act_id, fence, lease_s=LONG_S, limit=limit, share_s=LONG_S)


async def carried_out(store: Store, verb: str, **more: Any) -> dict[str, tuple[Fate | None, str]]:
    """Plan an act on all runs, and carry it out. Return what became of each run."""
    await plan(store, verb, **more)
    act = await carry_out(store, await begun(store))
    assert act is not None
    assert act.state is ActState.DONE
    return await fates(store)


async def fates(store: Store, act_id: str = ACT) -> dict[str, tuple[Fate | None, str]]:
    return {one.run_id: (one.fate, one.note) for one in await store.acts.act_runs(act_id)}


async def journal(store: Store, run_id: str) -> list[tuple[str, str]]:
    return [(one.verb, one.note) for one in reversed(await store.reads.journal(run_id))]


async def test_a_bulk_retry_starts_a_new_run_for_each_and_journals_it(store: Store) -> None:
    """Each failed run goes on under a new id, the journal of each names the act, and the act is done."""
    for run_id in ("a", "b", "c"):
        await failed(store, run_id)
    assert (await plan(store, "retry", note="mended")).runs == 3
    act = await carry_out(store, await begun(store))
    assert act is not None
    assert (act.state, act.done, act.changed, act.refused, act.holder) == (ActState.DONE, 3, 0, 0, None)
    assert await fates(store) == {one: (Fate.DONE, f"as {one}~2") for one in ("a", "b", "c")}
    assert await journal(store, "a") == [("retry", f"as a~2: mended (act {ACT})")]
    again = await store.reads.run("a~2")
    assert again is not None
    assert (again.state, again.retry_of) == ("pending", "a")


async def test_each_verb_does_to_many_what_it_does_to_one(store: Store) -> None:
    """A run that has not begun is cancelled at once, one that has is asked; runs are held and released; a fork keeps what
    was recorded."""
    await start(store, new_run("new"))
    await parked(store, call(1), run=new_run("begun"))
    assert await carried_out(store, "hold", note="wait") == {
        "begun": (Fate.DONE, "held"),
        "new": (Fate.DONE, "held"),
    }
    row = await store.reads.run("new")
    assert row is not None
    assert (row.state, row.note) == (RunState.HELD, "wait")
    await plan(store, "release", act_id="two")
    await carry_out(store, await begun(store, "two"), "two")
    assert await fates(store, "two") == dict.fromkeys(("begun", "new"), (Fate.DONE, "pending"))
    await plan(store, "fork", act_id="three")
    await carry_out(store, await begun(store, "three"), "three")
    assert (await fates(store, "three"))["begun"] == (Fate.DONE, "as begun-fork-1")
    await plan(store, "cancel", RunFilter(prefix="begun", limit=10), act_id="four")
    await carry_out(store, await begun(store, "four"), "four")
    assert await fates(store, "four") == {
        "begun": (Fate.DONE, "asked to cancel itself"),
        "begun-fork-1": (Fate.DONE, "cancelled"),
    }
    assert [one.name for one in await store.reads.signals("begun")] == [CANCEL]
    assert (await store.reads.run("begun-fork-1")).state is RunState.CANCELLED  # type: ignore[union-attr]


async def test_what_changed_since_the_plan_is_left_alone(store: Store) -> None:
    """A run that another one has claimed, held, ended, retried or asked since is not touched, and the act says so."""
    for run_id in ("claimed", "held", "same", "asked", "gone"):
        await start(store, new_run(run_id))
    await parked(store, call(1), run=new_run("busy"))
    await plan(store, "cancel")
    assert await store.schedulers.claim_runs(A, SERVED, 9, ["claimed"])
    await store.operators.hold("held", "bob", "")
    await store.operators.send_signal(NewSignal("busy", CANCEL, "cancel", b"{}"))
    await store.operators.cancel_run("gone", "bob", "")
    before = {one: await store.reads.run(one) for one in ("claimed", "held", "busy", "gone")}
    act = await carry_out(store, await begun(store))
    assert act is not None
    assert (act.done, act.changed, act.refused) == (2, 4, 0)
    found = await fates(store)
    assert {one for one, (fate, _) in found.items() if fate is Fate.CHANGED} == before.keys()
    assert found["held"][1] == "it is now held, and something has happened to it since"
    assert found["busy"][1] == "it was asked to cancel itself since"
    for run_id, row in before.items():
        assert await store.reads.run(run_id) == row
        assert all(ACT not in note for _, note in await journal(store, run_id))


async def test_a_run_that_was_removed_is_left_alone(store: Store, tamper: Tamper) -> None:
    """Its fate says that it was removed, and the act ends."""
    await failed(store, "a")
    await plan(store, "retry")
    tamper("DELETE FROM runs WHERE id = 'a'")
    act = await carry_out(store, await begun(store))
    assert act is not None
    assert act.state is ActState.DONE
    assert await fates(store) == {"a": (Fate.CHANGED, "it was removed")}


async def test_a_run_that_was_retried_since_is_not_retried_again(store: Store) -> None:
    """The row of a run does not change when it is retried, so the act looks for its retry."""
    await failed(store, "a")
    await plan(store, "retry")
    assert await store.operators.retry_run("a", "bob") == "a~2"
    await carry_out(store, await begun(store))
    assert await fates(store) == {"a": (Fate.CHANGED, "it was retried since, as a~2")}


async def test_a_run_that_refuses_does_not_keep_the_others(store: Store) -> None:
    """The fate of a refused run says why, nothing of it is written, and the next run is acted on."""
    await failed(store, "a")
    await failed(store, "p")
    await begin(store, child(1), run=new_run("z"))
    await plan(store, "fork", start="charge#1")
    await carry_out(store, await begun(store))
    found = await fates(store)
    assert found["a"] == (Fate.DONE, "as a-fork-1")
    assert found["z"][0] is Fate.REFUSED
    assert "has no step 'charge#1'" in found["z"][1]
    assert await journal(store, "z") == []


async def test_a_plan_is_carried_out_in_batches(store: Store) -> None:
    """Each batch acts on at most `limit` runs, by their ids, and counts them. The last one ends the act."""
    for number in range(5):
        await failed(store, f"r{number}")
    await plan(store, "retry")
    fence = await begun(store)
    done = []
    while (act := await carry_out(store, fence, limit=2)) is not None:
        done.append((act.done, act.state))
    assert done == [(2, "running"), (4, "running"), (5, "done")]
    assert all(note for _, note in (await fates(store)).values())


async def test_a_batch_ends_after_its_share_of_time(store: Store) -> None:
    """One run is acted on in any case, so the act makes progress however slow each run is."""
    for number in range(3):
        await failed(store, f"r{number}")
    await plan(store, "retry")
    fence = await begun(store)
    act = await store.acts.carry_out(ACT, fence, lease_s=LONG_S, limit=9, share_s=-1.0)
    assert act is not None
    assert (act.done, act.state) == (1, ActState.RUNNING)


async def test_only_one_can_begin_an_act(store: Store, other: Store) -> None:
    """Two people who begin the same plan at once: one gets it. When it is done, nobody begins it again."""
    await failed(store, "a")
    await plan(store, "retry")
    got = await asyncio.gather(
        store.acts.begin_act(ACT, "me", LONG_S, LONG_S), other.acts.begin_act(ACT, "you", LONG_S, LONG_S)
    )
    (fence,) = [one for one in got if one is not None]
    assert await other.acts.take_act(ACT, "you", LONG_S) is None
    await carry_out(store, fence)
    assert await other.acts.begin_act(ACT, "you", LONG_S, LONG_S) is None
    assert await store.reads.runs(RunFilter(prefix="a~3")) == []


async def test_an_act_whose_lease_ran_out_is_taken_over(store: Store) -> None:
    """The next holder goes on with what is left, and whatever the one before still does is refused."""
    for number in range(4):
        await failed(store, f"r{number}")
    await plan(store, "retry")
    first = await begun(store, lease_s=0.0)
    assert await store.acts.idle_acts(9) == [ACT]
    second = await store.acts.take_act(ACT, "you", LONG_S)
    assert second is not None
    assert second > first
    assert await store.acts.idle_acts(9) == []
    assert await carry_out(store, first) is None
    assert set((await fates(store)).values()) == {(None, "")}
    act = await carry_out(store, second)
    assert act is not None
    assert (act.state, act.done) == (ActState.DONE, 4)


async def test_each_batch_renews_the_lease_of_the_act(store: Store) -> None:
    """Whoever is at work on it keeps it, however long it takes in all."""
    for number in range(3):
        await failed(store, f"r{number}")
    await plan(store, "retry")
    fence = await begun(store, lease_s=0.0)
    assert await store.acts.idle_acts(9) == [ACT]
    await carry_out(store, fence, limit=1)
    assert await store.acts.idle_acts(9) == []
    assert await store.acts.take_act(ACT, "you", LONG_S) is None
    await store.acts.carry_out(ACT, fence, lease_s=0.0, limit=1, share_s=LONG_S)
    assert await store.acts.take_act(ACT, "you", LONG_S) is not None


async def test_a_stopped_act_goes_no_further_and_can_go_on(store: Store) -> None:
    """After `stop`, the batch of whoever had it is refused. Beginning it again does the rest, and nothing twice."""
    for number in range(4):
        await failed(store, f"r{number}")
    await plan(store, "retry")
    fence = await begun(store)
    await carry_out(store, fence, limit=1)
    assert await store.acts.stop_act(ACT, "bob")
    assert not await store.acts.stop_act(ACT, "bob")
    assert await carry_out(store, fence) is None
    assert await store.acts.take_act(ACT, "you", LONG_S) is None
    act = await carry_out(store, await begun(store))
    assert act is not None
    assert (act.state, act.done) == (ActState.DONE, 4)
    assert not await store.acts.stop_act(ACT, "bob")
    assert [one.id for one in await store.reads.runs(RunFilter(prefix="r0"))] == ["r0~2", "r0"]
    notes = [one.note for one in await store.reads.journal(None) if one.run_id is None]
    assert notes == [f"act {ACT} on 4 runs begun", f"act {ACT} stopped", f"act {ACT} on 4 runs begun"]


async def test_a_plan_that_is_not_whole_or_too_old_cannot_be_begun(store: Store) -> None:
    """A process may die while it lists runs. And most runs of an old plan have changed."""
    await failed(store, "a")
    await store.acts.plan_act(NewAct(ACT, ActVerb.RETRY, "ann", "", ActOptions()))
    await store.acts.add_act_runs(ACT, [("a", "failed", 1)])
    assert await store.acts.begin_act(ACT, "me", LONG_S, LONG_S) is None
    await store.acts.finish_plan(ACT, "{}")
    assert await store.acts.add_act_runs(ACT, [("b", "failed", 1)]) == 0
    assert await store.acts.finish_plan(ACT, "{}") is None
    assert await store.acts.begin_act(ACT, "me", LONG_S, 0.0) is None
    assert await store.acts.begin_act(ACT, "me", LONG_S, LONG_S) is not None


async def test_old_acts_are_forgotten_in_small_parts(store: Store, tamper: Tamper) -> None:
    """An act that ended long ago and a plan that nobody began are removed with their runs' rows, a running act and a
    fresh plan are not."""
    for number in range(5):
        await failed(store, f"r{number}")
    for act_id in ("old", "unbegun", "running", "fresh"):
        await plan(store, "retry", act_id=act_id)
    await carry_out(store, await begun(store, "old"), "old")
    await begun(store, "running")
    epoch = await store.leader.lead(A, LONG_S)
    assert epoch is not None
    now = await store.now()
    assert await store.retention.forget_acts(epoch, now - LONG_S, now - LONG_S, 9) == 0
    gone = "ended_at - 7200" if store.url.startswith("sqlite") else "ended_at - interval '2 hours'"
    made = gone.replace("ended_at", "created_at")
    tamper(f"UPDATE acts SET created_at = {made} WHERE id <> 'fresh'")
    tamper(f"UPDATE acts SET ended_at = {gone} WHERE ended_at IS NOT NULL")
    removed = []
    while rows := await store.retention.forget_acts(epoch, now - LONG_S, now - LONG_S, 3):
        removed.append(rows)
    assert removed == [3, 3, 3, 3]
    assert {one.id for one in await store.acts.acts(9)} == {"running", "fresh"}
    assert await store.acts.act_runs("old") == await store.acts.act_runs("unbegun") == []
    assert len(await store.acts.act_runs("running")) == 5
    assert await store.retention.forget_acts(epoch + 1, now, now, 9) == 0


async def test_a_run_that_cannot_be_decided_does_not_stop_the_act(store: Store, tamper: Tamper) -> None:
    """If acting on one run raises what nobody expects, the others are acted on one at a time, and that one is listed
    with the error."""
    for run_id in ("a", "b", "c"):
        await failed(store, run_id)
    await plan(store, "retry")
    tamper("INSERT INTO inherited (run_id, key) VALUES ('b~2', '')")
    carrier = Carrier(store.acts, ACT, await begun(store), DEFAULT, lambda bell: None)
    act = await carrier.batch()
    while act is not None and act.state is ActState.RUNNING:
        act = await carrier.batch()
    assert act is not None
    assert (act.done, act.refused, act.state) == (2, 1, ActState.DONE)
    assert (await fates(store))["b"][0] is Fate.REFUSED


async def test_the_leader_takes_over_an_idle_act_and_ends_it(store: Store) -> None:
    """It leaves acts alone that somebody carries out."""
    for number in range(3):
        await failed(store, f"r{number}")
    await plan(store, "retry")
    await plan(store, "hold", RunFilter(prefix="nothing"), act_id="busy")
    await begun(store, "busy")
    await begun(store, lease_s=0.0)
    keeper = ActKeeper(store.acts, A, DEFAULT, lambda bell: None)
    await keeper.look()
    assert keeper._carrying is not None
    await keeper._carrying
    act = await store.acts.act(ACT)
    assert act is not None
    assert (act.state, act.done) == (ActState.DONE, 3)
    await keeper.look()
    busy = await store.acts.act("busy")
    assert busy is not None
    assert (busy.state, busy.holder) == (ActState.RUNNING, "me")
    await keeper.close()


async def test_meant_runs_say_what_decides(store: Store) -> None:
    """Whether a run has begun, was asked to cancel itself or was retried, and how many of its steps have undos or
    wait."""
    lane = await number_lane(store, "shop.charge", undo="shop.refund")
    await start(store, new_run("new"))
    later = await store.now() + LONG_S
    steps = [running_call(1, lane=lane), call(2, ready_at=later), call(3)]
    await begin(store, *steps, run=new_run("busy"))
    await store.batches.commit(A, [Hop("busy", 1, outcomes=[succeeded(1, 1, 1)])])
    await store.operators.cancel_run("busy", "ann", "")
    await failed(store, "over")
    await store.operators.retry_run("over", "ann")
    found = {one.id: one for one in await store.acts.meant_runs(RunFilter(limit=9))}
    assert not found["new"].is_begun
    assert not found["new"].is_asked
    assert found["new"].is_heard
    busy = found["busy"]
    assert busy.is_begun
    assert busy.is_asked
    assert not busy.is_heard
    assert (busy.undos, busy.waiting, busy.quarantined) == (1, 1, 0)
    assert found["over"].retried_as == "over~2"
    assert found["over~2"].retried_as is None
    assert found["over"].fence == (await store.reads.run("over")).fence  # type: ignore[union-attr]


@pytest.mark.parametrize(("prefix", "ids"), [(None, ()), ("r", ()), (None, tuple(f"r{n}" for n in range(9)))])
async def test_meant_runs_come_in_pages(store: Store, prefix: str | None, ids: tuple[str, ...]) -> None:
    """Page after page lists each run once, by the time, by the beginning of the id, or by ids."""
    for number in range(7):
        await start(store, new_run(f"r{number}"))
    await start(store, new_run("other", namespace="else"))
    where, after, found = RunFilter(prefix=prefix, ids=ids, limit=3, namespace="default"), "", []
    while page := await store.acts.meant_runs(where, after):
        found += [run.id for run in page]
        after = page[-1].id
        if prefix is None and not ids:
            where.before = (page[-1].created_at, after)
    assert sorted(found) == [f"r{number}" for number in range(7)]


async def test_retries_of_open_and_stuck_runs(store: Store) -> None:
    """The kinds of a retry: an ended run goes on under a new id, in an open one the steps that wait are tried at once."""
    later = await store.now() + LONG_S
    await parked(store, call(1, ready_at=later), run=new_run("open"))
    await parked(store, call(1), run=new_run("quiet"))
    await failed(store, "over")
    found = await carried_out(store, "retry")
    assert found == {
        "open": (Fate.DONE, "1 of its steps are tried at once"),
        "over": (Fate.DONE, "as over~2"),
    }
    kinds = {RETRIED, RETRIED_NOW, RETRIED_UNDOS}
    for run in await store.acts.meant_runs(RunFilter(limit=9)):
        assert kind_of(ActVerb.RETRY, ActOptions(), run, has_code=True, has_step=True) not in kinds


async def test_two_acts_on_the_same_runs_at_once_act_on_each_run_once(store: Store, other: Store) -> None:
    """What the one has done counts as changed for the other."""
    for number in range(20):
        await failed(store, f"r{number:02}")
    for act_id in ("one", "two"):
        await plan(store, "retry", act_id=act_id)
    fences = [await begun(store, act_id) for act_id in ("one", "two")]

    async def all_of(where: Store, act_id: str, fence: int) -> None:
        act = await carry_out(where, fence, act_id, limit=3)
        while act is not None and act.state is ActState.RUNNING:
            act = await carry_out(where, fence, act_id, limit=3)

    await asyncio.gather(all_of(store, "one", fences[0]), all_of(other, "two", fences[1]))
    one, two = await store.acts.act("one"), await store.acts.act("two")
    assert one is not None
    assert two is not None
    assert one.done + two.done == 20 == one.changed + two.changed
    assert len(await store.reads.runs(RunFilter(prefix="r", limit=99))) == 40


async def test_a_node_that_leaves_does_not_matter_to_its_act(store: Store) -> None:
    """A holder is any name. Nothing but the lease decides who carries an act out."""
    await failed(store, "a")
    await plan(store, "retry")
    fence = await begun(store, holder=B)
    await store.nodes.retire(B)
    act = await carry_out(store, fence)
    assert act is not None
    assert act.state is ActState.DONE
