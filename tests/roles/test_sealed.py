"""Payloads that are sealed where they are stored, and secrets that nobody is shown."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import httpx2
import msgspec
import psycopg
import pytest

from holdfast import Holdfast, InvalidInput, Run, RunFailed, RunState, Secret
from holdfast.codec import secret
from holdfast.commands.keys import anew, digest_key
from holdfast.environment import Environment
from holdfast.errors import Conflict, DefinitionError, Gone, InvalidSettings, StoreSealed, WrongState
from holdfast.http.app import Server, make_app
from holdfast.http.oidc import Issuer
from holdfast.keyring import KEYS, keys_here
from holdfast.schedules import every
from holdfast.store import open_store
from holdfast.store.seals import SealedRow, Seals, Table, reseal_all
from holdfast.store.store import Store
from holdfast.workflow import registry
from tests.commands.conftest import Cli
from tests.http.issuers import issuing
from tests.roles import sealed_flows as flows
from tests.roles.conftest import FAST
from tests.roles.sealed_flows import CANARY, Card
from tests.tracing import EXPORTER, Seen

ONE = "one:" + base64.b64encode(bytes(range(32))).decode()
TWO = "two:" + base64.b64encode(bytes(range(1, 33))).decode()

Sealed = Callable[[str], None]


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has never seen a secret."""
    monkeypatch.setattr(secret, "_state", secret._State())
    flows.seen.clear()
    logging.getLogger(flows.__name__).setLevel(logging.INFO)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Sealed:
    def set_keys(text: str) -> None:
        if text:
            monkeypatch.setenv(KEYS, text)
        else:
            monkeypatch.delenv(KEYS, raising=False)

    return set_keys


@pytest.fixture
def cli(tmp_path: Path, store_url: str) -> Cli:
    return Cli(tmp_path, store_url)


def everything(url: str) -> str:
    """Return all that a store's tables say, as one text."""
    if url.startswith("sqlite"):
        # With the store's own library: a second one in the process would drop its locks.
        with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as database:
            names = [
                row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]
            found = [row for name in names for row in database.execute(f'SELECT * FROM "{name}"')]
    else:
        with psycopg.connect(url) as connection:
            tables = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'"
            ).fetchall()
            found = [
                row
                for (name,) in tables
                for row in connection.execute(f'SELECT * FROM holdfast."{name}"').fetchall()
            ]
    return "\n".join(
        value.decode("latin-1") if isinstance(value, bytes) else str(value) for row in found for value in row
    )


async def written(hf: Holdfast, run_id: str = "r") -> Run[str]:
    """Let a run use everything that has a payload, to its end."""
    run = await hf.start(flows.letters.using(id=run_id), CANARY)
    assert await flows.change.call(run_id, f"{CANARY} changed", key="k", timeout=60) == f"{CANARY} changed!"
    await flows.more.send(run_id, f"{CANARY} again")
    assert await run.result(timeout=60) == f"{CANARY}!{CANARY} again!child of {CANARY}!"
    return run


async def test_nothing_that_a_payload_says_is_in_the_store(store_url: str, keys: Sealed) -> None:
    """Inputs, results, checkpoints, signals, updates, published values, logs and their digests are sealed."""
    keys(ONE)
    async with Holdfast(store_url, config=FAST) as hf:
        run = await written(hf)
        failed = await hf.start(flows.returned.using(id="back"), CANARY)
        with pytest.raises(RunFailed):
            await failed.result(timeout=60)
        assert flows.seen == [f"undo {CANARY} {CANARY}!"]
        again = await hf.start(flows.letters.using(id="r"), CANARY)
        assert again.id == run.id, "the same input is known again by its hidden digest"
        lines = await run.logs()
        assert f"reading {CANARY}" in {line.message for line in lines}
        view = await run.view()
        assert view.run.input == {"text": CANARY}
        assert await run.published("draft", str) == f"{CANARY}!"
    said = everything(store_url)
    assert "$sealed" in said
    assert CANARY not in said
    assert base64.b64encode(CANARY.encode()).decode()[:12] not in said


