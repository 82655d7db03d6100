"""Many steps: shares over thousands of them, a thousand keys, and floods: a hundred thousand of one key, and then ten of
another. Rows are inserted in bulk, so that this is quick."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from holdfast.queues import LimitKey, QueueKey
from holdfast.store.database import StoreCall
from holdfast.store.store import Store
from holdfast.store.walk import Turns
from tests.store.made import SERVED, A, B, begin, call, new_run, start

FLOOD, LATE, PASSED = 100_000, 10, 500
KEYS, EACH, ROUNDS = 1_000, 6, 4
STEPS = """
INSERT INTO {schema}steps (run_id, n, key, kind, name, lane, state, priority, ready_at, issued_at, input, digest, queue, attempts_max)
SELECT run_id, {n}, 'flood#' || {n}, kind, name, lane, 'ready', priority, ready_at, issued_at, input, digest, queue, attempts_max
FROM {schema}steps, {numbers} WHERE run_id = 'flood' AND n = 1"""
RUNS = """
INSERT INTO {schema}runs (id, workflow, version, state, input, digest, queue, fair, priority, created_at)
SELECT 'flood-' || {n}, workflow, version, 'pending', input, digest, queue, fair, priority, created_at
FROM {schema}runs, {numbers} WHERE id = 'flood'"""


async def multiply(store: Store, text: str) -> None:
    """Make as many rows as a flood has, like the one that there is."""
    if store.url.startswith("sqlite"):
        numbers = f"(WITH RECURSIVE g (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM g WHERE i < {FLOOD}) SELECT i FROM g) g"
        statement = text.format(schema="", n="g.i", numbers=numbers)

        async def insert(session: Any) -> None:
            session._connection.execute(statement)

    else:
        statement = text.format(schema="holdfast.", n="g", numbers=f"generate_series(2, {FLOOD}) g")

        async def insert(session: Any) -> None:
            await session._connection.execute(statement)

    await store.database.write(StoreCall("flood", (), (), {}), insert)


async def queue_of(store: Store, fair: str, *limits: LimitKey) -> Any:
    (found,) = await store.queues.number_queues([QueueKey(fair, limits)])
    return found


async def test_ten_steps_begin_before_500_more_of_a_flood(store: Store) -> None:
    """However many wait, each claim takes its share from the other key."""
    await begin(store, call(1, queue=await queue_of(store, "flood")), run=new_run("flood"))
    await multiply(store, STEPS)
    turns, took = Turns(), Counter[str]()
    for _ in range(3):  # the flood has been at work for a while
        took.update(one.run_id for one in await store.agents.claim_steps(A, [1], 20, turns=turns))
    assert took == {"flood": 60}
    late = await queue_of(store, "late")
    await begin(store, *(call(n, queue=late) for n in range(1, LATE + 1)), run=new_run("late"))
    took.clear()
    while took["late"] < LATE:
        took.update(one.run_id for one in await store.agents.claim_steps(A, [1], 20, turns=turns))
        assert took["flood"] < PASSED
    assert took["flood"] <= LATE + 20


async def test_ten_runs_begin_before_500_more_of_a_flood(store: Store) -> None:
    """The same for runs."""
    await start(store, new_run("flood", fair="flood", queue=await queue_of(store, "flood")))
    await multiply(store, RUNS)
    turns, took = Turns(), Counter[str | None]()
    for _ in range(3):
        found = await store.schedulers.claim_runs(A, SERVED, 20, turns=turns)
        took.update(one.run.fair for one in found)
    assert took == {"flood": 60}
    late = await queue_of(store, "late")
    for number in range(LATE):
        await start(store, new_run(f"late-{number}", fair="late", queue=late))
    took.clear()
    while took["late"] < LATE:
        found = await store.schedulers.claim_runs(A, SERVED, 20, turns=turns)
        took.update(one.run.fair for one in found)
        assert took["flood"] < PASSED
    assert took["flood"] <= LATE + 20


async def test_weights_hold_within_a_twentieth_over_thousands_of_steps(store: Store) -> None:
    """Of 10,000 steps of two keys with the weights 1 and 3, three quarters are of the second one, within 5 %, whatever number
    of places each claim has."""
    light, heavy = await queue_of(store, "light"), await queue_of(store, "heavy")
    await store.queues.set_fair("heavy", 3, "op", "")
    for number in range(10):
        await begin(store, *(call(n, queue=light) for n in range(1, 501)), run=new_run(f"light-{number}"))
        await begin(store, *(call(n, queue=heavy) for n in range(1, 1001)), run=new_run(f"heavy-{number}"))
    turns, took, places = Turns(), Counter[str](), [1, 3, 7, 20, 50, 100]
    while sum(took.values()) < 10_000:
        found = await store.agents.claim_steps(A, [1], places[sum(took.values()) % 6], turns=turns)
        took.update(one.run_id.partition("-")[0] for one in found)
    share = took["heavy"] / sum(took.values())
    assert abs(share - 0.75) <= 0.75 * 0.05


@pytest.mark.parametrize("agents", [1, 3])
async def test_nobody_of_a_thousand_keys_waits_for_more_than_three_rounds(store: Store, agents: int) -> None:
    """An agent's round is as many begins as there are keys. While all of them wait, no agent makes more than three rounds between
    two begins of a key, whatever number of places each claim has, and also if several agents go round side by side."""
    queues = await store.queues.number_queues([QueueKey(f"customer-{one}", ()) for one in range(KEYS)])
    steps = [call(n, queue=queues[n % KEYS]) for n in range(KEYS * EACH * agents)]
    for first in range(0, len(steps), KEYS):
        await begin(store, *steps[first : first + KEYS], run=new_run())
    turns, places = [Turns() for _ in range(agents)], [20, 7, 1, 100]
    begun, last, longest = 0, dict.fromkeys(range(KEYS), 0), 0
    claims = 0
    while begun < ROUNDS * KEYS * agents:
        who, count = claims % agents, places[claims // agents % len(places)]
        claims += 1
        for one in await store.agents.claim_steps((A, B)[who % 2], [1], count, turns=turns[who]):
            begun += 1
            longest = max(longest, begun - last[one.n % KEYS])
            last[one.n % KEYS] = begun
    longest = max(longest, *(begun - at for at in last.values()))
    assert longest <= 3 * KEYS * agents
