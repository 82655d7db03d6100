"""Callbacks: the result of a call comes from another system, once, by an address that a step handed on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from holdfast import Holdfast, RunFailed
from holdfast.errors import Gone, InvalidInput, UnknownCallback
from holdfast.model import RunState, StepKind, StepState
from holdfast.wire import answers
from holdfast.wire.requests import CallbackError, CallbackResult
from tests.roles import callback_flows as flows
from tests.roles.callback_flows import Paid
from tests.roles.conftest import FAST
from tests.roles.crash import kill

URL = "https://holdfast.example"
ALERTS = {"public_url": f"{URL}/"}


def token(address: str) -> str:
    head, _, last = address.rpartition("/")
    assert head == f"{URL}/v1/callbacks"
    return last


async def handed(run_id: str, number: int = 1) -> str:
    """Return the address that a run's step handed on."""
    async with asyncio.timeout(60):
        while len(flows.HANDED[run_id]) < number:  # noqa: ASYNC110  a step gives no event
            await asyncio.sleep(0.01)
    return flows.HANDED[run_id][number - 1]


async def post(hf: Holdfast, address: str, output: bytes = b'{"receipt":"r-1"}') -> answers.CalledBack:
    desk = hf.desk.callbacks
    return await desk.answer_at(await desk.demand(token(address)), CallbackResult(output=Raw(output)))


async def rows(hf: Holdfast, run_id: str) -> dict[str, Any]:
    return {row.key: row for row in await hf.store.reads.steps(run_id)}


async def state_of(hf: Holdfast, run_id: str, key: str, *states: StepState) -> Any:
    async with asyncio.timeout(60):
        while (row := (await rows(hf, run_id)).get(key)) is None or row.state not in states:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return row


@pytest.fixture(autouse=True)
def nothing_is_left() -> None:
    for kept in (flows.HANDED, flows.KEYS, flows.UNDONE, flows.GATES, flows.FAILS):
        kept.clear()
    flows.GO = asyncio.Event()


async def test_the_result_comes_by_the_address_once(store_url: str) -> None:
    """The first answer counts. The same one again is a duplicate, and another one is refused."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        run = await hf.start(flows.pays.using(id="once"), "tok")
        address = await handed("once")
        await state_of(hf, "once", "request:charge", StepState.SUCCEEDED)
        assert (await post(hf, address)).new
        assert await run.result(60) == Paid("r-1", 0)
        assert not (await post(hf, address)).new
        assert not (await post(hf, address, b' {"receipt": "r-1", "cents": 0} ')).new
        with pytest.raises(Gone):
            await post(hf, address, b'{"receipt":"r-2"}')
        entries = [(one.actor, one.verb) for one in await hf.store.reads.journal("once")]
        assert entries.count(("callback", "answer")) == 1


async def test_a_plain_def_hands_its_address_on(store_url: str) -> None:
    """A step in a thread has `here.callback`, too."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        run = await hf.start(flows.pays_plainly.using(id="plain"), "tok")
        await post(hf, await handed("plain"))
        assert (await run.result(60)).receipt == "r-1"


async def test_what_does_not_fit_is_refused_and_spends_nothing(store_url: str) -> None:
    """The refusal names the place. The address is good afterwards."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        run = await hf.start(flows.pays.using(id="misfit"), "tok")
        address = await handed("misfit")
        for output, place in ((b'{"receipt":1}', "receipt"), (b"[]", "output"), (b'{"cents":1}', "receipt")):
            with pytest.raises(InvalidInput, match=place):
                await post(hf, address, output)
        desk = hf.desk.callbacks
        row = await desk.demand(token(address))
        for both in (
            CallbackResult(),
            CallbackResult(output=Raw(b"1"), error=CallbackError(message="no")),
        ):
            with pytest.raises(InvalidInput, match="one of the two"):
                await desk.answer_at(row, both)
        assert (await post(hf, address)).new
        assert (await run.result(60)).receipt == "r-1"


async def test_an_early_answer_waits_for_the_request(store_url: str) -> None:
    """An answer that comes while the step's code still runs is kept, and counts when the code has returned."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        flows.GATES["early"] = asyncio.Event()
        run = await hf.start(flows.pays.using(id="early"), "tok")
        assert (await post(hf, await handed("early"))).new
        await state_of(hf, "early", "charge", StepState.SUCCEEDED)
        assert (await rows(hf, "early"))["request:charge"].state is StepState.RUNNING
        flows.GATES["early"].set()
        assert (await run.result(60)).receipt == "r-1"


