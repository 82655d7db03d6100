"""Limits: how much of one is in use is read from the rows that run, so nothing can leak, and it is exact across hosts."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast.adaptation import LimitChange, LimitLook
from holdfast.model import BreakerState, StepState
from holdfast.queues import LimitKey, Queue, QueueKey
from holdfast.store import open_store
from holdfast.store.answers import ClaimedStep
from holdfast.store.database import StoreCall
from holdfast.store.limits import LimitLoad
from holdfast.store.operations import HandBack, RetryStep
from holdfast.store.postgres.verbs import STATEMENTS
from holdfast.store.postgres.walks import StepWalker
from holdfast.store.store import Store
from holdfast.store.verbs import Verb
from holdfast.store.walk import LimitState, Turns, room_of
from tests.store.conftest import run_sql
from tests.store.made import (
    ENVIRONMENT,
    LONG_S,
    A,
    B,
    C,
    begin,
    call,
    new_run,
    number_lane,
    reclaim,
    report_of,
)


async def under(store: Store, *limits: LimitKey, fair: str = "") -> Queue:
    (found,) = await store.queues.number_queues([QueueKey(fair, limits)])
    return found


async def wait(store: Store, where: Queue, number: int) -> str:
    return await begin(store, *(call(n, queue=where) for n in range(1, number + 1)), run=new_run())


async def claim(
    store: Store, limit: int = 100, node: str = A, turns: Turns | None = None
) -> list[ClaimedStep]:
    return await store.agents.claim_steps(node, [1], limit, turns=turns or Turns())


async def used(store: Store, queue: Queue) -> int:
    """Return how much of the first limit of a queue is in use, by the rows."""

    async def read(session: Any) -> Any:
        return await session.rows(Verb.limit_rooms, [queue.limits[0][0]])

    (row,) = await store.database.look(StoreCall("test", (), (), {}), read)
    return int(row[6])


async def test_no_more_begin_than_a_limit_allows(store: Store) -> None:
    """The others wait, and one begins for each that ends."""
    queue = await under(store, LimitKey("stripe", 3))
    await wait(store, queue, 10)
    first = await claim(store)
    assert len(first) == 3
    assert await claim(store) == []
    await store.batches.commit(A, [report_of(first[0])])
    assert len(await claim(store)) == 1


@pytest.mark.parametrize("how", ["report", "retry", "hand back", "reclaim"])
async def test_every_end_of_an_attempt_frees_its_place(store: Store, how: str) -> None:
    """Nothing is counted up or down. A row that no longer runs has no place, whatever became of it."""
    queue = await under(store, LimitKey("stripe", 1))
    await wait(store, queue, 2)
    (taken,) = await claim(store, node=B)
    assert await used(store, queue) == 1
    if how == "report":
        await store.batches.commit(B, [report_of(taken)])
    elif how == "retry":
        await store.batches.commit(B, [RetryStep(taken.run_id, taken.n, taken.fence, LONG_S, "failed", None)])
    elif how == "hand back":
        await store.batches.commit(B, [HandBack(taken.run_id, taken.n, taken.fence)])
    else:
        epoch = await store.leader.lead(A, LONG_S)
        assert epoch is not None
        await reclaim(store, B, epoch, "it is gone")
    assert await used(store, queue) == 0
    assert len(await claim(store)) == 1


async def test_a_full_queue_hides_nobody(store: Store) -> None:
    """However many wait under a full limit, others are found."""
    full = await under(store, LimitKey("full", 1))
    await wait(store, full, 200)
    await claim(store)
    free = await wait(store, await under(store, LimitKey("free", 5)), 5)
    turns = Turns()
    assert {one.run_id for one in await claim(store, turns=turns)} == {free}
    assert turns.is_full


async def test_weights_count(store: Store) -> None:
    """A step of weight 3 takes three places. If there are fewer, it waits, and nobody of its queue passes it."""
    heavy = await under(store, LimitKey("memory", 8, weight=3))
    light = await under(store, LimitKey("memory", 8))
    await wait(store, heavy, 5)
    assert len(await claim(store)) == 2
    assert await used(store, heavy) == 6
    await wait(store, light, 9)
    assert len(await claim(store)) == 2
    assert await used(store, light) == 8


async def test_three_limits_hold_at_once(store: Store) -> None:
    """A step begins only if all of its limits have room. What the earlier ones of a claim took counts for the later."""
    shared = LimitKey("all", 5)
    queues = [
        await under(store, shared, LimitKey(f"customer:{name}", 2), LimitKey("odd", 3), fair=name)
        for name in ("a", "b", "c")
    ]
    for queue in queues:
        await wait(store, queue, 10)
    assert len(await claim(store)) == 3
    assert await used(store, queues[0]) == 3


async def test_a_rate_gives_a_burst_and_then_one_at_a_time(store: Store) -> None:
    """Tokens come evenly. A claim without one says when there is one again."""
    queue = await under(store, LimitKey("mail", 1, per_s=1000.0, burst=4))
    await wait(store, queue, 10)
    turns = Turns()
    assert len(await claim(store, turns=turns)) == 4
    now = await store.now()
    assert await claim(store, turns=turns) == []
    assert turns.again_at == pytest.approx(now + 1000, abs=30)


def test_tokens_of_a_rate() -> None:
    """100 a minute with a burst of 10: ten at once, then one every 0.6 seconds, and never more than ten in store."""
    tat, begun = 0.0, []
    for moment in range(1200):
        now = 1000 + moment / 10
        room = room_of(LimitState("rate", 100, 60.0, 10, tat, 0, now))
        if room.left > 0:
            begun += [now] * room.left
            tat = max(tat, now) + room.left * 0.6
    for at in begun:
        assert sum(at <= one < at + 60 for one in begun) <= 110
    assert sum(1060 <= one < 1120 for one in begun) in (99, 100, 101)


@pytest.mark.parametrize("burst", [1, 2, 7])
def test_a_rate_has_whole_tokens_at_todays_times(burst: int) -> None:
    """However many in however long: a rate that was idle has its burst, one that has spent it has nothing, and then has a
    token at the time it said, also where times since 1970 are rounded."""
    for most in range(1, 3000, 7):
        for per_s in (1.0, 60.0, 3600.0):
            now = 1_790_000_000.123 + most / 97
            state = LimitState("rate", most, per_s, burst, 0.0, 0, now)
            assert room_of(state).left == burst, (most, per_s)
            tat = now + burst * per_s / most
            spent = room_of(state._replace(tat=tat))
            assert spent.left == 0, (most, per_s)
            assert spent.again_at is not None
            assert spent.again_at == pytest.approx(now + per_s / most, abs=1e-6)
            assert room_of(state._replace(tat=tat, now=spent.again_at)).left == 1, (most, per_s)


@pytest.mark.parametrize("number", [3, 10, 100, 1000])
async def test_a_rate_without_a_burst_lets_one_begin(store: Store, number: int) -> None:
    """Ten a second, one at a time: the first begins at once."""
    queue = await under(store, LimitKey("mail", number, per_s=1.0, burst=1))
    await wait(store, queue, 5)
    assert len(await claim(store, limit=1)) == 1


async def test_a_lowered_limit_stops_nobody(store: Store) -> None:
    """What runs goes on. Nothing begins until fewer run than the limit allows."""
    queue = await under(store, LimitKey("stripe", 5))
    await wait(store, queue, 10)
    running = await claim(store)
    await store.limits.set_limit("stripe", 2, "op", "they are slow")
    assert await claim(store) == []
    for one in running[:3]:
        await store.batches.commit(A, [report_of(one)])
    assert await claim(store) == []
    await store.batches.commit(A, [report_of(running[3])])
    assert len(await claim(store)) == 1


async def test_what_an_operator_set_outlives_a_deployment(store: Store) -> None:
    """The newest code is believed about its number, unless an operator has set one."""
    await under(store, LimitKey("stripe", 5))
    await under(store, LimitKey("stripe", 7))
    assert (await store.limits.limit("stripe")).most == 7  # type: ignore[union-attr]
    await store.limits.set_limit("stripe", 2, "op", "")
    await under(store, LimitKey("stripe", 9))
    row = await store.limits.limit("stripe")
    assert row is not None
    assert (row.most, row.declared) == (2, 9)
    await store.limits.set_limit("stripe", None, "op", "")
    row = await store.limits.limit("stripe")
    assert row is not None
    assert (row.most, row.is_set) == (9, False)


async def test_a_limit_says_who_holds_it_and_who_waits(store: Store) -> None:
    """The list has what is in use, and one limit has its holders and waiters, the oldest first."""
    queue = await under(store, LimitKey("stripe", 2))
    run_id = await wait(store, queue, 5)
    await claim(store)
    (row,) = await store.limits.limits(None)
    assert (row.name, row.most, row.used, row.kind) == ("stripe", 2, 2, "limit")
    seen = await store.limits.seen("stripe", 10)
    assert seen is not None
    assert [(one.run_id, one.n, one.weight) for one in seen.holders] == [(run_id, 1, 1), (run_id, 2, 1)]
    assert [one.n for one in seen.waiters] == [3, 4, 5]


async def test_limits_are_exact_between_claims_at_once(store_url: str, store: Store) -> None:
    """Several claim at the same time, over connections of their own, and hand some back. Nobody ever sees more than the
    limit running."""
    queue = await under(store, LimitKey("stripe", 5))
    await wait(store, queue, 60)
    stop = asyncio.Event()

    async def agent(node: str) -> None:
        other = open_store(store_url, ENVIRONMENT)
        await other.open()
        turns = Turns()
        try:
            while not stop.is_set():
                await asyncio.sleep(0.001)  # a claim of SQLite that finds nothing never lets others run
                for one in await other.agents.claim_steps(node, [1], 4, turns=turns):
                    await asyncio.sleep(0)
                    op = HandBack(one.run_id, one.n, one.fence) if one.n % 3 else report_of(one)
                    await other.batches.commit(node, [op])
        finally:
            await other.close()

    agents = [asyncio.create_task(agent(node)) for node in (A, B, C)]
    most = 0
    for _ in range(150):
        most = max(most, await used(store, queue))
        await asyncio.sleep(0.002)
    stop.set()
    await asyncio.gather(*agents)
    assert 1 <= most <= 5
    assert await used(store, queue) == 0


async def test_probes_are_under_limits_too(store: Store) -> None:
    """While a breaker probes, its steps begin as probes, and no more of them than their limit allows."""
    queue = await under(store, LimitKey("stripe", 1))
    lane = await number_lane(store, "shop.charge")
    await begin(store, *(call(n, queue=queue, lane=lane) for n in range(1, 5)))
    await store.gates.force_breaker("shop.charge", BreakerState.OPEN, "op", "")
    await store.gates.reset_breaker("shop.charge", "op", "")
    found = await store.gates.claim_probes(A, "shop.charge", [lane], 10, turns=Turns())
    assert len(found.steps) == 1
    row = json.loads((await store.reads.steps(found.steps[0].run_id))[0].input or b"0")
    assert row == [1]
    assert (await store.reads.steps(found.steps[0].run_id))[0].state is StepState.RUNNING


ADAPTIVE = LimitKey("stripe", 50, least=2)


async def look(store: Store) -> LimitLook:
    (found,) = await store.limits.adaptive_limits(LONG_S, 10)
    return found


async def test_an_adaptive_limit_begins_low_and_claims_read_its_number(store: Store) -> None:
    """A new one begins with the tenth part of its ceiling. What is claimed under it says so."""
    queue = await under(store, ADAPTIVE, LimitKey("plain", 100))
    await wait(store, queue, 20)
    found = await claim(store)
    assert len(found) == 5
    assert {one.adapts for one in found} == {(queue.limits[0][0],)}
    assert {one.adapts for one in await claim_plainly(store)} == {()}


async def claim_plainly(store: Store) -> list[ClaimedStep]:
    await wait(store, await under(store, LimitKey("plain", 100)), 3)
    return await claim(store)


async def test_only_the_leader_moves_it_and_only_from_where_it_was(store: Store) -> None:
    """A move names the number that it was decided from. An old epoch, another number, other code and an operator refuse it."""
    queue = await under(store, ADAPTIVE)
    id_ = queue.limits[0][0]
    assert await store.limits.adaptive_limits(LONG_S, 10) == []
    await store.limits.observe_limits([LimitLoad(id_, 3, 1, 0.5), LimitLoad(id_, 1, 0, 0.25)])
    row = await look(store)
    assert row == LimitLook(id_, "stripe", 5, 2, 50, None, 4, 1, 0.75, 0)
    epoch = await store.leader.lead(A, LONG_S)
    assert epoch is not None
    assert await store.limits.move_limits(epoch + 1, [(row, LimitChange(9, 0.2, "well"))]) == 0
    assert await store.limits.move_limits(epoch, [(row, LimitChange(9, 0.2, "well"))]) == 1
    assert await store.limits.move_limits(epoch, [(row, LimitChange(7, 0.2, "again"))]) == 0
    seen = await store.limits.limit("stripe")
    assert seen is not None
    assert (seen.most, seen.moved, seen.is_adaptive, seen.least) == (9, "well", True, 2)
    assert seen.moved_at is not None
    row = await look(store)
    assert row.usual_s == 0.2
    await store.limits.set_limit("stripe", 1, "op", "")
    assert await store.limits.adaptive_limits(LONG_S, 10) == []
    assert await store.limits.move_limits(epoch, [(row, LimitChange(8, 0.2, "no"))]) == 0
    await store.limits.set_limit("stripe", None, "op", "")
    assert (await look(store)).most == 2  # the floor


async def test_new_code_keeps_the_number_within_its_bounds(store: Store) -> None:
    """A lower ceiling and a higher floor count at once. Code that is not adaptive any more has its own number."""
    queue = await under(store, ADAPTIVE)
    await store.limits.observe_limits([LimitLoad(queue.limits[0][0], 1, 0, 0.1)])
    await under(store, LimitKey("stripe", 4, least=2))
    assert (await look(store)).most == 4
    await under(store, LimitKey("stripe", 60, least=9))
    assert (await look(store)).most == 9
    await under(store, LimitKey("stripe", 60))
    seen = await store.limits.limit("stripe")
    assert seen is not None
    assert (seen.most, seen.is_adaptive) == (60, False)
    await under(store, ADAPTIVE)
    assert (await look(store)).most == 5


async def test_only_limits_of_its_namespace_are_reported(store: Store) -> None:
    """What an agent behind a server reports about another namespace does not count."""
    queue = await under(store, LimitKey("team//stripe", 50, least=1))
    loads = [LimitLoad(queue.limits[0][0], 1, 0, 0.1)]
    await store.limits.observe_limits(loads, "other")
    assert await store.limits.adaptive_limits(LONG_S, 10) == []
    await store.limits.observe_limits(loads, "team")
    assert (await look(store)).ok == 1


AT_ONCE = """
WITH locked AS MATERIALIZED (SELECT u.id, pg_advisory_xact_lock(4870118, u.id) FROM unnest($1::int[]) u(id))
"""
"""Gets the locks in the statement that counts. It sees the rows as they were before it waited."""
WAITS = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


async def _taken_beside_another(store: Store, pg_url: str) -> int:
    """Let a claim come while another one, which takes all places, is about to be committed. Return how many run then."""
    queue = await under(store, LimitKey("stripe", 5))
    await wait(store, queue, 20)
    with psycopg.connect(pg_url) as other, psycopg.connect(pg_url, autocommit=True) as watcher:
        other.execute("SELECT pg_advisory_xact_lock(4870118, id) FROM holdfast.limits")
        other.execute(
            "UPDATE holdfast.steps SET state = 'running', agent = %s, attempt = 1, started_at = now() WHERE n <= 5",
            (A,),
        )
        beside = asyncio.ensure_future(claim(store, 5, B))
        async with asyncio.timeout(60):
            while not beside.done() and not watcher.execute(WAITS).fetchone():  # noqa: ASYNC110  the server's locks
                await asyncio.sleep(0.01)
        other.commit()
        await beside
    await claim(store, 5, B)
    return await used(store, queue)


ON_POSTGRES = pytest.mark.parametrize("store_url", ["postgres"], indirect=True)


@ON_POSTGRES
async def test_a_claim_beside_another_finds_no_room(store: Store, store_url: str) -> None:
    """Who comes while another claim takes the last places gets none, neither then nor afterwards."""
    assert await _taken_beside_another(store, store_url) == 5


@ON_POSTGRES
async def test_a_count_in_the_statement_that_locks_is_found(
    store: Store, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: who waits for the lock in the statement that counts does not see what the other one took."""
    counted: list[Any] = []
    text = STATEMENTS.whole[Verb.limit_rooms].replace(
        "FROM holdfast.limits l WHERE", "FROM holdfast.limits l JOIN locked ON locked.id = l.id WHERE"
    )

    async def lock(self: Any, ids: Sequence[int]) -> set[int]:
        counted[:] = await self._connection.fetch(AT_ONCE + text, list(ids))
        return set(ids)

    async def rooms(self: Any, ids: Sequence[int]) -> Sequence[Any]:
        return counted

    monkeypatch.setattr(StepWalker, "lock", lock)
    monkeypatch.setattr(StepWalker, "rooms", rooms)
    assert await _taken_beside_another(store, store_url) == 10


