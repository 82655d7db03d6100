"""The leader asks once in a pass what there is to do. Whatever its other looks would find, this look finds, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest
from msgspec.structs import asdict

from holdfast.model import EVENT_PREFIX, NewSchedule, NewSignal, StepKind, StepState
from holdfast.store.answers import Duties, Observation
from holdfast.store.operations import NewStep, Start
from holdfast.store.store import Store
from holdfast.times import Plan
from tests.store.conftest import Tamper
from tests.store.made import (
    LONG_S,
    A,
    asked,
    asks_people,
    begin,
    call,
    calls_back,
    new_run,
    running_call,
    wait,
)

WINDOW_S = 30.0


async def found(store: Store) -> Duties:
    return await store.leader.duties(2.0, WINDOW_S)


async def overdue(store: Store, tamper: Tamper) -> None:
    await begin(store, running_call(1, timeout_s=-60.0))


async def schedule_at(store: Store, tamper: Tamper) -> None:
    plan = msgspec.json.encode(Plan("1h")).decode()
    await store.schedules.create_schedule(NewSchedule("nightly", "w", "1", b"{}", b"d", plan), "ann")


async def ask_at(store: Store, tamper: Tamper) -> None:
    await asks_people(store, asked(next_s=3600.0))


async def callback_at(store: Store, tamper: Tamper) -> None:
    await calls_back(store, expires_s=LONG_S)


async def signals(store: Store, tamper: Tamper) -> None:
    run_id = await begin(store, wait(1))
    await store.operators.send_signal(NewSignal(run_id, "note", "k", b"1"))


async def promises(store: Store, tamper: Tamper) -> None:
    await store.batches.commit(A, [Start(new_run("r", due_in_s=60.0))])


async def breakers(store: Store, tamper: Tamper) -> None:
    await store.gates.observe([Observation("shop", 0, 1, "down")], WINDOW_S)


async def waits(store: Store, tamper: Tamper) -> None:
    await begin(store, NewStep(1, "wait", StepKind.SIGNAL, f"{EVENT_PREFIX}paid", 0, StepState.WAITING))


def rows(text: str) -> Callable[[Store, Tamper], Awaitable[None]]:
    """Return what makes rows that other tests make by what the product does. `NOW` is the store's time."""

    async def make(store: Store, tamper: Tamper) -> None:
        is_sqlite = store.url.startswith("sqlite")
        now = str(await store.now()) if is_sqlite else "clock_timestamp()"
        tamper(text.replace("NOW", now).replace("YES", "1" if is_sqlite else "true"))

    return make


MAKERS: dict[str, Callable[[Store, Tamper], Awaitable[None]]] = {
    "overdue": overdue,
    "schedule_at": schedule_at,
    "ask_at": ask_at,
    "callback_at": callback_at,
    "signals": signals,
    "promises": promises,
    "part_at": rows(
        "INSERT INTO composed_times (name, part, plan, cursor, next_at) VALUES ('t', 'p', '{}', 1.0, 2.0)"
    ),
    "breakers": breakers,
    "waits": waits,
    "acts": rows(
        "INSERT INTO acts (id, verb, state, holder, lease_until, actor, created_at) "
        "VALUES ('a', 'hold', 'running', 'n', NOW, 'ann', NOW)"
    ),
    "quarantine": rows(
        "INSERT INTO quarantine (run_id, n, fingerprint, step, error, place, at) VALUES ('r', 1, 'f', 's', 'e', 'p', NOW)"
    ),
    "failures": rows("INSERT INTO failures (run_id, n) VALUES ('r', 0)"),
    "twins": rows(
        "INSERT INTO twins (run_id, n, state, step_fence, lane, made_at) VALUES ('r', 1, 'ready', 1, 1, NOW)"
    ),
    "limits": rows(
        "INSERT INTO limits (name, kind, declared, most, adaptive, changed_at) VALUES ('l', 'limit', 5, 5, YES, NOW)"
    ),
    "declared": rows("INSERT INTO declared (origin, digest, body, first_seen) VALUES ('o', 'd', '[]', NOW)"),
}


async def test_a_store_that_nobody_uses_has_nothing_to_do(store: Store) -> None:
    """Nor has one whose runs only wait for agents."""
    await begin(store, call(1), running_call(2, timeout_s=LONG_S))
    seen = asdict(await found(store))
    assert seen.pop("now") == pytest.approx(await store.now(), abs=60)
    assert {name: value for name, value in seen.items() if value} == {}


@pytest.mark.parametrize("name", sorted(MAKERS))
async def test_what_there_is_to_do_is_found(store: Store, tamper: Tamper, name: str) -> None:
    """Each thing is seen under its name, and under no other."""
    await MAKERS[name](store, tamper)
    seen = asdict(await found(store))
    del seen["now"]
    assert {key for key, value in seen.items() if value} == {name}