async def test_an_answer_counts_also_if_the_request_fails_later(store_url: str) -> None:
    """The other system has done it, whatever became of the code that asked for it. All attempts hand on one address."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        flows.FAILS["torn"] = 2
        flows.GATES["torn"] = asyncio.Event()
        run = await hf.start(flows.pays.using(id="torn"), "tok")
        await handed("torn", 3)
        assert len(set(flows.HANDED["torn"])) == 1
        assert len(set(flows.KEYS["torn"])) == 1
        flows.FAILS["torn"] = 0
        await post(hf, flows.HANDED["torn"][0])
        await state_of(hf, "torn", "charge", StepState.SUCCEEDED)
        flows.GATES["torn"].set()
        assert (await run.result(60)).receipt == "r-1"


async def test_a_request_that_fails_fails_the_call(store_url: str) -> None:
    """The wait is dropped, so an answer afterwards is refused. Nothing is undone."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        flows.FAILS["unasked"] = 3
        run = await hf.start(flows.pays.using(id="unasked"), "tok")
        with pytest.raises(RunFailed, match="was lost"):
            await run.result(60)
        with pytest.raises(Gone):
            await post(hf, flows.HANDED["unasked"][0])
        assert flows.UNDONE["unasked"] == []


async def test_an_error_of_the_other_system_fails_the_call(store_url: str) -> None:
    """The code gets a StepFailed with the kind that was said. Nothing is undone: it did not happen."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        run = await hf.start(flows.pays.using(id="declined"), "tok")
        await handed("declined")
        said = {"message": "card declined", "error_type": "CardDeclined"}
        assert (await hf.callbacks.fail("declined", **said)).new
        with pytest.raises(RunFailed, match="CardDeclined: card declined"):
            await run.result(60)
        assert not (await hf.callbacks.fail("declined", **said)).new
        with pytest.raises(Gone):
            await hf.callbacks.answer("declined", Paid("r-1"))
        assert flows.UNDONE["declined"] == []
        assert "after an error was the answer to callback charge: " in await run.why()


async def test_expiry_asks_again_under_another_key_and_then_fails(store_url: str) -> None:
    """As often as timeouts are allowed. The old address is refused, and the undo of each request gets None."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        run = await hf.start(flows.pays_in_time.using(id="late"), "tok")
        first, second = await handed("late", 1), await handed("late", 2)
        assert first != second
        assert len(set(flows.KEYS["late"])) == 2
        with pytest.raises(Gone):
            await post(hf, first)
        with pytest.raises(RunFailed, match=r"no callback came within 0\.2 s"):
            await run.result(60)
        with pytest.raises(Gone):
            await post(hf, second)
        assert flows.UNDONE["late"] == [(None, "tok")] * 2
        assert "after nobody answered callback impatient: " in await run.why()


async def test_the_second_request_can_be_answered(store_url: str) -> None:
    """The call goes on with it."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        run = await hf.start(flows.pays_in_time.using(id="second"), "tok")
        await post(hf, await handed("second", 2))
        assert (await run.result(60)).receipt == "r-1"


async def test_extending_keeps_a_callback_from_expiring(store_url: str) -> None:
    """Its time begins anew each time."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        run = await hf.start(flows.pays_in_time.using(id="busy"), "tok")
        desk = hf.desk.callbacks
        row = await desk.demand(token(await handed("busy")))
        before = await state_of(hf, "busy", "request:impatient", StepState.SUCCEEDED)
        until = None
        while until is None or until.timestamp() < before.issued_at + 0.6:
            until = (await desk.extend(row)).until
            await asyncio.sleep(0.02)
        await post(hf, flows.HANDED["busy"][0])
        assert (await run.result(60)).receipt == "r-1"
        assert len(flows.HANDED["busy"]) == 1
        with pytest.raises(Gone):
            await desk.extend(row)


