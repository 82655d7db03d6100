"""A program that reaches a store through a server: the same handles, the same values, the same errors."""

from __future__ import annotations

import asyncio
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from holdfast import Conflict, Holdfast, HoldfastError, InvalidInput, RunFailed, RunState
from holdfast.desk.desk import Desk
from holdfast.errors import (
    Forbidden,
    InvalidSettings,
    StoreError,
    StoreUnreachable,
    Unauthenticated,
    UnknownAct,
    UnknownRun,
    UnknownSignal,
    UnknownUpdate,
    UnknownWorkflow,
    UpdateTimeout,
    WrongState,
)
from holdfast.http.routes import ROUTES
from holdfast.remote import connection as remote_connection
from holdfast.remote import runs as remote_runs
from holdfast.remote import schedules as remote_schedules
from holdfast.remote import store as remote_store
from holdfast.remote.desk import RemoteDesk
from holdfast.schedules import every
from tests.http import flows
from tests.http.conftest import made_token
from tests.remote import flows as remote_flows
from tests.remote.conftest import Faults, Served, eventually, through, with_token


async def test_a_run_is_started_and_its_result_has_its_type(remote: Holdfast) -> None:
    """`start` and `result` work as on the store itself."""
    run = await remote.start(flows.count.using(id="a/b c", tags={"x": "y"}), 1)
    assert await run.result(timeout=20) == 2
    info = await run.info()
    assert (info.id, info.state, info.tags, info.input) == (
        "a/b c",
        RunState.SUCCEEDED,
        {"x": "y"},
        {"a": 1, "by": 1.0, "secret": ""},
    )
    view = await run.view()
    assert [(step.key, step.state) for step in view.steps] == [("add", "succeeded")]
    assert "succeeded" in await run.why()


async def test_the_same_start_again_is_the_same_run(busy: Served, remote: Holdfast) -> None:
    """A start by HTTP and one at the store with the same id and input are one run; another input is a conflict."""
    await busy.hf.start(flows.count.using(id="one"), 1)
    run = await remote.start(flows.count.using(id="one"), 1)
    assert await run.result(timeout=20) == 2
    with pytest.raises(Conflict, match="one"):
        await remote.start(flows.count.using(id="one"), 2)


async def test_many_results_share_one_poll(remote: Holdfast) -> None:
    """Whatever number of results a program waits for, it has one poll open."""
    runs = [await remote.start(flows.pay.using(id=f"many-{n}"), n) for n in range(20)]
    waiting = [run.result(timeout=30) for run in runs]
    for run in runs:
        await flows.paid.send(run.id, 1)
    import asyncio

    assert await asyncio.gather(*waiting) == [n + 1 for n in range(20)]


async def test_a_failure_is_the_same_error_with_its_cause(remote: Holdfast) -> None:
    """`result` raises what it raises at the store, with the original exception as its cause."""
    run = await remote.start(flows.fail.using(id="fails"))
    with pytest.raises(RunFailed) as wrong:
        await run.result(timeout=20)
    assert (wrong.value.run_id, wrong.value.error_type) == ("fails", "builtins.ValueError")
    assert isinstance(wrong.value.__cause__, ValueError)


async def test_signals_and_updates(remote: Holdfast) -> None:
    """Signals and updates go through the server, are checked, and updates come back in their type."""
    run = await remote.start(flows.pay.using(id="pays"), 1)
    assert await flows.change.call(run.id, flows.Address("Quay", 2), timeout=20) == "Quay 2"
    with pytest.raises(UnknownSignal):
        await remote.send_signal(run.id, "nothing", b"1", None)
    with pytest.raises(UnknownUpdate):
        await remote.call_update(run.id, "nothing", b"1", None, 1.0)
    with pytest.raises(InvalidInput):
        await remote.send_signal(run.id, "paid", b'"text"', None)
    await flows.paid.send(run.id, 4)
    assert await run.result(timeout=20) == 5
    with pytest.raises(WrongState):
        await remote.send_signal(run.id, "paid", b"1", None)


