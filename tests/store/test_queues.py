"""Claims go from queue to queue: nobody's backlog delays anybody else. This is decided when something is claimed."""

from collections import Counter
from typing import Any

import pytest

from holdfast.model import RunState
from holdfast.queues import Queue, QueueKey
from holdfast.store.answers import Answer, ClaimedRun, ClaimedStep
from holdfast.store.store import Store
from holdfast.store.walk import Turns
from tests.store.made import SERVED, A, B, begin, call, new_run, number_lane, report_of, start
from tests.store.made import step as step_of

LANE = "shop.charge"


async def queue_of(store: Store, fair: str = "") -> Queue:
    (found,) = await store.queues.number_queues([QueueKey(fair)])
    return found


async def wait(store: Store, where: Queue | None, number: int, lane: int = 1, **more: Any) -> str:
    """Let so many steps wait in a queue. Return their run."""
    return await begin(
        store, *(call(n, lane=lane, queue=where, **more) for n in range(1, number + 1)), run=new_run()
    )


async def claim(
    store: Store, turns: Turns, limit: int, lanes: tuple[int, ...] = (1,), node: str = A
) -> list[ClaimedStep]:
    return await store.agents.claim_steps(node, list(lanes), limit, turns=turns)


async def claim_runs(store: Store, turns: Turns, limit: int) -> list[ClaimedRun]:
    return await store.schedulers.claim_runs(A, SERVED, limit, turns=turns)


async def test_the_same_key_is_the_same_queue(store: Store) -> None:
    """A queue is made once. Its number is above those that are reserved."""
    first, other = await queue_of(store, "acme"), await queue_of(store, "other")
    assert first.number > 15
    assert (await queue_of(store, "acme")).number == first.number != other.number
    assert await store.queues.known_queues([QueueKey("acme"), QueueKey("nobody")]) == [first, Queue()]


async def test_a_flood_of_one_queue_does_not_delay_another(store: Store) -> None:
    """However many wait in a queue, the next claim takes its share from another one."""
    flood, other = await queue_of(store, "flood"), await queue_of(store, "other")
    await wait(store, flood, 300)
    late = await wait(store, other, 10)
    turns = Turns()
    took = [one.run_id for _ in range(4) for one in await claim(store, turns, 5)]
    assert took.count(late) == 10
    assert len(took) == 20


@pytest.mark.parametrize("places", [1, 3, 7])
async def test_weights_are_shares(store: Store, places: int) -> None:
    """While all wait, each queue begins as many steps as its weight says, however few places a claim has."""
    light, heavy = await queue_of(store, "light"), await queue_of(store, "heavy")
    await store.queues.set_fair("heavy", 3, "op", "")
    one, three = await wait(store, light, 60), await wait(store, heavy, 60)
    turns, took = Turns(), Counter[str]()
    while sum(took.values()) < 40:
        took.update(found.run_id for found in await claim(store, turns, places))
    total = sum(took.values())
    assert abs(took[three] - total * 3 / 4) <= 3
    assert took[one] + took[three] == total


async def test_a_changed_weight_counts_at_the_next_claim(store: Store) -> None:
    """What waits already has no place in any order, so a new weight is in force at once."""
    light, heavy = await queue_of(store, "light"), await queue_of(store, "heavy")
    await wait(store, light, 60)
    three = await wait(store, heavy, 60)
    turns = Turns()
    before = Counter(one.run_id for one in await claim(store, turns, 20))
    await store.queues.set_fair("heavy", 9, "op", "")
    after = Counter(one.run_id for one in await claim(store, turns, 20))
    assert (before[three], after[three]) == (10, 18)


