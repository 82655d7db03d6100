"""Asks in the store: each person answers once, the last one who is needed ends the step, and nothing else does."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from holdfast import codec
from holdfast.errors import Forbidden, UnknownAsk, WrongState
from holdfast.model import AskState, NewAsk, StepRow, StepState
from holdfast.questions import Answerer, AskPlan
from holdfast.store import open_store
from holdfast.store.asks import GivenAnswer, SeenAsk
from holdfast.store.operations import Hop
from holdfast.store.store import Store
from tests.store.conftest import Tamper
from tests.store.made import ENVIRONMENT, A, asked, asks_people, closing

FINANCE = frozenset({"team:finance"})


def given(person: str, value: bytes = b"true", teams: frozenset[str] = FINANCE) -> GivenAnswer:
    return GivenAnswer(Answerer(f"person:{person}", teams), value, "", person)


async def one(store: Store, **more: Any) -> tuple[str, NewAsk]:
    """Let a run ask. Return its id, and what it asks."""
    ask = asked(**more)
    return await asks_people(store, ask), ask


async def step_of(store: Store, run_id: str) -> StepRow:
    (step,) = await store.reads.steps(run_id)
    return step


async def seen(store: Store, ask: NewAsk) -> SeenAsk:
    found = await store.asks.ask(ask.id)
    assert found is not None
    return found


async def healthy(store: Store) -> None:
    assert [row for row in await store.reads.doctor() if row[2]] == []


@pytest.fixture
async def epoch(store: Store) -> int:
    led = await store.leader.lead("leader", 600.0)
    assert led is not None
    return led


async def test_the_last_answer_that_was_needed_ends_the_step(store: Store) -> None:
    """Until then the step waits, and afterwards the answers are its result."""
    run, ask = await one(store, quorum=2, plan='{"many":true}')
    taken = await store.asks.answer(ask.id, given("anna"))
    assert (taken.is_new, taken.seen.row.state) == (True, AskState.OPEN)
    assert (await step_of(store, run)).state is StepState.WAITING
    await healthy(store)
    taken = await store.asks.answer(ask.id, given("bob", b"false"))
    assert taken.seen.row.state is AskState.ANSWERED
    step = await step_of(store, run)
    assert (step.state, step.fence) == (StepState.SUCCEEDED, 1)
    values = [(each["by"], each["value"]) for each in json.loads(step.output or b"")]
    assert values == [("person:anna", True), ("person:bob", False)]
    journal = await store.reads.journal(run)
    assert [(entry.verb, entry.actor) for entry in journal] == [("answer", "bob"), ("answer", "anna")]
    assert journal[0].note == f"ask {ask.id}: person:bob answered for team:finance, 2 of 2"
    await healthy(store)


async def test_who_is_asked_by_name_answers_for_themselves(store: Store) -> None:
    """Also if a team of theirs is asked, too. The journal says so."""
    run, ask = await one(store, who=("team:finance", "person:anna"))
    await store.asks.answer(ask.id, given("anna"))
    (entry,) = await store.reads.journal(run)
    assert entry.note == f"ask {ask.id}: person:anna answered, 1 of 1"


async def test_one_person_is_one_answer(store: Store) -> None:
    """The same answer again is the same one, also after the end. A second mind is refused, and counts as nothing."""
    _, ask = await one(store, quorum=2)
    await store.asks.answer(ask.id, given("anna"))
    assert not (await store.asks.answer(ask.id, given("anna", b" true "))).is_new
    with pytest.raises(WrongState, match="anna has answered"):
        await store.asks.answer(ask.id, given("anna", b"false"))
    assert (await seen(store, ask)).row.state is AskState.OPEN
    await store.asks.answer(ask.id, given("bob"))
    assert not (await store.asks.answer(ask.id, given("anna"))).is_new


async def test_late_answers_are_refused_and_say_who_was_first(store: Store) -> None:
    """Also the answer to a question that the run gave up, and to one that is unknown."""
    _, ask = await one(store)
    await store.asks.answer(ask.id, given("anna"))
    with pytest.raises(WrongState, match="person:anna came first"):
        await store.asks.answer(ask.id, given("bob"))
    run, other = await one(store)
    await store.batches.commit(A, [Hop(run, 1, dropped=[1], withdrawn=[1])])
    with pytest.raises(WrongState, match="withdrawn"):
        await store.asks.answer(other.id, given("bob"))
    assert (await seen(store, other)).row.state is AskState.WITHDRAWN
    with pytest.raises(UnknownAsk):
        await store.asks.answer("nobody", given("bob"))
    await healthy(store)


async def test_a_run_that_ends_withdraws_what_it_asks(store: Store) -> None:
    """In the same commit, so that nobody can answer an ended run."""
    run, ask = await one(store)
    await store.batches.commit(A, [Hop(run, 1, dropped=[1], withdrawn=[1], close=closing())])
    assert (await seen(store, ask)).row.state is AskState.WITHDRAWN
    assert await store.asks.inbox(["team:finance"], None) == []
    with pytest.raises(WrongState, match="withdrawn"):
        await store.asks.answer(ask.id, given("anna"))
    await healthy(store)


async def test_who_must_not_answer_and_who_is_not_asked(store: Store) -> None:
    """Four eyes hold for the members of a team, and for administrators. A stranger is not asked."""
    _, ask = await one(store, not_by='["person:anna", "team:interns"]')
    for person, teams in (("anna", FINANCE), ("ivo", FINANCE | {"team:interns"})):
        with pytest.raises(Forbidden, match="somebody else"):
            await store.asks.answer(ask.id, given(person, teams=teams))
    with pytest.raises(Forbidden, match="not asked"):
        await store.asks.answer(ask.id, given("bob", teams=frozenset({"team:sales"})))
    admin = GivenAnswer(Answerer("person:anna", frozenset(), anyone=True), b"true", "", "anna")
    with pytest.raises(Forbidden):
        await store.asks.answer(ask.id, admin)
    assert (await store.asks.answer(ask.id, given("bob"))).seen.row.state is AskState.ANSWERED


async def test_a_place_is_handed_over_and_whoever_had_it_cannot_answer(store: Store) -> None:
    """A member of a team hands over their own place, and the team keeps its own."""
    _, ask = await one(store, not_by='["person:eva"]')
    anna = Answerer("person:anna", FINANCE)
    found = await store.asks.delegate(ask.id, anna, "person:dan", note="away", actor="anna")
    assert [(each.who, each.handed_to) for each in found.people] == [
        ("team:finance", None), ("person:anna", "person:dan"), ("person:dan", None),
    ]  # fmt: skip
    with pytest.raises(WrongState, match="handed this over to person:dan"):
        await store.asks.answer(ask.id, given("anna"))
    dan = Answerer("person:dan")
    with pytest.raises(Forbidden, match="eva must not"):
        await store.asks.delegate(ask.id, dan, "person:eva", note="", actor="dan")
    with pytest.raises(WrongState, match="asked this already"):
        await store.asks.delegate(ask.id, dan, "team:finance", note="", actor="dan")
    place, hops = dan, 1
    while hops < 5:
        to = f"person:p{hops}"
        await store.asks.delegate(ask.id, place, to, note="", actor="x")
        place, hops = Answerer(to), hops + 1
    with pytest.raises(WrongState, match="handed over 5 times"):
        await store.asks.delegate(ask.id, place, "person:last", note="", actor="x")
    taken = await store.asks.answer(ask.id, GivenAnswer(place, b"true", "", "x"))
    assert taken.seen.row.state is AskState.ANSWERED


async def test_inboxes_are_by_person_and_team(store: Store) -> None:
    """The oldest first. What is answered or handed over is in no inbox."""
    _, first = await one(store, who=("person:anna", "team:finance"))
    _, second = await one(store, who=("team:finance",), namespace="acme")
    _, third = await one(store, who=("person:bob",), quorum=2)

    async def inbox(*who: str, namespace: str | None = None) -> list[str]:
        return [each.row.id for each in await store.asks.inbox(who, namespace)]

    assert await inbox("person:anna", "team:finance") == [first.id, second.id]
    assert await inbox("team:finance", namespace="acme") == [second.id]
    assert [each.row.id for each in await store.asks.open_asks(None)] == [first.id, second.id, third.id]
    after = (await seen(store, first)).row
    assert [each.row.id for each in await store.asks.open_asks(None, (after.asked_at, after.id), 1)] == [
        second.id
    ]
    await store.asks.answer(third.id, given("bob"))
    assert await inbox("person:bob") == []
    await store.asks.answer(first.id, given("anna"))
    assert await inbox("person:anna", "team:finance") == [second.id]
    assert [each.row.id for each in await store.asks.ended_asks(None)] == [first.id]


def plan(**fields: Any) -> str:
    return msgspec.json.encode(AskPlan(**fields)).decode()


async def test_an_expired_question_fails_its_step_once(store: Store, epoch: int, tamper: Tamper) -> None:
    """An answer that comes after the time is refused, whether or not the leader has looked. A deposed leader does
    nothing."""
    run, ask = await one(store, timeout_s=3600.0, next_s=3600.0, plan=plan(timeout_s=3600.0))
    assert await store.asks.due_asks(10) == []
    back = "- 7200.0" if store.url.startswith("sqlite") else "- interval '2 hours'"
    tamper(
        f"UPDATE asks SET asked_at = asked_at {back}, expires_at = expires_at {back}, next_at = next_at {back}"
    )
    with pytest.raises(WrongState, match="too late"):
        await store.asks.answer(ask.id, given("anna"))
    assert [row.id for row in await store.asks.due_asks(10)] == [ask.id]
    assert await store.asks.mind_ask(epoch + 1, ask.id) == 0
    assert await store.asks.mind_ask(epoch, ask.id) == 1
    assert await store.asks.mind_ask(epoch, ask.id) == 0
    step = await step_of(store, run)
    assert step.state is StepState.FAILED
    assert isinstance(codec.decode_error(step.error or ""), TimeoutError)
    assert (await seen(store, ask)).row.state is AskState.EXPIRED
    assert await store.asks.next_ask() is None
    await healthy(store)


async def test_it_escalates_to_others_once(store: Store, epoch: int, tamper: Tamper) -> None:
    """It adds people and removes nobody. Whoever must not answer is not added."""
    escalate = ((60.0, "person:cfo"), (60.0, "person:eva"), (9e6, "person:ceo"))
    _, ask = await one(store, next_s=0.0, plan=plan(escalate=escalate), not_by='["person:eva"]')
    back = "- 7200.0" if store.url.startswith("sqlite") else "- interval '2 hours'"
    tamper(f"UPDATE asks SET asked_at = asked_at {back}, next_at = next_at {back}")
    await store.asks.mind_ask(epoch, ask.id)
    found = await seen(store, ask)
    assert [each.who for each in found.people] == ["team:finance", "person:cfo"]
    assert found.row.next_at == pytest.approx(found.row.asked_at + 9e6)
    await store.asks.mind_ask(epoch, ask.id)
    assert len((await seen(store, ask)).people) == 2


async def test_two_people_at_once_are_exactly_two(store_url: str) -> None:
    """Twenty people answer a question that wants three, over four connections: three answers are taken."""
    stores = [open_store(store_url, ENVIRONMENT) for _ in range(4)]
    for store in stores:
        await store.open()
    try:
        await stores[0].nodes.register(A, host="h", pid=1, roles="", offers="{}", capacity=0, lease_s=600.0)
        _, ask = await one(stores[0], quorum=3)

        async def answer(number: int) -> str:
            try:
                await stores[number % 4].asks.answer(ask.id, given(f"p{number}"))
            except WrongState:
                return "late"
            return "taken"

        outcomes = await asyncio.gather(*(answer(number) for number in range(20)))
        assert sorted(outcomes) == ["late"] * 17 + ["taken"] * 3
        await healthy(stores[0])
    finally:
        for store in stores:
            await store.close()