async def test_an_update_without_an_answer_stays_recorded(busy: Served, remote: Holdfast) -> None:
    """An update that nobody serves yet raises UpdateTimeout. The same key gets the answer later."""
    run = await remote.start(flows.pay.using(id="held"), 1)
    await run.hold()
    with pytest.raises(UpdateTimeout, match="key"):
        await flows.change.call(run.id, flows.Address("Quay"), key="k", timeout=0.1)
    await run.release()
    assert await flows.change.call(run.id, flows.Address("Quay"), key="k", timeout=20) == "Quay 1"


async def test_steering(remote: Holdfast) -> None:
    """Hold, release, cancel, retry and fork mean the same through a server."""
    run = await remote.start(flows.pay.using(id="steered"), 1)
    assert await run.hold("why not") is RunState.HELD
    assert (await run.info()).note == "why not"
    await run.release()
    await run.cancel("enough")
    with pytest.raises(RunFailed):
        await run.result(timeout=20)
    assert await run.state() is RunState.CANCELLED
    again = await run.retry()
    assert again.id == "steered~2"
    assert (await run.retry()).id == again.id
    await flows.paid.send(again.id, 2)
    assert await again.result(timeout=20) == 3
    fork = await again.fork(input={"cents": 10}, id="the-fork")
    await flows.paid.send(fork.id, 2)
    assert await fork.result(timeout=20) == 12


async def test_lists_and_pages(remote: Holdfast) -> None:
    """`runs` filters and pages as it does at the store."""
    for n in range(7):
        await remote.start(flows.pay.using(id=f"listed-{n}", tags={"n": str(n % 2)}), n)
    first = await remote.runs(prefix="listed-", limit=3)
    second = await remote.runs(prefix="listed-", limit=10, before=first[-1])
    assert [one.id for one in (*first, *second)] == [f"listed-{n}" for n in reversed(range(7))]
    assert len(await remote.runs(workflow="pay", tags={"n": "1"})) == 3
    assert await remote.runs(since="2h", state="succeeded") == []
    with pytest.raises(UnknownWorkflow, match=r"shop\.pay"):
        await remote.runs(workflow="pai")
    with pytest.raises(InvalidInput):
        await remote.runs(state="odd")


async def test_gates_quarantine_and_alerts(remote: Holdfast) -> None:
    """What is about the whole store can be read and changed through a server."""
    placed = await remote.gates.hold(step="tests.http.flows.add", note="stop")
    assert placed.new
    assert [one.value for one in await remote.gates.holds()] == [placed.hold.value]
    await remote.gates.release(step="tests.http.flows.add")
    with pytest.raises(WrongState):
        await remote.gates.release(step="tests.http.flows.add")
    assert (await remote.gates.open("bank")).state == "open"
    assert (await remote.gates.reset("bank")).name == "bank"
    assert [one.name for one in await remote.gates.breakers()] == ["bank"]
    assert await remote.quarantine() == []
    assert await remote.resolve("release", "0123456789ab") == 0


async def test_an_act_on_many_runs(remote: Holdfast) -> None:
    """A plan is made, shown and carried out by the server."""
    for n in range(5):
        await remote.start(flows.pay.using(id=f"act-{n}"), n)
    plan = await remote.plan("cancel", prefix="act-", note="all of them")
    assert sum(change.count for change in plan.preview.changes) == 5
    done = await plan.carry_out()
    assert (done.state, done.done, done.left) == ("done", 5, 0)
    assert sorted([one.run_id async for one in plan.runs("done")]) == [f"act-{n}" for n in range(5)]
    assert [one.id for one in await remote.acts()] == [plan.id]
    with pytest.raises(UnknownAct):
        await remote.act("nothing").info()
    with pytest.raises(InvalidInput):
        await remote.plan("cancel")