async def test_a_walk_goes_round_all_queues(store: Store) -> None:
    """With a thousand queues, nobody waits for longer than one round: as many claims as it takes to see them all."""
    number, places = 1000, 20
    queues = await store.queues.number_queues([QueueKey(f"k{one}") for one in range(number)])
    await begin(store, *(call(n, queue=queues[n % number]) for n in range(1, 3 * number + 1)))
    turns = Turns()
    for _ in range(2):
        round_ = [one.key for _ in range(number // places) for one in await claim(store, turns, places)]
        assert len({int(key.removeprefix("charge#")) % number for key in round_}) == number


async def test_queue_0_is_one_of_the_queues(store: Store) -> None:
    """What has no fair key gets its share like everybody else, and no more."""
    other = await queue_of(store, "other")
    plain, fair = await wait(store, None, 40), await wait(store, other, 40)
    took = Counter(one.run_id for one in await claim(store, Turns(), 20))
    assert took == {plain: 10, fair: 10}


async def test_without_turns_only_queue_0_is_claimed(store: Store) -> None:
    """A claim of those who know no queues takes nothing from them."""
    await wait(store, await queue_of(store, "other"), 3)
    plain = await wait(store, None, 2)
    found = await store.agents.claim_steps(A, [1], 10)
    assert {one.run_id for one in found} == {plain}
    assert len(found) == 2


async def test_lanes_go_round_too(store: Store) -> None:
    """An old backlog in one namespace's lane does not hide another's."""
    mine, theirs = await number_lane(store, LANE), await number_lane(store, f"acme//{LANE}")
    await wait(store, None, 50, lane=mine)
    late = await wait(store, None, 5, lane=theirs)
    took = Counter(one.run_id for one in await claim(store, Turns(), 10, (mine, theirs)))
    assert took[late] == 5


async def test_the_highest_priority_goes_first(store: Store) -> None:
    """Fairness is within a priority."""
    first, second = await queue_of(store, "a"), await queue_of(store, "b")
    low, high = await wait(store, first, 5), await wait(store, second, 5, priority=9)
    turns = Turns()
    assert {one.run_id for one in await claim(store, turns, 5)} == {high}
    assert {one.run_id for one in await claim(store, turns, 5)} == {low}


async def test_what_has_waited_long_passes_higher_priorities(store: Store) -> None:
    """A claim for those who have waited long takes from below the highest priority, and only what has waited long."""
    low = await wait(store, None, 3, ready_at=1.0)
    await wait(store, None, 3)
    await wait(store, None, 9, priority=9)
    turns = Turns()
    turns.age_s = 60.0
    assert {one.run_id for one in await claim(store, turns, 5)} == {low}
    turns.age_s = 60.0
    assert await claim(store, turns, 5) == []


async def test_a_step_that_backs_off_hides_nobody(store: Store) -> None:
    """A queue whose steps are not due yet is passed over."""
    sleeping = await queue_of(store, "sleeping")
    later = (await store.now()) + 900
    await wait(store, sleeping, 5, ready_at=later)
    awake = await wait(store, await queue_of(store, "awake"), 2)
    assert {one.run_id for one in await claim(store, Turns(), 10)} == {awake}
    assert await store.agents.next_ready([1]) == pytest.approx(900, abs=60)


async def test_a_node_that_works_on_one_run_takes_its_steps_alone(store: Store) -> None:
    """Such a node walks in the steps of its runs."""
    where = await queue_of(store, "acme")
    mine = await wait(store, where, 3)
    await wait(store, where, 30)
    found = await store.agents.claim_steps(A, [1], 10, runs=[mine], turns=Turns())
    assert [one.run_id for one in found] == [mine] * 3


async def test_pending_runs_are_claimed_fairly(store: Store) -> None:
    """The same walk claims runs."""
    flood, other = await queue_of(store, "flood"), await queue_of(store, "other")
    for number in range(30):
        await start(store, new_run(f"flood-{number}", fair="flood", queue=flood))
    for number in range(3):
        await start(store, new_run(f"other-{number}", fair="other", queue=other))
    found = await claim_runs(store, Turns(), 6)
    assert sorted(one.run.id for one in found if one.run.fair == "other") == ["other-0", "other-1", "other-2"]
    assert len(found) == 6
    assert {one.run.state for one in found} == {RunState.RUNNING}
    assert await store.schedulers.claim_runs(A, SERVED, 10) == []


async def test_two_claims_share_what_waits(store: Store) -> None:
    """Nothing is claimed twice, and each has its own turns."""
    where = await queue_of(store, "acme")
    await wait(store, where, 20)
    first, second = await claim(store, Turns(), 12), await claim(store, Turns(), 12, node=B)
    refs = [(one.run_id, one.n) for one in (*first, *second)]
    assert len(refs) == len(set(refs)) == 20


async def test_a_step_with_a_queue_ends_like_any_other(store: Store) -> None:
    """Its row keeps its queue, and its outcome is recorded."""
    where = await queue_of(store, "acme")
    run_id = await wait(store, where, 1)
    (taken,) = await claim(store, Turns(), 1)
    assert await store.batches.commit(A, [report_of(taken)]) == [Answer.ACCEPTED]
    row = await step_of(store, run_id)
    assert (row.queue, row.state) == (where.number, "succeeded")


async def test_fair_keys_are_listed_by_namespace(store: Store) -> None:
    """The list has keys that have work or a weight, and their weights."""
    await queue_of(store, "acme")
    await queue_of(store, "team//other")
    await store.queues.set_fair("loud", 7, "op", "they pay")
    assert [(one.name, one.weight) for one in await store.queues.fairs()] == [
        ("acme", 1),
        ("loud", 7),
        ("team//other", 1),
    ]
    assert [one.name for one in await store.queues.fairs("team")] == ["team//other"]
    assert [one.name for one in await store.queues.fairs("default", "acme")] == ["loud"]