async def test_whatever_a_run_does_it_does_sealed(store_url: str, keys: Sealed) -> None:
    """A retry, a fork with another input, and a run that goes on in another process open what others have sealed."""
    keys(ONE)
    async with Holdfast(store_url, config=FAST) as hf:
        run = await hf.start(flows.returned.using(id="back"), CANARY)
        with pytest.raises(RunFailed):
            await run.result(timeout=60)
        retried = await run.retry()
        with pytest.raises(RunFailed):
            await retried.result(timeout=60)
        await written(hf)
    async with Holdfast(store_url, config=FAST) as hf:
        forked = await hf.run("r").fork(input={"text": "public"}, id="forked")
        await flows.more.send("forked", "x")
        assert await forked.result(timeout=60) == "public!x!child of public!"
        edited = await hf.run("r").fork(set={"read": f"{CANARY}?"}, id="edited")
        await flows.more.send("edited", "y")
        assert (await edited.result(timeout=60)).startswith(f"{CANARY}?")
    assert CANARY not in everything(store_url)


async def test_a_key_is_changed_while_runs_go_on(store_url: str, keys: Sealed, cli: Cli) -> None:
    """The new key in front, everything sealed anew, the old key away: open runs go on, and nothing drifts."""
    keys(ONE)
    async with Holdfast(store_url, config=FAST) as hf:
        await written(hf)
        await hf.start(flows.letters.using(id="open"), CANARY)
        await until_waiting(hf, "open")
    keys(f"{TWO},{ONE}")
    counted = cli("keys", "reseal", "--dry-run", "--json").json
    assert counted["rows"]["runs"] >= 3
    assert '"two.' not in everything(store_url)
    done = cli("keys", "reseal", "--json").json
    assert done["rows"] == counted["rows"]
    assert cli("keys", "reseal", "--json").json["rows"]["runs"] == 0
    keys(TWO)
    assert '"one.' not in everything(store_url)
    listed = cli("keys", "--json").json
    assert listed["missing"] == []
    assert set(listed["rows"]) <= {"two", "plain"}
    async with Holdfast(store_url, config=FAST) as hf:
        await flows.more.send("open", "now")
        assert (await hf.run("open").result(timeout=60)) == f"{CANARY}!now!child of {CANARY}!"
    assert CANARY not in everything(store_url)


async def until_waiting(hf: Holdfast, run_id: str) -> None:
    async def waits() -> bool:
        return any(step.key == "more" for step in (await hf.run(run_id).view()).steps)

    while not await waits():  # noqa: ASYNC110  other processes move the run
        await asyncio.sleep(0.01)


async def test_answers_of_several_people_outlast_a_change_of_key(
    store_url: str, keys: Sealed, cli: Cli
) -> None:
    """The store has put them together, each sealed by itself, into a result that the run has not read yet."""
    keys(ONE)
    async with Holdfast(store_url, config=FAST) as hf:
        run = await hf.start(flows.asks_two.using(id="asks"))
        while not (found := await hf.asks.list()):  # noqa: ASYNC110  the scheduler asks
            await asyncio.sleep(0.01)
    async with Holdfast(store_url, roles=()) as hf:
        for person in ("person:anna", "person:bob"):
            await hf.asks.answer(found[0].id, f"{CANARY} of {person}", by=person)
        assert CANARY not in everything(store_url)
    keys(f"{TWO},{ONE}")
    assert cli("keys", "reseal", "--json").json["missing"] == []
    keys(TWO)
    assert '"one.' not in everything(store_url)
    async with Holdfast(store_url, config=FAST) as hf:
        wanted = [f"{CANARY} of {person}" for person in ("person:anna", "person:bob")]
        assert sorted(await hf.run(run.id).result(timeout=60)) == wanted


async def test_an_answer_that_is_sent_again_is_known_under_another_key(
    store_url: str, keys: Sealed, cli: Cli
) -> None:
    """Somebody whose reply got lost sends an answer again, and meanwhile the key was changed: before everything is sealed anew
    and after it, it is the same answer."""
    keys(ONE)
    async with Holdfast(store_url, config=FAST, alerts={"public_url": "https://holdfast.example"}) as hf:
        await hf.start(flows.asks_two.using(id="asks"))
        await hf.start(flows.delivered.using(id="call"), CANARY)
        while not flows.seen or not (found := await hf.asks.list()):  # noqa: ASYNC110  others ask
            await asyncio.sleep(0.01)
        assert (await hf.callbacks.answer("call", f"{CANARY}!")).new
        assert await hf.run("call").result(timeout=60) == f"{CANARY}!"
    ask = found[0].id

    async def again(*, is_new: bool) -> None:
        async with Holdfast(store_url, roles=()) as hf:
            assert (await hf.asks.answer(ask, CANARY, by="person:anna")).new is is_new
            assert not (await hf.callbacks.answer("call", f"{CANARY}!")).new
            with pytest.raises(WrongState, match="has answered this already"):
                await hf.asks.answer(ask, "something else", by="person:anna")
            with pytest.raises(Gone):
                await hf.callbacks.answer("call", "something else")

    await again(is_new=True)
    await again(is_new=False)
    keys(f"{TWO},{ONE}")
    await again(is_new=False)
    cli("keys", "reseal")
    await again(is_new=False)
    keys(TWO)
    await again(is_new=False)
    assert CANARY not in everything(store_url)