async def test_what_does_not_exist_is_unknown(remote: Holdfast) -> None:
    """Handles to nothing raise UnknownRun, with the id, for every method."""
    run: Any = remote.run("no/such run")
    for call in (run.info, run.steps, run.why, run.cancel, run.retry, run.hold, run.logs, run.result):
        with pytest.raises(UnknownRun, match="no/such run"):
            await call()


async def test_what_needs_the_database_says_so(remote: Holdfast, busy: Served) -> None:
    """A server cannot take part in a transaction, and hosts no scheduler for others."""
    with pytest.raises(HoldfastError, match="database"):
        remote.within(object())
    with pytest.raises(HoldfastError, match="database"):
        _ = remote.store
    with pytest.raises(HoldfastError, match="scheduler"):
        Holdfast(busy.url, roles=["scheduler"])
    with pytest.raises(HoldfastError, match="token"):
        Holdfast("sqlite:///x.db", token="hf_x")


async def test_a_token_opens_the_door(busy: Served) -> None:
    """With a token in the store, a program needs a good one. Its role decides, and its errors say so."""
    async with with_token(busy, "operator") as hf:
        run = await hf.start(flows.count, 1)
        assert await run.result(timeout=20) == 2
        with pytest.raises(Forbidden, match="admin"):
            await hf.desk.tokens.list(hf.who, 10)
    viewer = await made_token(busy.hf, "viewer", "default")
    async with Holdfast(busy.url, token=viewer) as hf:
        assert len(await hf.runs()) == 1
        with pytest.raises(Forbidden):
            await hf.start(flows.count, 1)
    await eventually(lambda: _is_shut(busy))
    with pytest.raises(InvalidSettings, match="no token"):
        Holdfast(busy.url, token="secret")
    changed = viewer[:-8] + ("A" if viewer[-8] != "A" else "B") + viewer[-7:]
    with pytest.raises(InvalidSettings):
        Holdfast(busy.url, token=changed)


async def _is_shut(at: Served) -> bool:
    """Servers notice the first token within a second."""
    try:
        async with Holdfast(at.url):
            return False
    except Unauthenticated:
        return True


async def test_tokens_over_http(busy: Served) -> None:
    """An administrator makes, rotates and revokes tokens through a server; a secret is shown once."""
    async with with_token(busy, "admin") as hf:
        from holdfast.model import NewToken

        made = await hf.desk.tokens.create(
            hf.who, NewToken("", "ci", "viewer", '["default"]', "[]", True, b"", 60.0)
        )
        assert made.secret.startswith("hf_viewer_")
        assert {row.name for row in await hf.desk.tokens.list(hf.who, 10)} == {"admin", "ci"}
        again = await hf.desk.tokens.rotate(hf.who, made.token.id, 0.0, None)
        assert again.secret != made.secret
        assert await hf.desk.tokens.revoke(hf.who, made.token.id)
        assert not await hf.desk.tokens.revoke(hf.who, made.token.id)
        with pytest.raises(WrongState):
            await hf.desk.tokens.rotate(hf.who, made.token.id, 0.0, None)


@pytest.mark.parametrize("fault", ["lose the request", "lose the reply", "double"])
async def test_faults_on_the_way_lose_and_double_nothing(busy: Served, fault: str) -> None:
    """Each request to start, send, call and steer meets a fault once. Each takes effect once."""
    met: set[str] = set()

    def plan(request: httpx2.Request) -> str:
        if request.method != "POST" or request.url.path in met or request.url.path.endswith("ended"):
            return ""
        met.add(request.url.path)
        return fault

    faults = Faults(plan)
    async with through(faults, busy.url) as hf:
        run = await hf.start(flows.pay.using(id="faulty"), 1)
        assert await flows.change.call(run.id, flows.Address("Quay"), timeout=20) == "Quay 1"
        await flows.paid.send(run.id, 4)
        assert await run.result(timeout=20) == 5
        again = await hf.start(flows.pay.using(id="cancelled"), 1)
        await again.cancel()
        with pytest.raises(RunFailed):
            await again.result(timeout=20)
        new = await again.retry()
        assert new.id == "cancelled~2"
        await new.hold()
        if fault != "double":  # a second release says that there is nothing to release, as at the store
            assert await new.release() is not RunState.HELD
            await hf.gates.hold(workflow="pay")
            assert (await hf.gates.release(workflow="pay")).value == "shop.pay"
    assert len([one for _, one in faults.done if one == fault]) >= 5
    signals = [one for one in await busy.hf.store.reads.signals("faulty") if not one.name.startswith("$")]
    assert len(signals) == 1
    assert {one.id for one in await busy.hf.runs()} == {"faulty", "cancelled", "cancelled~2"}