@ON_POSTGRES
async def test_an_administrators_isolation_does_not_make_a_count_old(
    store: Store, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another claim is committed after this one began and before it has the lock. This one sees what the other one took,
    whatever transactions of this database see by default."""
    queue = await under(store, LimitKey("stripe", 5))
    await wait(store, queue, 20)
    name = urlsplit(store_url).path.lstrip("/")
    real = StepWalker.lock
    with psycopg.connect(store_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(4870118, id) FROM holdfast.limits")
        other.execute(
            "UPDATE holdfast.steps SET state = 'running', agent = %s, attempt = 1, started_at = now() WHERE n > 15",
            (A,),
        )

        async def lock(self: StepWalker, ids: Sequence[int]) -> set[int]:
            other.commit()
            return await real(self, ids)

        run_sql(store_url, f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = 'repeatable read'")
        beside = open_store(store_url, ENVIRONMENT)
        await beside.open()
        monkeypatch.setattr(StepWalker, "lock", lock)
        assert await claim(beside, 5, B) == []
        await beside.close()
    assert await used(store, queue) == 5


@pytest.mark.parametrize("kind", ["limit", "rate"])
@pytest.mark.parametrize("room", [1, 4])
async def test_a_limit_that_several_share_is_shared_by_their_weights(
    store: Store, kind: str, room: int
) -> None:
    """An agent has many free places, and the limit has few: what the limit has goes round by the weights."""
    shared = LimitKey("api", room) if kind == "limit" else LimitKey("api", 1000 * room, per_s=1.0, burst=room)
    await store.queues.set_fair("bolt", 3, "op", "")
    owners = {await wait(store, await under(store, shared, fair=fair), 60): fair for fair in ("acme", "bolt")}
    turns, begun = Turns(), dict.fromkeys(owners.values(), 0)
    async with asyncio.timeout(60):
        while sum(begun.values()) < 40:
            for one in await claim(store, turns=turns):
                begun[owners[one.run_id]] += 1
                await store.batches.commit(A, [report_of(one)])
    assert abs(3 * begun["acme"] - begun["bolt"]) <= 8, begun


async def test_nobody_of_many_waits_for_more_than_his_turn(store: Store) -> None:
    """There are more who share the limit than one look of a claim sees."""
    many, shared = 45, LimitKey("api", 2)
    owners = {
        await wait(store, await under(store, shared, fair=f"customer-{one}"), 5): one for one in range(many)
    }
    turns, begun = Turns(), dict.fromkeys(owners.values(), 0)
    async with asyncio.timeout(60):
        while sum(begun.values()) < 3 * many:
            for one in await claim(store, turns=turns):
                begun[owners[one.run_id]] += 1
                await store.batches.commit(A, [report_of(one)])
    assert max(begun.values()) - min(begun.values()) <= 2, begun


async def test_a_limit_that_several_share_takes_no_places_from_others(store: Store) -> None:
    """Whoever is under no limit gets all the places that the limit leaves."""
    shared = LimitKey("api", 1)
    for fair in ("acme", "bolt"):
        await wait(store, await under(store, shared, fair=fair), 60)
    free = await wait(store, await under(store, fair="coil"), 60)
    turns = Turns()
    for _ in range(2):
        got = await claim(store, 20, turns=turns)
        assert len(got) == 20
        assert sum(one.run_id != free for one in got) == 1
        await store.batches.commit(A, [report_of(one) for one in got])


@pytest.mark.parametrize("room", [1, 3])
@pytest.mark.parametrize("why", ["backs off", "run is held"])
async def test_what_cannot_begin_keeps_no_slots_from_others(store: Store, room: int, why: str) -> None:
    """Two keys share a limit. One of them has only steps that back off, or whose run does not go on. The other one gets all
    slots, at every claim."""
    shared = LimitKey("api", room)
    acme, bolt = [await under(store, shared, fair=fair) for fair in ("acme", "bolt")]
    later = (await store.now()) + LONG_S if why == "backs off" else 1.0
    stopped = await begin(store, *(call(n, queue=acme, ready_at=later) for n in range(1, 9)), run=new_run())
    if why != "backs off":
        await store.operators.hold(stopped, "op", "")
    going = await wait(store, bolt, 40)
    turns = Turns()
    for _ in range(8):
        found = await claim(store, turns=turns)
        assert [one.run_id for one in found] == [going] * room
        await store.batches.commit(A, [report_of(one) for one in found])


async def test_many_that_cannot_begin_keep_no_slots_from_others(store: Store) -> None:
    """However many they are, each claim of a slot finds who can begin. As soon as one of them can, it has its turns again, and
    no more than that."""
    shared, later = LimitKey("api", 1), (await store.now()) + LONG_S
    for number in range(30):
        queue = await under(store, shared, fair=f"customer-{number}")
        await begin(store, call(1, queue=queue, ready_at=later), run=new_run())
    going, turns = await wait(store, await under(store, shared, fair="bolt"), 60), Turns()

    async def go_on(rounds: int) -> list[str]:
        begun = []
        for _ in range(rounds):
            (one,) = await claim(store, turns=turns)
            begun.append(one.run_id)
            await store.batches.commit(A, [report_of(one)])
        return begun

    assert await go_on(10) == [going] * 10
    back = await wait(store, await under(store, shared, fair="customer-7"), 30)
    # Each claim asks one of those that could not begin, so its turn comes after at most as many claims as there are of them.
    found = await go_on(31)
    assert back in found
    assert abs((await go_on(10)).count(back) - 5) <= 1


@pytest.mark.parametrize("number", [12, 450])
async def test_many_full_queues_hide_nobody(store: Store, number: int) -> None:
    """However many limits are full: a claim passes over those that it can look at, and the next one goes on from there. So who is
    behind them begins after as many claims as it takes to look at all of them."""
    keys = [QueueKey(f"customer-{one}", (LimitKey(f"customer:{one}", 1),)) for one in range(number)]
    full = await store.queues.number_queues(keys)
    await begin(store, *(call(n, queue=full[n % number]) for n in range(1, 2 * number + 1)), run=new_run())
    turns, begun = Turns(), 0
    async with asyncio.timeout(60):
        while begun < number:
            begun += len(await claim(store, turns=turns))
    free = await wait(store, await under(store, LimitKey("free", 5)), 5)
    found = [one.run_id for _ in range(1 + number // 200) for one in await claim(store, 3, turns=turns)]
    assert found[:3] == [free] * 3