async def test_a_batch_that_gathers_while_the_store_is_sealed_loses_nothing(
    store_url: str, keys: Sealed, cli: Cli
) -> None:
    """Its items came before there were keys, and it begins with all of them. Then it can be sealed, too."""
    keys("")
    async with Holdfast(store_url, roles=()) as hf:
        run, _ = [await hf.start(flows.gathers, [f"{CANARY} {letter}"]) for letter in ("one", "two")]
    keys(ONE)
    assert cli("keys", "reseal", "--json").json["missing"] == []
    async with Holdfast(store_url, config=FAST) as hf:
        assert await hf.run(run.id).result(timeout=60) == f"{CANARY} one,{CANARY} two"
    cli("keys", "reseal")
    assert CANARY not in everything(store_url)


class Interrupted(Seals):
    """Somebody who seals anew, and before whom something happens when it reaches the events, which come last."""

    def __init__(self, store: Store, deed: Callable[[], Awaitable[None]]) -> None:
        super().__init__(store.database)
        self._deeds = [deed]

    async def rows(self, table: Table, after: Sequence[str | int | bool], limit: int) -> list[SealedRow]:
        if table.name == "events" and self._deeds:
            await self._deeds.pop()()
        return await super().rows(table, after, limit)


async def test_an_event_that_is_taken_while_it_is_sealed_anew_keeps_no_old_key(
    store_url: str, keys: Sealed
) -> None:
    """An event came before the wait, and its data is copied to where resealing has been already. What nobody has taken yet is
    sealed anew where it is."""
    keys(ONE)
    async with Holdfast(store_url, roles=()) as hf:
        for run_id in ("soon", "later"):
            await hf.start(flows.takes.using(id=run_id), run_id)
            await hf.emit("letter.came", f"{CANARY} {run_id}", subject=run_id)
        await hf.run("later").hold()
    assert CANARY not in everything(store_url)
    keys(f"{TWO},{ONE}")

    async def take() -> None:
        async with Holdfast(store_url, config=FAST) as hf:
            assert await hf.run("soon").result(timeout=60) == f"{CANARY} soon"

    here = keys_here(os.environ, os.urandom)
    assert here is not None
    store = open_store(store_url, Environment())
    store.keys = None
    await store.open()
    try:
        seals, unknown = Interrupted(store, take), set[str]()
        change = anew(here, await digest_key(seals, here, dry_run=False), unknown)
        await reseal_all(seals, change, batch=5, seen=lambda table, read, changed: None)
        assert unknown == set()
    finally:
        await store.close()
    assert '"one.' not in everything(store_url)
    keys(TWO)
    async with Holdfast(store_url, config=FAST) as hf:
        await hf.run("later").release()
        assert await hf.run("later").result(timeout=60) == f"{CANARY} later"
    assert CANARY not in everything(store_url)


async def test_a_store_that_was_open_is_sealed_later(store_url: str, keys: Sealed, cli: Cli) -> None:
    """What was written before there were keys is read as it is, and sealed by `keys reseal`."""
    keys("")
    async with Holdfast(store_url, config=FAST) as hf:
        await hf.start(flows.letters.using(id="open"), CANARY)
        await until_waiting(hf, "open")
    assert CANARY in everything(store_url)
    keys(ONE)
    async with Holdfast(store_url, config=FAST) as hf:
        await until_waiting(hf, "open")
    cli("keys", "reseal")
    assert CANARY not in everything(store_url)
    async with Holdfast(store_url, config=FAST) as hf:
        await flows.more.send("open", "now")
        assert (await hf.run("open").result(timeout=60)) == f"{CANARY}!now!child of {CANARY}!"