async def test_what_would_be_done_twice_is_not_sent_again(busy: Served) -> None:
    """Each run of a schedule and each backfill is another one. If the answer is lost, the caller hears that, and it was done once."""

    def plan(request: httpx2.Request) -> str:
        is_act = request.method == "POST" and request.url.path.endswith(("/run", "/backfills"))
        return "lose the reply" if is_act else ""

    async with through(Faults(plan), busy.url) as hf:
        await hf.schedules.create(every("@daily", name="nightly"), flows.count, 1)
        with pytest.raises(StoreUnreachable):
            await hf.schedules.run("nightly", anyway=True)
        with pytest.raises(StoreUnreachable):
            await hf.schedules.backfill("nightly", "2026-09-01", "2026-09-03", again="all")
        assert len([one for one in await hf.schedules.fires("nightly") if one.backfill is None]) == 1
        assert len(await hf.schedules.backfills("nightly")) == 1


async def test_the_same_schedule_is_the_same_wherever_it_is_made(busy: Served, remote: Holdfast) -> None:
    """At the store, or through a server."""
    for name, first, second in (("near", busy.hf, remote), ("far", remote, busy.hf)):
        for hf in (first, second):
            await hf.schedules.create(every("@daily", name=name), flows.count, 1)
    with pytest.raises(Conflict):
        await remote.schedules.create(every("@hourly", name="near"), flows.count, 1)


async def test_a_start_whose_server_is_away_says_what_is_known() -> None:
    """If nobody answers, the error says whether the run may have been started."""
    with pytest.raises(
        StoreUnreachable, match=r"does not answer: .*: check the address, and that the server runs"
    ):
        async with Holdfast("http://127.0.0.1:1"):
            pass


