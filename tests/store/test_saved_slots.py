"""What takes several slots of a limit at once is reached beside what takes one each: slots are saved up for it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from holdfast.model import RunState
from holdfast.queues import LimitKey, Queue, QueueKey
from holdfast.store.answers import ClaimedStep
from holdfast.store.operations import Hop
from holdfast.store.postgres import walks as postgres_walks
from holdfast.store.sqlite import walks as sqlite_walks
from holdfast.store.store import Store
from holdfast.store.walk import Turns
from tests.store.conftest import Tamper
from tests.store.made import SERVED, A, begin, call, closing, new_run, number_lane, report_of, start

MOST = 8
LIGHT, HEAVY = LimitKey("memory", MOST), LimitKey("memory", MOST, weight=3)
LONG_AGO = 1.0
"""What is ready since then has waited for longer than it takes until slots are saved up."""
OVER = "UPDATE limits SET saved_until = 0, rests_until = 0"
"""As if the time had passed for which slots are saved up, or none are."""


async def under(store: Store, *limits: LimitKey, fair: str = "") -> Queue:
    (found,) = await store.queues.number_queues([QueueKey(fair, limits)])
    return found


async def patient(store: Store, where: Queue, number: int = 1, lane: int = 1, **more: Any) -> str:
    """Let so many steps wait that have waited for long. Return their run."""
    steps = [call(n, lane=lane, queue=where, ready_at=LONG_AGO, **more) for n in range(1, number + 1)]
    return await begin(store, *steps, run=new_run())


class Crowd:
    """Light steps, of which more wait than can begin, and one ends after the other."""

    def __init__(self, store: Store, lanes: tuple[int, ...] = (1,)) -> None:
        self._store, self._lanes = store, lanes
        self.turns = Turns()
        self.working: list[ClaimedStep] = []
        self.run = ""

    async def fill(self, where: Queue, number: int = 150, **more: Any) -> None:
        """Let light steps wait, and as many begin as there are slots."""
        self.run = await begin(
            self._store, *(call(n, queue=where, **more) for n in range(1, number)), run=new_run()
        )
        await self.claim()

    async def claim(self, lanes: tuple[int, ...] | None = None) -> Counter[str]:
        """Claim once. Return of which runs something began."""
        found = await self._store.agents.claim_steps(A, list(lanes or self._lanes), 100, turns=self.turns)
        self.working += found
        return Counter(one.run_id for one in found)

    async def go_on(self, rounds: int) -> Counter[str]:
        """Let so many end, the oldest first, with a claim after each. Return of which runs something began."""
        begun = Counter[str]()
        for _ in range(rounds):
            if self.working:
                await self._store.batches.commit(A, [report_of(self.working.pop(0))])
            begun.update(await self.claim())
        return begun


async def test_a_heavy_step_is_reached_beside_light_ones(store: Store) -> None:
    """Light steps wait all the time, and would take each slot that becomes free. What becomes free is saved up for the heavy one
    that has waited for long, until it has enough. Then the light ones go on, although more heavy ones wait."""
    crowd = Crowd(store)
    await crowd.fill(await under(store, LIGHT))
    heavy = await patient(store, await under(store, HEAVY), 5)
    assert await crowd.claim() == {}
    assert await crowd.go_on(2) == {}
    assert await crowd.go_on(1) == {heavy: 1}
    assert (await crowd.go_on(30))[crowd.run] >= 20


async def test_heavy_steps_are_reached_again_and_again(store: Store, tamper: Tamper) -> None:
    """After a while slots are saved up for the next one."""
    crowd = Crowd(store)
    await crowd.fill(await under(store, LIGHT))
    heavy = await patient(store, await under(store, HEAVY), 3)
    begun = Counter[str]()
    for _ in range(3):
        begun += await crowd.go_on(12)
        tamper(OVER)
    assert begun[heavy] == 3
    assert begun[crowd.run] > 10


async def test_slots_are_not_saved_up_at_once(store: Store) -> None:
    """What has waited for a moment takes no slots from others."""
    crowd = Crowd(store)
    await crowd.fill(await under(store, LIGHT))
    await begin(store, call(1, queue=await under(store, HEAVY)), run=new_run())
    assert await crowd.go_on(20) == {crowd.run: 20}


async def test_agents_that_do_not_serve_the_heavy_step_leave_its_slots(store: Store) -> None:
    """Whoever sees it saves the slots up for it, and all others under the limit see that."""
    lane, other = await number_lane(store, "shop.render"), await number_lane(store, "shop.charge")
    crowd = Crowd(store, (other,))
    await crowd.fill(await under(store, LIGHT), lane=other)
    heavy = await patient(store, await under(store, HEAVY), lane=lane)
    assert await Crowd(store, (lane,)).claim() == {}
    assert await crowd.go_on(3) == {}
    assert await Crowd(store, (lane,)).claim() == {heavy: 1}
    assert await crowd.go_on(5) == {crowd.run: 5}


async def test_slots_of_what_is_gone_are_free_again(store: Store, tamper: Tamper) -> None:
    """Nobody says any more that they are saved up. So that is over after a while."""
    crowd = Crowd(store)
    await crowd.fill(await under(store, LIGHT))
    heavy = await patient(store, await under(store, HEAVY))
    assert await crowd.claim() == {}
    assert await crowd.go_on(2) == {}
    await store.batches.commit(A, [Hop(heavy, 1, close=closing(RunState.FAILED))])
    assert await crowd.go_on(1) == {}
    tamper(OVER)
    assert (await crowd.claim())[crowd.run] == 3


async def test_nothing_is_saved_up_for_what_can_never_begin(store: Store) -> None:
    """A heavy step takes more slots than the limit has, since an operator lowered it. The others go on."""
    crowd = Crowd(store)
    await crowd.fill(await under(store, LIGHT))
    await patient(store, await under(store, HEAVY))
    await store.limits.set_limit("memory", 2, "op", "")
    begun = await crowd.go_on(20)
    assert begun == {crowd.run: 20 - (MOST - 2)}


async def test_nothing_is_saved_up_for_what_waits_for_something_else(store: Store) -> None:
    """A heavy step has no token of its rate. Slots would not help it."""
    crowd, rate = Crowd(store), LimitKey("mail", 1, per_s=1000.0, burst=1)
    await crowd.fill(await under(store, LIGHT))
    spent = await patient(store, await under(store, rate))
    assert await crowd.claim() == {spent: 1}
    crowd.working.pop()
    await patient(store, await under(store, HEAVY, rate))
    assert await crowd.go_on(20) == {crowd.run: 20}


async def test_two_that_need_slots_of_two_limits_never_wait_for_each_other(
    store: Store, tamper: Tamper
) -> None:
    """Slots are saved up for one of them, of both limits."""
    crowd = Crowd(store)
    both = [LimitKey("memory", MOST, weight=3), LimitKey("disk", 2, weight=2)]
    await crowd.fill(await under(store, LIGHT))
    first = await patient(store, await under(store, *both, fair="one"))
    second = await patient(store, await under(store, *both, fair="two"))
    begun = Counter[str]()
    for _ in range(4):
        begun += await crowd.go_on(10)
        tamper(OVER)
    assert begun[first] == begun[second] == 1


async def test_heavy_queues_have_their_turns(store: Store, tamper: Tamper) -> None:
    """One that always has more to do does not keep the slots from another one."""
    crowd = Crowd(store)
    await crowd.fill(await under(store, LIGHT))
    busy = await patient(store, await under(store, HEAVY), 20)
    other = await patient(store, await under(store, LimitKey("memory", MOST, weight=5)), 2)
    begun = Counter[str]()
    for _ in range(4):
        begun += await crowd.go_on(10)
        tamper(OVER)
    assert begun[other] == 2
    assert begun[busy] >= 2


async def test_a_heavy_step_does_not_stop_a_higher_priority(store: Store) -> None:
    """Slots are saved up within the highest priority. Below it, only a claim for what has waited very long does that."""
    crowd = Crowd(store)
    await crowd.fill(await under(store, LIGHT), priority=5)
    heavy = await patient(store, await under(store, HEAVY))
    assert await crowd.go_on(10) == {crowd.run: 10}
    with crowd.turns.for_the_aged(60.0):
        assert await crowd.claim() == {}
    assert await crowd.go_on(3) == {heavy: 1}


async def test_a_heavy_run_is_reached_beside_light_ones(store: Store, tamper: Tamper) -> None:
    """The same for runs that wait."""
    light, heavy = await under(store, LIGHT), await under(store, HEAVY)
    for number in range(60):
        await start(store, new_run(f"light-{number}", queue=light))
    turns = Turns()
    working = await store.schedulers.claim_runs(A, SERVED, 100, turns=turns)
    assert len(working) == MOST
    await start(store, new_run("heavy", queue=heavy))
    ago = "1.0" if store.url.startswith("sqlite") else "'epoch'"
    tamper(f"UPDATE runs SET created_at = {ago} WHERE id = 'heavy'")
    assert await store.schedulers.claim_runs(A, SERVED, 100, turns=turns) == []
    begun = list[str]()
    for one in working[:5]:
        await store.batches.commit(A, [Hop(one.run.id, one.run.fence, close=closing())])
        begun += [found.run.id for found in await store.schedulers.claim_runs(A, SERVED, 100, turns=turns)]
    assert begun[0] == "heavy"


@pytest.mark.parametrize("walks", [sqlite_walks, postgres_walks])
async def test_without_weights_nothing_is_asked(
    store: Store, walks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims under limits of which nothing takes several slots ask nothing and write nothing for this."""

    def never(*_: object) -> None:
        raise AssertionError("a claim asked about slots that are saved up")

    for walker in (walks.StepWalker, walks.RunWalker):
        monkeypatch.setattr(walker, "wait_long", never)
        monkeypatch.setattr(walker, "save_slots", never)
    crowd = Crowd(store)
    await crowd.fill(await under(store, LIGHT), ready_at=LONG_AGO)
    assert await crowd.go_on(20) == {crowd.run: 20}