async def test_the_undo_gets_what_the_callback_said(store_url: str) -> None:
    """Of a run, and of a saga. `here.undoes` is the key that the request had."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        run = await hf.start(flows.pays_and_breaks.using(id="back"), "tok")
        await post(hf, await handed("back"))
        with pytest.raises(RunFailed, match="it breaks"):
            await run.result(60)
        saved = await hf.start(flows.pays_in_a_saga.using(id="saga"), "tok")
        await post(hf, await handed("saga"))
        assert await saved.result(60) == "undone"
        for one in ("back", "saga"):
            assert flows.UNDONE[one] == [(Paid("r-1"), "tok", flows.KEYS[one][0])]


async def test_a_cancelled_run_drops_the_wait_and_undoes_with_none(store_url: str) -> None:
    """Nobody knows whether the other system did anything. A late answer is refused."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        run = await hf.start(flows.pays.using(id="cancelled"), "tok")
        address = await handed("cancelled")
        await state_of(hf, "cancelled", "request:charge", StepState.SUCCEEDED)
        await run.cancel()
        with pytest.raises(RunFailed):
            await run.result(60)
        assert flows.UNDONE["cancelled"] == [(None, "tok", flows.KEYS["cancelled"][0])]
        with pytest.raises(Gone):
            await post(hf, address)


async def test_code_may_give_a_callback_up(store_url: str) -> None:
    """Then the answer is refused."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        run = await hf.start(flows.gives_up.using(id="given-up"), "tok")
        address = await handed("given-up")
        assert await run.result(60) == "gave up"
        with pytest.raises(Gone, match="nobody waits"):
            await post(hf, address)


async def test_operators_answer_by_the_run_and_the_step(store_url: str) -> None:
    """By key, name or number. If there are several, one must be named."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        run = await hf.start(flows.pays_twice.using(id="two"), "tok")
        await handed("two", 2)
        keys = [row.key for row in await hf.store.reads.steps("two") if row.kind is StepKind.CALLBACK]
        with pytest.raises(InvalidInput, match="waits for 2 callbacks"):
            await hf.callbacks.answer("two", Paid("a"))
        with pytest.raises(UnknownCallback):
            await hf.callbacks.answer("two", Paid("a"), step="else")
        await hf.callbacks.answer("two", Paid("a"), step=keys[0], note="by hand")
        await hf.callbacks.answer("two", Paid("b"))
        assert sorted(await run.result(60)) == ["a", "b"]
        notes = [one.note for one in await hf.store.reads.journal("two")]
        assert any("by hand" in note for note in notes)


async def test_an_answer_survives_the_death_of_every_process(store_url: str) -> None:
    """The process is killed between the request and the answer, and again between the answer and the run's end."""
    async with Holdfast(store_url, roles=(), config=FAST) as caller:
        node = await Holdfast(store_url, config=FAST, alerts=ALERTS).open()
        run = await caller.start(flows.pays.using(id="killed"), "tok")
        address = await handed("killed")
        await state_of(caller, "killed", "request:charge", StepState.SUCCEEDED)
        await kill(node)
        assert (await post(caller, address)).new
        assert not (await post(caller, address)).new
        async with Holdfast(store_url, config=FAST):
            assert (await run.result(60)).receipt == "r-1"
        assert len(flows.HANDED["killed"]) == 1
        assert [row for row in await caller.store.reads.doctor() if row[2]] == []