@pytest.mark.parametrize(
    ("body", "header"),
    [
        (b"<html>log in</html>", "Content-Type: text/html"),
        (b"", "Content-Type: application/json"),
        (b'{"kind": 7}', "Content-Type: application/json"),
        (b'"\xff"', "Content-Type: application/json"),
        (b"no gzip", "Content-Encoding: gzip"),
    ],
    ids=["a page", "nothing", "another struct", "no text", "no gzip"],
)
async def test_an_answer_that_is_none_of_ours_is_named(body: bytes, header: str) -> None:
    """A proxy that answers with a page of its own, or anything else that listens there, is no surprise."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{header}\r\n\r\n".encode() + body)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(StoreError, match=f"127.0.0.1:{port}"):
            async with Holdfast(f"http://127.0.0.1:{port}"):
                pass


@pytest.mark.parametrize(
    "address", ["http://[::1", "http://127.0.0.1:99999", "http://127.0.0.1:port", "https://", "http://h?a=b"]
)
def test_what_is_no_address_of_a_server_is_refused(address: str) -> None:
    """It is refused before anybody is asked, in words that say what to give."""
    with pytest.raises(InvalidSettings, match="give the address of a server"):
        Holdfast(address)


NOT_REMOTE = {"overview": {"counts", "preview", "step", "words"}}
"""What only a server itself asks of its desk."""


def test_the_remote_desk_has_every_part_and_method_of_a_desk() -> None:
    """Handles and commands ask either desk by the same names, with the same parameters. A type checker compares only the
    one that works on the store with the protocol."""
    remote, compared = RemoteDesk(cast("Any", None)), 0
    for part in (name for name, one in vars(Desk).items() if isinstance(one, property)):
        protocol, found = _protocol(part), getattr(remote, part)
        for name, method in vars(protocol).items():
            if inspect.iscoroutinefunction(method) and name not in NOT_REMOTE.get(part, ()):
                own = [*inspect.signature(method).parameters][1:]
                assert [*inspect.signature(getattr(found, name)).parameters] == own, (part, name)
                compared += 1
    assert compared > 70


def _protocol(part: str) -> type:
    """Return the protocol of a part of the desk: `TokenDesk` for `tokens`."""
    module = import_module(f"holdfast.desk.{part}")
    name: str = inspect.get_annotations(vars(Desk)[part].fget)["return"]
    found: type = getattr(module, name)
    return found


def test_every_request_of_the_remote_desk_is_a_row_of_the_table() -> None:
    """The remote desk names no path that the table of routes does not have, and leaves out none that a desk needs."""
    others = {"connection.py", "schedules.py", "store.py"}
    modules = [one for one in Path(remote_connection.__file__).parent.glob("*.py") if one.name not in others]
    source = "".join(one.read_text() for one in modules)
    shapes = {re.sub(r"\{[^}]*\}", "*", route.path) for route in ROUTES}
    source = source.replace("{run_path(run)}", "/v1/runs/{run}").replace(
        "{run_path(run_id)}", "/v1/runs/{run}"
    )
    source = source.replace("{_act(act)}", "/v1/acts/{act}")
    named = {re.sub(r"\{[^}]*\}", "*", one) for one in re.findall(r'f?"(/v1/[^"]*)"', source)}
    named |= {
        f"/v1/runs/*{one}"
        for one in re.findall(r'part_of\(\s*self\._transport, who, run(?:\.id)?, f?"([^"]*)"', source)
    }
    named = {re.sub(r"\{[^}]*\}", "*", one) for one in named}
    verbs = {"/v1/runs/*/*", "/v1/breakers/*/*", "/v1/quarantine/*/*"}  # the verb is a parameter
    named.discard("/v1/in/")  # the beginning of a path that the server gave
    assert named - verbs <= shapes
    door = {one for one in shapes if one.startswith("/v1/agents/*")}
    text = Path(remote_connection.__file__).read_text() + Path(remote_store.__file__).read_text()
    assert door == {one for one in door if f'{one.rpartition("*")[2]}"' in text}
    book = Path(remote_schedules.__file__).read_text()
    times = {one for one in shapes if one.startswith("/v1/schedules/*/")}
    acts = {
        one for one in times if f'"{one.rpartition("/")[2]}"' in book or f'{one.rpartition("*/")[2]}"' in book
    }
    assert times == acts
    door |= {"/v1/schedules", "/v1/schedules/*", *times}
    unused = shapes - door - named - {one for one in shapes for verb in verbs if one.startswith(verb[:-3])}
    assert unused == {
        "/healthz",
        "/metrics",
        "/readyz",
        "/a/*",
        "/v1/callbacks/*",
        "/v1/callbacks/*/extend",
        "/v1/in/*",
        "/v1/openapi.json",
        "/v1/stream",
    }


async def test_all_that_a_run_logged_comes_through(
    busy: Served, remote: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run.logs()` asks for page after page, and gives the same lines in the same order as at the store."""
    monkeypatch.setattr(remote_runs, "LOGS_PAGE", 150)
    run = await remote.start(remote_flows.talk.using(id="talk"), 8, 60)
    await run.result(timeout=60)
    found = await run.logs()
    assert len(found) == 8 * 60
    assert found == await busy.hf.run("talk").logs()
    assert len(await run.logs(found[0].step, level="WARNING")) == 60
    assert await run.logs(level="ERROR") == []
