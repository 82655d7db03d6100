"""Two transactions at the same time on PostgreSQL leave what one after the other would have left.

The operations are in interleavings.py. The first of two operations stops somewhere: before one of its statements, or
before its commit. The second one runs until it has ended or waits for a lock. Then the first one goes on. The answers
and all rows must be as if one had come after the other, and no deadlock may happen on the way.

`make test` draws some pairs (HOLDFAST_SEED draws others), and `make every` tries all of them. To try one pair alone:

    HOLDFAST_PAIR=claim_runs,hold_awake .venv/bin/pytest tests/store/test_postgres_interleavings.py -k drawn
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

import asyncpg
import psycopg
import pytest

from holdfast.store import open_store
from holdfast.store.answers import Observation
from holdfast.store.operations import HandBack, Hop, Op, RetryStep, Save, Start
from holdfast.store.postgres.verbs import STATEMENTS
from holdfast.store.store import Store
from tests.store import made
from tests.store.interleavings import OPERATIONS, outcome, poisoned, prepare
from tests.store.made import ENVIRONMENT, A, B, new_run, succeeded
from tests.store.stepwise import (
    LOCKS,
    PATIENCE_S,
    Course,
    Operation,
    Party,
    Seen,
    World,
    added,
    differences,
)

SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
DRAWN = 200
"""How many interleavings `make test` draws, in addition to those of each claim with itself and of known pairs."""
DEADLOCK_S = 0.05
"""After how long the server looks for a deadlock in these tests. Nobody else waits for locks here."""
RECLAIMED = "a node that is reclaimed at this moment still gets what it asks for, and the next pass reclaims that, too"
NEVER_AT_ONCE = "both are the leader's, and a leader does one thing after another"
NEXT_LEADER = "each kind of rows is forgotten in a transaction of its own, and the next leader goes on"
AS_IT_IS = "several runs or steps are claimed one after another, each as it is then"
APART = {
    **{(name, "reclaim_owner"): RECLAIMED for name in OPERATIONS if name.startswith(("claim_", "walk_"))},
    ("hop_begins", "reclaim_owner"): RECLAIMED,
    ("claim_runs", "reconcile"): "a node does not give up what it is just claiming",
    ("claim_two_runs", "reconcile"): "the same",
    ("claim_steps", "reconcile"): "the same",
    ("walk_runs", "reconcile"): "the same",
    ("walk_steps", "reconcile"): "the same",
    (
        "claim_runs",
        "reclaim_dead_node",
    ): "runs that have something to deliver are claimed first, then pending ones",
    ("claim_runs", "retire_dead_node"): "the same",
    ("walk_runs", "reclaim_dead_node"): "the same",
    ("walk_runs", "retire_dead_node"): "the same",
    ("claim_twins", "retries"): "the claim is answered with the step as it is then",
    ("claim_twins", "begin_turns"): "the same",
    (
        "walk_steps",
        "claim_remote",
    ): "a walk takes the highest priority first, then the next one: two may divide them",
    **{
        (
            first,
            other,
        ): "a claim leaves out what is locked, takes others instead, and the locked ones the next time"
        for first in ("reseal_runs", "reseal_steps")
        for other in OPERATIONS
        if other.startswith(("claim_", "walk_"))
    },
    (
        "prune",
        "prune_a_part",
    ): "each leaves out the runs that the other has locked, and the next pass looks at them again",
    ("prune_a_part", "prune"): "the same",
    ("prune_a_part", "prune_a_part"): "the same",
    ("log_alerts", "log_alerts"): NEVER_AT_ONCE,
    ("reconcile_schedules", "reconcile_schedules"): NEVER_AT_ONCE,
    ("escalate_ask", "escalate_ask"): NEVER_AT_ONCE,
    ("forget_events", "forget_events"): NEVER_AT_ONCE,
    ("forget_occasions", "forget_occasions"): NEVER_AT_ONCE,
    **{
        (name, other): NEXT_LEADER
        for name in ("forget_events", "forget_occasions")
        for other in ("succeed_leader", "resign")
    },
    **{
        (name, other): AS_IT_IS
        for name in OPERATIONS
        if name.startswith(("claim_", "walk_"))
        for other in ("reseal_runs", "reseal_steps")
    },
    (
        "reseal_runs",
        "prune",
    ): "a pass of prune leaves what is locked, and these runs need one pass after the other",
    ("prune", "answer_joins"): "each says how many rows it has removed itself",
    ("add_durations", "fade_durations"): "how long steps take is an estimate",
}
"""Pairs, each with the reason, that may leave something else than one after the other would. When the second operation
has been executed again, the doctor must find nothing."""
DIVIDED = {
    (
        first,
        other,
    ): "runs that have something to deliver are claimed first, then pending ones: two may divide them"
    for first in ("claim_runs", "walk_runs")
    for other in ("claim_runs", "walk_runs", "claim_two_runs", "claim_certain_runs")
} | {
    (first, other): "a walk takes the highest priority first, then the next one: two may divide them"
    for first in ("walk_steps", "walk_steps_of_runs")
    for other in ("claim_steps", "walk_steps", "claim_steps_of_runs", "walk_steps_of_runs", "claim_one_step")
}
"""Pairs, each with the reason, of which each may get a part of what there is. Still nothing is claimed twice."""
KNOWN = [
    ("hop_delivers", "reclaim_owner"),
    ("hop_delivers", "reconcile"),
    ("starts_old_ids", "prune"),
    ("close_signals", "prune"),
    ("sweep_twins", "prune"),
    ("hop_starts_children", "prune"),
    ("report_late", "prune"),
    ("register", "forget_workflows"),
    ("register", "register"),
    ("hop_takes_over_child", "hop_undoes_child"),
    ("hop_undoes_child", "hop_takes_over_child"),
    ("hop_undoes_child", "hop_closes_child"),
    ("agent_writes_everything", "hop_drops"),
    ("agent_writes_everything", "reclaim_owner"),
    ("hands_back", "reclaim_owner"),
    ("retire", "reclaim_owner"),
    ("retire", "stick_quarantined"),
    ("reclaim_dead_node", "renew_dead_node"),
    ("reclaim_owner", "report_alone"),
    ("stick_quarantined", "release_quarantined"),
    ("release_quarantined", "stick_quarantined"),
    ("win_twin", "report_of_slow_step"),
    ("log_alerts", "succeed_leader"),
    ("retry_run", "retry_run"),
    ("answer_ask", "answer_ask"),
    ("answer_ask", "hop_withdraws"),
    ("hop_withdraws", "answer_ask"),
    ("answer_ask_of_two", "delegate_ask"),
    ("answer_ask_of_two", "escalate_ask"),
    ("expire_ask", "hop_withdraws"),
    ("emit_last_part", "emit_other_part"),
    ("emit_other_part", "emit_last_part"),
    ("emit_last_part", "judge_occasions"),
    ("judge_occasions", "emit_last_part"),
    ("judge_occasions", "reconcile_composed"),
    ("register_with_composed", "reconcile_composed"),
    ("reconcile_composed", "register_with_composed"),
    ("register_with_triggers", "reconcile_triggers"),
    ("reconcile_triggers", "register_with_triggers"),
    ("claim_runs", "emit"),
    ("retry_run", "reseal_runs"),
]
"""Pairs that went wrong once, or that a lock exists for. `make test` always tries them."""
UNCOVERED = {
    "record_migration": "only a migration writes this, and it has the lock of the schema",
}
"""Statements that write or lock and that no operation executes, with the reason."""


@pytest.fixture
async def world(pg_url: str) -> AsyncIterator[World]:
    """The prepared database, and two nodes with connections of their own."""
    with psycopg.connect(pg_url, autocommit=True) as session:
        name = session.info.dbname
        session.execute(
            f"ALTER DATABASE \"{name}\" SET deadlock_timeout = '{round(DEADLOCK_S * 1000)}ms'".encode()
        )
    admin: asyncpg.Connection[Any] = await asyncpg.connect(pg_url)
    store = open_store(pg_url, ENVIRONMENT)
    await store.open()
    await prepare(store, admin)
    await store.close()
    parties = Party(A, pg_url), Party(B, pg_url)
    for party in parties:
        await party.store.open()
    world = World(admin, parties)
    await world.save()
    yield world
    for party in parties:
        await party.store.close()
    await admin.execute("DROP SCHEMA saved CASCADE")
    await admin.close()
    with psycopg.connect(pg_url, autocommit=True) as session:
        session.execute(f'ALTER DATABASE "{name}" RESET deadlock_timeout'.encode())


class Orders:
    """What two operations leave, one after the other. Each order is tried only when it is asked for."""

    def __init__(self, world: World, first: Operation, second: Operation) -> None:
        self._world, self._first, self._second = world, first, second
        self._left: dict[tuple[bool, int | None], Seen] = {}

    async def left(self, turned: bool, again: int | None) -> Seen:
        """Return what is left. `turned`: the second operation came first. `again`: which of the two (0 or 1) is executed
        once more at the end."""
        if (turned, again) not in self._left:
            self._left[turned, again] = await self._world.one_after_the_other(
                self._first, self._second, turned=turned, again=again
            )
        return self._left[turned, again]

    async def leave(self, seen: Seen, *, again: int | None = None, divided: bool = False) -> bool:
        """True if one of the two orders leaves this. `divided`: it does not matter which of the two nodes has what."""
        for turned in (False, True):
            left = await self.left(turned, again)
            if seen == left or (divided and seen.as_of_one_node() == left.as_of_one_node()):
                return True
        return False

    async def differ(self, seen: Seen, *, again: int | None) -> str:
        """Return how this differs from what each order leaves."""
        lines = []
        for turned, order in enumerate(("the first, then the second", "the second, then the first")):
            lines += [f" beside {order}:", *differences(seen, await self.left(bool(turned), again))]
        return "\n".join(lines)


async def problems(world: World, first: Operation, second: Operation, stops: Iterable[int]) -> list[str]:
    """Return what is wrong when the first operation stops at each of these places and the second one runs meanwhile."""
    orders = Orders(world, first, second)
    pair = (first.name, second.name)
    found: list[str] = []
    for stop in stops:
        course, other, one, two = await world.interleaved(first, second, stop)
        place = " ".join(course.places[stop : stop + 1])
        where = f"HOLDFAST_PAIR={first.name},{second.name}, stopped at {stop} before {place}"
        if course.deadlocks + other.deadlocks:
            found.append(f"{where}: a deadlock\n  first: {course.places}\n  second: {other.places}")
        seen, broken = await world.seen(one, two), set()
        seen_again, again = seen, None
        if second.skips or pair in APART:
            more = added(two, await world.parties[1].answer(second, Course()))
            seen_again, again = await world.seen(one, more), 1 if second.skips else None
            broken = await made.broken(world.parties[0].store)
        elif first.skips:
            more = added(one, await world.parties[0].answer(first, Course()))
            seen_again, again = await world.seen(more, two), 0
        if broken:
            found.append(f"{where}: the doctor finds {broken}")
        if (
            await orders.leave(seen, divided=pair in DIVIDED)
            or (again is not None and await orders.leave(seen_again, again=again, divided=pair in DIVIDED))
            or pair in APART
        ):
            continue
        found.append(f"{where}: neither order leaves this\n{await orders.differ(seen_again, again=again)}")
    return found


class Tables:
    """The tables that an operation names in its statements, and those of them in which it writes or locks rows."""

    def __init__(self, course: Course, rows: set[str]) -> None:
        statements = [STATEMENTS[verb] for verb in course.verbs]
        self.rows = rows
        """The prepared rows that it locks."""
        self.places = len(course.places)
        self.named = _tables(statements)
        self.locked = _tables(text for text in statements if LOCKS.search(text))

    def collides(self, other: Self) -> bool:
        """True if both operations lock the same prepared row."""
        return bool(self.rows & other.rows)

    def meets(self, other: Self) -> bool:
        """True if one of two operations writes or locks rows in a table that the other one reads."""
        return bool(self.locked & other.named or self.named & other.locked)


def _tables(statements: Iterable[str]) -> set[str]:
    """Return the tables in these statements, without those to which rows are only added."""
    named = {table for text in statements for table in re.findall(r"holdfast\.(\w+)", text)}
    return named - {"journal", "failures", "attempts"}


@pytest.fixture
async def tables(world: World) -> dict[str, Tables]:
    """The tables that each operation reads and writes."""
    found = {}
    for name, operation in OPERATIONS.items():
        course, _ = await world.alone(operation)
        found[name] = Tables(course, await world.locked(operation, len(course.places) - 1))
    return found


async def test_every_statement_that_locks_is_tried_beside_all_others(world: World) -> None:
    """Each statement that writes or locks rows is executed by an operation. So is each function in the database that
    reads or writes tables, because a statement that calls it is."""
    executed: set[str] = set()
    for operation in OPERATIONS.values():
        for party in (0, 1):
            course, _ = await world.alone(operation, party)
            executed |= course.verbs
    wanted = {verb for verb, text in STATEMENTS.items() if LOCKS.search(text)}
    assert wanted - executed == UNCOVERED.keys()
    functions = await world.admin.fetch(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace AND prosrc LIKE '%holdfast.%'"
    )
    assert functions
    for (name,) in functions:
        assert [verb for verb in executed if f"holdfast.{name}(" in STATEMENTS[verb]], name


async def test_drawn_operations_at_the_same_time_leave_what_one_after_the_other_would(
    world: World, tables: dict[str, Tables]
) -> None:
    """Pairs that lock the same row are drawn, and each is stopped at one place. Each claim beside itself, and the known
    pairs, are stopped at all places."""
    if given := os.environ.get("HOLDFAST_PAIR"):
        first, second = given.split(",")
        drawn = [(first, second, range(1, tables[first].places))]
    else:
        dice = random.Random(SEED)
        always = [*KNOWN, *((name, name) for name, one in OPERATIONS.items() if one.skips)]
        drawn = [(first, second, range(1, tables[first].places)) for first, second in always]
        pairs = [(one, two) for one in tables for two in tables if tables[one].collides(tables[two])]
        for first, second in dice.sample(pairs, DRAWN):
            stop = dice.randrange(1, tables[first].places)
            drawn.append((first, second, range(stop, stop + 1)))
    found: list[str] = []
    for first, second, stops in drawn:
        found += await problems(world, OPERATIONS[first], OPERATIONS[second], stops)
    assert not found, "\n".join(found[:5])


@pytest.mark.parametrize("name", OPERATIONS)
async def test_all_operations_at_the_same_time_leave_what_one_after_the_other_would(
    world: World, tables: dict[str, Tables], name: str
) -> None:
    """One operation is stopped at each of its places, beside each of those that it could meet."""
    found: list[str] = []
    for other, operation in OPERATIONS.items():
        if tables[name].meets(tables[other]):
            found += await problems(world, OPERATIONS[name], operation, range(1, tables[name].places))
    assert not found, "\n".join(found[:5])


# --- one order of locks ---------------------------------------------------------------------------------------------


Act = Callable[[Store, str], Awaitable[Any]]


class Contested(NamedTuple):
    """Two operations that write the same two rows and name them in opposite orders. `held` are statements that lock
    the first row, and the second."""

    acts: tuple[Act, Act]
    held: tuple[str, str]
    tries: int = 1
    """How often it is tried. Who waits for a row that is locked gets it in turn. Who waits to insert a row does not, so
    that there would be a deadlock only every other time."""


def _batches(
    one: Callable[[], Sequence[Op]], two: Callable[[], Sequence[Op]], *held: str, tries: int = 1
) -> Contested:
    first, second = held
    return Contested(
        (lambda store, _: store.batches.commit(A, one()), lambda store, _: store.batches.commit(A, two())),
        (first, second),
        tries,
    )


def _opposite(make: Callable[[str, int], Op], run_id: str = "busy") -> Contested:
    """Return two batches that write two steps of a run in the same way."""
    return _batches(
        lambda: [make(run_id, 1), make(run_id, 2)],
        lambda: [make(run_id, 2), make(run_id, 1)],
        *(f"SELECT FROM holdfast.steps WHERE run_id = '{run_id}' AND n = {n} FOR UPDATE" for n in (1, 2)),
    )


def _held(table: str, first: str, second: str) -> tuple[str, str]:
    """Return statements that lock the rows with these names."""
    locks = f"SELECT FROM holdfast.{table} WHERE name = '{{}}' FOR UPDATE"
    return locks.format(first), locks.format(second)


async def _observe(store: Store, *names: str) -> None:
    await store.gates.observe([Observation(name, 1, 0, None) for name in names], 1.0)


async def _count(store: Store, *names: str) -> None:
    await store.durations.add_durations([(name, 1, 1.0) for name in names])


_STEPS = [
    f"SELECT FROM holdfast.steps WHERE run_id = '{one}' AND n = 1 FOR UPDATE" for one in ("busy", "slow")
]
_RUNS = [f"SELECT FROM holdfast.runs WHERE id = '{one}' FOR UPDATE" for one in ("open", "parent")]
_NEW = [
    "INSERT INTO holdfast.runs (id, workflow, version, state, input, digest)"
    f" VALUES ('{one}', '', '', 'pending', '', '')"
    for one in ("new-1", "new-2")
]
CONTESTED = {
    "hops": _batches(
        lambda: [Hop("open", 1, progress="x"), Hop("parent", 1, progress="x")],
        lambda: [Hop("parent", 1, progress="x"), Hop("open", 1, progress="x")],
        *_RUNS,
    ),
    "outcomes": _opposite(outcome),
    "retries": _opposite(lambda run_id, n: RetryStep(run_id, n, 1, 1.0, "failed", None)),
    "hand backs": _opposite(lambda run_id, n: HandBack(run_id, n, 1)),
    "checkpoints": _opposite(lambda run_id, n: Save(run_id, n, 1, b"here")),
    "quarantine": _opposite(lambda run_id, n: poisoned(run_id, n, 1)),
    "drops": _batches(
        lambda: [Hop("open", 1, dropped=[2, 1])],
        lambda: [outcome("open", 1), outcome("open", 2)],
        *(f"SELECT FROM holdfast.steps WHERE run_id = 'open' AND n = {n} FOR UPDATE" for n in (1, 2)),
    ),
    "outcomes within and beside a hop": _batches(
        lambda: [outcome("busy", 1), Hop("slow", 1, outcomes=[succeeded(1, 1, 1)])],
        lambda: [outcome("slow", 1), outcome("busy", 1)],
        *_STEPS,
    ),
    "outcomes and checkpoints": _batches(
        lambda: [outcome("busy", 1), Save("slow", 1, 1, b"here")],
        lambda: [outcome("slow", 1), Save("busy", 1, 1, b"here")],
        *_STEPS,
    ),
    "several statements and one": _batches(
        lambda: [outcome("busy", 1), Save("slow", 1, 1, b"here")],
        lambda: [outcome("slow", 1), outcome("busy", 1)],
        *_STEPS,
    ),
    "starts": _batches(
        lambda: [Start(new_run("new-1")), Start(new_run("new-2"))],
        lambda: [Start(new_run("new-2")), Start(new_run("new-1"))],
        *_NEW,
        tries=30,
    ),
    "children": _batches(
        lambda: [
            Hop("open", 1, children=[new_run(f"new-{n}", parent_id="open", parent_n=n) for n in (1, 2)])
        ],
        lambda: [
            Hop("parent", 1, children=[new_run(f"new-{n}", parent_id="parent", parent_n=n) for n in (2, 1)])
        ],
        *_NEW,
        tries=30,
    ),
    "breakers": Contested(
        (
            lambda store, _: _observe(store, "bank", "shop.slow"),
            lambda store, _: _observe(store, "shop.slow", "bank"),
        ),
        _held("breakers", "bank", "shop.slow"),
    ),
    "durations": Contested(
        (
            lambda store, _: _count(store, "step:shop.charge", "step:shop.old"),
            lambda store, _: _count(store, "step:shop.old", "step:shop.charge"),
        ),
        _held("durations", "step:shop.charge", "step:shop.old"),
    ),
}


async def test_rows_are_locked_in_one_order_whatever_order_they_are_given_in(
    world: World, pg_url: str
) -> None:
    """Two operations name the same two rows in opposite orders, and others have locked both rows. First the second row
    is unlocked, then the first one. If each operation locked the rows in the order in which it names them, the second
    operation would now have the second row, the first operation the first row, and each would wait for the other."""
    holders = [await asyncpg.connect(pg_url) for _ in range(2)]
    deadlocks = {
        kind: sum([await _contest(world, holders, contested) for _ in range(contested.tries)])
        for kind, contested in CONTESTED.items()
    }
    for holder in holders:
        await holder.close()
    assert deadlocks == dict.fromkeys(CONTESTED, 0)


async def _contest(world: World, holders: Sequence[asyncpg.Connection[Any]], contested: Contested) -> int:
    """Execute two contested operations. Return how many deadlocks there were."""
    await world.restore()
    kept = [holder.transaction() for holder in holders]
    for holder, transaction, statement in zip(holders, kept, contested.held, strict=True):
        await transaction.start()
        await holder.execute(statement)
    courses, tasks = [Course(), Course()], []
    async with asyncio.timeout(PATIENCE_S):
        for party, course, act in zip(world.parties, courses, contested.acts, strict=True):
            tasks.append(asyncio.create_task(party.answer(Operation("", act), course)))
            while not await world.waits_for(course.pid):
                pass
        await kept[1].rollback()
        while await world.waits_for(courses[1].pid) <= {holders[1].get_server_pid()}:
            pass
        await kept[0].rollback()
        await asyncio.gather(*tasks)
    return sum(course.deadlocks for course in courses)