async def test_an_agent_that_dies_in_the_request_is_replaced(store_url: str) -> None:
    """The next attempt hands on the same address, and an answer to the first one counts."""
    async with Holdfast(store_url, roles=(), config=FAST) as caller:
        flows.GATES["lost"] = asyncio.Event()
        node = await Holdfast(store_url, config=FAST, alerts=ALERTS).open()
        run = await caller.start(flows.pays.using(id="lost"), "tok")
        address = await handed("lost")
        await kill(node)
        assert (await post(caller, address)).new
        flows.GATES["lost"].set()
        async with Holdfast(store_url, config=FAST):
            assert (await run.result(60)).receipt == "r-1"
        assert set(flows.HANDED["lost"]) == {address}


async def test_of_two_answers_at_once_one_counts(store_url: str) -> None:
    """Through two processes, again and again: one is taken, the other is refused, and the run gets the one."""
    async with (
        Holdfast(store_url, config=FAST, alerts=ALERTS) as hf,
        Holdfast(store_url, roles=(), config=FAST) as one,
        Holdfast(store_url, roles=(), config=FAST) as two,
    ):
        for number in range(10):
            run = await hf.start(flows.pays.using(id=f"race-{number}"), "tok")
            address = await handed(f"race-{number}")
            found = await asyncio.gather(
                post(one, address, b'{"receipt":"a"}'),
                post(two, address, b'{"receipt":"b"}'),
                return_exceptions=True,
            )
            assert sorted(type(each).__name__ for each in found) == ["CalledBack", "Gone"]
            taken = "a" if isinstance(found[0], answers.CalledBack) else "b"
            assert (await run.result(60)).receipt == taken


async def test_a_retry_asks_again_and_keeps_what_was_answered(store_url: str) -> None:
    """A call that was answered is not made again. One that failed is, with the key that it had."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        run = await hf.start(flows.pays.using(id="again"), "tok")
        await handed("again")
        await hf.callbacks.fail("again", "down")
        with pytest.raises(RunFailed):
            await run.result(60)
        retried = await run.retry()
        await post(hf, await handed(retried.id))
        assert (await retried.result(60)).receipt == "r-1"
        assert flows.KEYS[retried.id] == flows.KEYS["again"]


@pytest.mark.parametrize("end", ["cancelled", "failed"])
async def test_a_retry_keeps_an_answer_that_came_before_the_end_of_its_request(
    store_url: str, end: str
) -> None:
    """The other system has got the request, and was thanked for its answer. It need not answer a second time, so it is not
    asked a second time, although the code of the request never ended."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        flows.GATES["early"] = asyncio.Event()
        run = await hf.start(flows.asks_plainly.using(id="early"), end)
        assert (await post(hf, await handed("early"))).new
        await state_of(hf, "early", "ask_once", StepState.SUCCEEDED)
        if end == "cancelled":
            await run.cancel()
        else:
            flows.GO.set()
        with pytest.raises(RunFailed):
            await run.result(60)
        assert await run.state() == end
        retried = await run.retry()
        assert (await retried.result(60)).receipt == "r-1"
        assert flows.HANDED[retried.id] == []
        fork = await run.fork(id="fork", from_=None if end == "cancelled" else "fails_once")
        assert (await fork.result(60)).receipt == "r-1"
        assert flows.HANDED["fork"] == []