async def test_a_start_is_known_again_after_its_store_was_sealed(
    store_url: str, keys: Sealed, cli: Cli
) -> None:
    """Also one that a debounced run took. What is compared is hidden by then."""
    for key in ("", ONE):
        keys(key)
        async with Holdfast(store_url, roles=()) as hf:
            assert (await hf.start(flows.letter.using(id="r"), CANARY)).id == "r"
            assert (await hf.start(flows.newest.using(id="d"), CANARY)).id == "d"
            with pytest.raises(Conflict):
                await hf.start(flows.newest.using(id="d"), "another")
        keys(ONE)
        cli("keys", "reseal")
    assert CANARY not in everything(store_url)


async def test_another_key_is_refused_when_the_store_is_opened(store_url: str, keys: Sealed) -> None:
    keys(ONE)
    async with Holdfast(store_url, roles=()):
        pass
    keys(TWO)
    with pytest.raises(StoreSealed, match=r"sealed with the key 'one', and HOLDFAST_KEYS has only two"):
        async with Holdfast(store_url, roles=()):
            pass


async def test_without_keys_nothing_is_written_and_nothing_is_read(
    store_url: str, keys: Sealed, cli: Cli
) -> None:
    """A process without keys lists and shows what is sealed as sealed. It starts nothing, and a run that it would have
    to read is held with the key's name."""
    keys(ONE)
    async with Holdfast(store_url, config=FAST) as hf:
        await written(hf)
        await hf.start(flows.letters.using(id="open"), CANARY)
        await until_waiting(hf, "open")
    keys("")
    for words in (["show", "r"], ["logs", "r"], ["show", "r", "--json"], ["why", "open"], ["ps"], ["doctor"]):
        shown = cli(*words)
        assert CANARY not in shown.out
    assert "sealed with the key 'one'" in cli("logs", "r").out
    async with Holdfast(store_url, config=FAST) as hf:
        with pytest.raises(StoreSealed, match="has no keys"):
            await hf.start(flows.letters, "x")
        with pytest.raises(StoreSealed, match="has no keys"):
            await flows.more.send("open", "x")
        with pytest.raises(InvalidInput, match="sealed with the key 'one'"):
            await hf.run("r").result(timeout=60)
    keys(ONE)
    async with Holdfast(store_url, roles=()) as hf:
        await flows.more.send("open", "late")
    keys("")
    async with Holdfast(store_url, config=FAST) as hf:
        await until_state(hf, "open", RunState.HELD)
        assert "'one'" in await hf.run("open").why()
    keys(ONE)
    async with Holdfast(store_url, config=FAST) as hf:
        await hf.run("open").release()
        assert (await hf.run("open").result(timeout=60)) == f"{CANARY}!late!child of {CANARY}!"


async def until_state(hf: Holdfast, run_id: str, state: RunState) -> None:
    while (await hf.run(run_id).info()).state is not state:  # noqa: ASYNC110  another role moves the run
        await asyncio.sleep(0.01)


async def test_what_looks_sealed_is_not_opened_for_who_sent_it(store_url: str, keys: Sealed) -> None:
    """Somebody who copies a sealed payload into the input of a run of theirs does not learn what it says."""
    keys(ONE)
    async with Holdfast(store_url, config=FAST) as hf:
        await written(hf)
        store = open_store(store_url, Environment())
        store.keys = None
        await store.open()
        row = await store.reads.run("r")
        await store.close()
        assert row is not None
        copied = row.input.decode()
        assert "$sealed" in copied
        run = await hf.start(flows.letter, copied)
        assert await run.result(timeout=60) == f"child of {copied}!"


# --- secrets ----------------------------------------------------------------------------------------------------------


async def test_a_secret_reaches_its_step_and_nobody_else(
    store_url: str, keys: Sealed, cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    """The step gets what the secret says. Errors, logs, commands and the view of a run have dots in its place."""
    keys(ONE)
    card = Card(Secret(CANARY), "nobody")
    async with Holdfast(store_url, config=FAST) as hf:
        run = await hf.start(flows.pay.using(id="p"), card)
        with pytest.raises(RunFailed) as failed:
            await run.result(timeout=60)
        assert flows.seen == [CANARY]
        assert CANARY not in str(failed.value)
        assert CANARY not in str((await run.view()).run.input)
        assert all(CANARY not in line.message for line in await run.logs())
    for words in (["show", "p"], ["show", "p", "--json"], ["logs", "p"], ["why", "p"]):
        shown = cli(*words)
        assert CANARY not in shown.out + shown.errors
    assert "•••" in cli("show", "p").out
    assert CANARY not in everything(store_url)


async def test_what_leaves_by_traces_and_by_a_server_has_no_secret(
    store_url: str, keys: Sealed, caplog: pytest.LogCaptureFixture
) -> None:
    """Spans have no payload at all, sealed or not. Figures, pages, answers and refusals have no secret, and a refused sign-on
    says nothing of its token."""
    keys(ONE)
    seen = Seen()
    EXPORTER.clear()
    card = Card(Secret(CANARY), "nobody")
    async with issuing() as host:
        issuer = Issuer(host.settings(), Environment())
        traced = msgspec.structs.replace(FAST, traces=True)
        async with Holdfast(store_url, config=traced) as hf:
            await written(hf)
            run = await hf.start(flows.pay.using(id="p"), card)
            with pytest.raises(RunFailed):
                await run.result(timeout=60)
            assert seen.named(flows.charge.name)
            assert seen.named("signal more")
            assert CANARY not in seen.text()
            app = make_app(Server(hf, hf.desk, is_loopback=True, issuer=issuer))
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
                good = {"Authorization": f"Bearer {host.token()}", "Holdfast-Namespace": "default"}
                bad = {"Authorization": f"Bearer {host.token(sub=CANARY, groups=[CANARY], exp=1)}"}
                start = {"workflow": flows.pay.name, "input": {"card": {"number": CANARY}}, "id": "bad"}
                caplog.clear()
                for path in ("/metrics", "/runs/p", "/v1/runs/p", "/v1/runs/p/why", "/v1/runs/p/steps"):
                    shown = await client.get(path, headers=good)
                    assert shown.status_code == 200, path
                    refused = await client.get(path, headers=bad)
                    assert refused.status_code == 401
                    assert CANARY not in shown.text + refused.text, path
                wrong = await client.post("/v1/runs", json=start, headers=good)
                assert wrong.status_code == 422
                assert CANARY not in wrong.text
                assert CANARY not in caplog.text
                assert CANARY not in seen.text()
        await issuer.close()
    assert CANARY not in everything(store_url)


async def test_what_was_open_is_out_of_the_file_after_a_vacuum(
    tmp_path: Path, sqlite_migrated: Path, keys: Sealed
) -> None:
    """As the page on security says: sealing rows anew leaves what they said in free pages and in the log."""
    file = tmp_path / "holdfast.db"
    shutil.copyfile(sqlite_migrated, file)
    url = f"sqlite:///{file}"
    cli = Cli(tmp_path, url)

    def said() -> bytes:
        return b"".join(one.read_bytes() for one in tmp_path.glob("holdfast.db*") if one.is_file())

    keys("")
    async with Holdfast(url, config=FAST) as hf:
        run = await hf.start(flows.letter, f"{CANARY} " * 1000)
        await run.result(timeout=60)
    assert CANARY.encode() in said()
    keys(ONE)
    cli("keys", "reseal")
    assert CANARY not in everything(url)
    with closing(apsw.Connection(str(file))) as database:
        database.execute("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")
    assert CANARY.encode() not in said()


@pytest.mark.parametrize("name", ["$secret", "\\u0024secret", "$\\u0073ecret"])
async def test_a_secret_in_an_event_in_what_people_see_and_in_what_they_answer_is_not_shown(
    store_url: str, keys: Sealed, cli: Cli, name: str
) -> None:
    """By the server, its pages, a link and commands, however the sender has written the JSON."""
    keys(ONE)
    card = f'{{"number": {{"{name}": "{CANARY}"}}, "holder": "anna"}}'
    event = f'{{"specversion": "1.0", "type": "card.came", "source": "shop", "id": "1", "data": {card}}}'
    async with Holdfast(store_url, config=FAST) as hf:
        app = make_app(Server(hf, hf.desk, is_loopback=True))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            sent = await client.post(
                "/v1/events", content=event, headers={"Content-Type": "application/cloudevents+json"}
            )
            assert sent.status_code == 202, sent.text
            run = hf.run(sent.json()["items"][0]["started"][0])
            while not (found := await hf.asks.list()):  # noqa: ASYNC110  the scheduler asks
                await asyncio.sleep(0.01)
            ask, link = found[0].id, await hf.asks.link(found[0].id, "person:anna")
            path = f"/v1/asks/{ask}"
            looks = [path, "/v1/asks", "/v1/events/shop/1", f"/v1/runs/{run.id}", f"/v1/runs/{run.id}/steps"]
            looks += [
                link,
                "/asks",
                f"/asks/{ask}",
                "/events",
                f"/runs/{run.id}",
                f"/v1/runs/{run.id}/journal",
            ]

            async def look(*more: str) -> str:
                said = [(await client.get(each)).text for each in (*looks, *more)]
                shown = [cli(*words).out for words in (["asks", ask, "--json"], ["events", "shop", "1"])]
                return "\n".join([*said, *shown])

            before = await look()
            assert before.count("•••") >= 5
            assert CANARY not in before
            answer = await client.post(
                f"{path}/answer",
                content=f'{{"value": {card}, "by": "person:anna"}}',
                headers={"Content-Type": "application/json"},
            )
            assert answer.status_code == 200, answer.text
            assert await run.result(timeout=60) == "charged anna"
            after = await look("/v1/asks?ended=true")
            assert CANARY not in answer.text + after
            ((given,),) = [one.answers for one in await hf.asks.list(ended=True)]
            assert CANARY not in str(bytes(given.value))
    assert CANARY not in everything(store_url)


async def test_nobody_sends_a_secret_to_a_store_without_keys(
    store_url: str, keys: Sealed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the process that takes it does not have the code, and so never makes a `Secret` of it."""
    keys("")
    async with Holdfast(store_url, config=FAST):
        pass  # declares the workflows
    monkeypatch.setattr(registry, "workflows", {})
    async with Holdfast(store_url, roles=("server",)) as hf:
        app = make_app(Server(hf, hf.desk, is_loopback=True))
        transport = httpx2.ASGITransport(app=app)
        card = {"number": {"$secret": CANARY}, "holder": "anna"}
        event = {"specversion": "1.0", "type": "x", "source": "s", "id": "1", "data": card}
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for path, body in {
                "/v1/runs": {"workflow": flows.pay.name, "input": {"card": card}},
                "/v1/events": event,
            }.items():
                kind = "application/cloudevents+json" if "events" in path else "application/json"
                refused = await client.post(path, content=json.dumps(body), headers={"Content-Type": kind})
                assert refused.status_code == 422, refused.text
                assert "HOLDFAST_KEYS" in refused.text
                assert CANARY not in refused.text
    assert CANARY not in everything(store_url)


async def test_a_secret_needs_a_sealed_store(store_url: str, keys: Sealed) -> None:
    keys("")
    async with Holdfast(store_url, config=FAST):
        with pytest.raises(InvalidSettings, match="HOLDFAST_KEYS"):
            Secret("4242")


async def test_a_secret_is_no_argument_of_a_schedule(store_url: str, keys: Sealed) -> None:
    """The leader starts its runs without keys, so the store has the arguments as they are. It is refused in code, by a
    program and over HTTP."""
    keys(ONE)
    card = Card(Secret(CANARY), "anna")
    said = "the arguments of a schedule can be read by everybody"
    with pytest.raises((DefinitionError, InvalidInput), match=said):
        every("@daily", name="in code")(flows.pay, card)
    async with Holdfast(store_url, config=FAST) as hf:
        with pytest.raises(InvalidInput, match=said):
            await hf.schedules.create(every("@daily", name="daily"), flows.pay, card)
        app = make_app(Server(hf, hf.desk, is_loopback=True))
        transport = httpx2.ASGITransport(app=app)
        body: dict[str, Any] = {"workflow": flows.pay.name, "times": "@daily", "name": "daily"}
        body |= {"input": {"card": {"number": {"$secret": CANARY}, "holder": "anna"}}}
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            refused = await client.post("/v1/schedules", json=body)
        assert (refused.status_code, said in refused.text) == (422, True), refused.text
        assert await hf.schedules.list() == []
    assert CANARY not in everything(store_url)


async def test_who_has_made_a_secret_opens_no_store_without_keys(store_url: str, keys: Sealed) -> None:
    keys("")
    Secret("4242")
    with pytest.raises(InvalidSettings, match="HOLDFAST_KEYS"):
        async with Holdfast(store_url, config=FAST):
            pass