async def test_a_retry_asks_again_for_what_was_undone(store_url: str) -> None:
    """An answer that came before the end of its request does not count any more, if the request was undone."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        flows.GATES["undone"] = asyncio.Event()
        run = await hf.start(flows.pays.using(id="undone"), "tok")
        await post(hf, await handed("undone"))
        await state_of(hf, "undone", "charge", StepState.SUCCEEDED)
        await run.cancel()
        with pytest.raises(RunFailed):
            await run.result(60)
        assert flows.UNDONE["undone"] == [(Paid("r-1"), "tok", flows.KEYS["undone"][0])]
        retried = await run.retry()
        await post(hf, await handed(retried.id), b'{"receipt":"r-2"}')
        assert (await retried.result(60)).receipt == "r-2"
        assert flows.KEYS[retried.id] != flows.KEYS["undone"]


async def test_a_fork_asks_again_or_keeps(store_url: str) -> None:
    """From the call, it is made again. After it, its result is kept. A result that is set counts as an answer."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        run = await hf.start(flows.pays.using(id="whole"), "tok")
        await post(hf, await handed("whole"))
        await run.result(60)
        kept = await run.fork(id="kept")
        assert (await kept.result(60)).receipt == "r-1"
        assert flows.HANDED["kept"] == []
        fixed = await run.fork(set={"charge": {"receipt": "set"}}, id="fixed")
        assert (await fixed.result(60)).receipt == "set"
        assert flows.HANDED["fixed"] == []
        anew = await run.fork(from_="charge", id="anew")
        await post(hf, await handed("anew"), b'{"receipt":"anew"}')
        assert (await anew.result(60)).receipt == "anew"


async def test_a_fork_of_a_run_that_waits_asks_by_itself(store_url: str) -> None:
    """Nobody would answer its callback otherwise. With a result that is set, nobody is asked."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        run = await hf.start(flows.pays.using(id="waits"), "tok")
        await handed("waits")
        await state_of(hf, "waits", "request:charge", StepState.SUCCEEDED)
        fork = await run.fork(id="waits-too")
        await post(hf, await handed("waits-too"), b'{"receipt":"fork"}')
        assert (await fork.result(60)).receipt == "fork"
        fixed = await run.fork(set={"charge": {"receipt": "set"}}, id="waits-not")
        assert (await fixed.result(60)).receipt == "set"
        assert flows.HANDED["waits-not"] == []
        await post(hf, flows.HANDED["waits"][0])
        assert (await run.result(60)).receipt == "r-1"


async def test_an_address_of_an_earlier_run_is_unknown(store_url: str) -> None:
    """If a run is pruned and its id is used again, old addresses end nothing."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        run = await hf.start(flows.pays.using(id="reused"), "tok")
        old = await handed("reused")
        await post(hf, old)
        await run.result(60)
        pruned = await hf.store.retention.prune(
            None,
            actor="t",
            state=RunState.SUCCEEDED,
            before=await hf.store.now() + 60,
            after=(0.0, ""),
            runs_max=10,
            rows_max=1000,
        )
        assert pruned.runs == 1
        again = await hf.start(flows.pays.using(id="reused"), "tok")
        new = await handed("reused", 2)
        with pytest.raises(UnknownCallback):
            await post(hf, old)
        await post(hf, new)
        assert (await again.result(60)).receipt == "r-1"


async def test_without_a_public_url_or_a_callback_the_error_says_what_to_do(store_url: str) -> None:
    """Both say the next move."""
    async with Holdfast(store_url, config=FAST) as hf:
        with pytest.raises(RunFailed, match="public_url"):
            await (await hf.start(flows.pays, "tok")).result(60)
        with pytest.raises(RunFailed, match=r"@step\(callback=True\)"):
            await (await hf.start(flows.looks_without)).result(60)


async def test_the_address_stands_nowhere_in_the_store(store_url: str) -> None:
    """Neither in a row nor in the journal, `why` or an alert."""
    async with Holdfast(store_url, config=FAST, alerts=ALERTS) as hf:
        run = await hf.start(flows.pays.using(id="hidden"), "tok")
        secret = token(await handed("hidden"))
        await state_of(hf, "hidden", "request:charge", StepState.SUCCEEDED)
        texts = [repr(row) for row in await hf.store.reads.steps("hidden")]
        texts += [entry.note for entry in await hf.store.reads.journal("hidden")]
        why = await run.why()
        assert "callback" in why
        assert "holdfast callback hidden" in why
        assert not [text for text in (*texts, why) if secret in text or secret[-22:] in text]
        await post(hf, flows.HANDED["hidden"][0])
        await run.result(60)
