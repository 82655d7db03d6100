"""Alerts reach people once, through every channel that works, whoever leads."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.breaker import BreakerChange
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import RunFailed
from holdfast.model import AlertKind, BreakerState, Level, NewAlert, RunState
from holdfast.store import answers, open_store
from holdfast.store.answers import Answer
from holdfast.store.operations import Hop
from holdfast.store.store import Store
from holdfast.supervisor.alerts import watch_backlog
from holdfast.supervisor.breakers import alert_on_breakers
from holdfast.supervisor.channels import Channel, Notice
from holdfast.supervisor.channels.settings import load_channels
from holdfast.supervisor.outbox import Outbox, attempt
from holdfast.supervisor.pools import watch_pools
from holdfast.supervisor.quarantine import clear_released
from holdfast.supervisor.stragglers import Stragglers
from tests.roles import flows
from tests.roles.conftest import FAST, until
from tests.roles.receivers import Program, certificate, post, web
from tests.store.made import LONG_S, A, closing, join, new_run

SECRET = "s3cret-canary"
QUICK = msgspec.structs.replace(FAST, watch_s=0.05, alert_back_off_s=0.01, leader_lease_s=1.0)


def hook(port: int, **more: Any) -> dict[str, Any]:
    return {
        "type": "webhook",
        "url": f"http://localhost:{port}/hook",
        "allow": ["127.0.0.0/8", "::1"],
        **more,
    }


def settings(**channels: dict[str, Any]) -> dict[str, Any]:
    return {"channels": channels}


def one_channel(channel: dict[str, Any], **secrets: str) -> Channel:
    return load_channels(settings(c=channel), Environment(), secrets)[0]


def notice(**more: Any) -> Notice:
    values: dict[str, Any] = {"delivery": "d-1", "event": "raised", "kind": "run failed", "level": "error"}
    return Notice(**(values | {"message": "it failed"} | more))


async def until_store(true: Callable[[], Any], limit_s: float = 60.0) -> None:
    async with asyncio.timeout(limit_s):
        while not await true():  # noqa: ASYNC110  what the store has gives no event
            await asyncio.sleep(0.02)


# --- from a run to a person -----------------------------------------------------------------------------------------


async def test_a_failed_run_is_reported_once_through_every_channel(
    store_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For two failures of one workflow, webhook, mail and program get one notice each, and the log has one line."""
    program = Program(tmp_path)
    caplog.set_level(logging.INFO, "holdfast.alerts")
    async with web() as server, post() as office:
        alerts = settings(
            ops=hook(server.port),
            mail={
                "type": "email",
                "host": "localhost",
                "port": office.port,
                "tls": "none",
                "from": "holdfast@example.com",
                "to": ["ops@example.com"],
            },
            pager={"type": "command", "argv": program.argv},
        )
        async with Holdfast(store_url, config=QUICK, alerts=alerts) as hf:
            for n in (1, 2):
                run = await hf.start(flows.fails.using(id=f"bad-{n}"), "no luck")
                with pytest.raises(RunFailed):
                    await run.result(60)
            await until(lambda: bool(server.requests and office.letters and program.notices))

            async def counted() -> bool:
                return (await hf.store.alerts.open_alerts(10))[0].times == 2

            await until_store(counted)
            await until(lambda: any(line.startswith("run failed") for line in caplog.messages))
            (alert,) = await hf.store.alerts.open_alerts(10)
            deliveries = await hf.store.alerts.deliveries([alert.id])
        assert len(server.requests) == len(office.letters) == len(program.notices) == 1
    body = server.bodies[0]
    assert (body["kind"], body["level"], body["run"], body["event"]) == (
        "run failed",
        "error",
        "bad-1",
        "raised",
    )
    assert body["text"].startswith("[error] run failed: run bad-1 of")
    assert "no luck" in body["message"]
    assert {body["delivery"], program.notices[0]["delivery"]} < {one.id for one in deliveries}
    assert "Subject: [holdfast] error: run failed: run bad-1" in office.letters[0]
    assert "holdfast show bad-1" in office.letters[0]
    assert len([line for line in caplog.messages if line.startswith("run failed: run bad-1")]) == 1


async def test_a_step_that_gives_up_raises_an_alert_though_its_run_goes_on(hf_quick: Holdfast) -> None:
    """The workflow handles it, and a person still gets an alert."""
    assert await (await hf_quick.start(flows.times_out.using(id="t"), "x")).result(60)

    async def is_raised() -> bool:
        return any(
            one.kind == AlertKind.STEP_EXHAUSTED for one in await hf_quick.store.alerts.open_alerts(10)
        )

    await until_store(is_raised)
    (alert,) = await hf_quick.store.alerts.open_alerts(10)
    assert (alert.level, alert.run_id) == ("warning", "t")
    assert "gave up after 2 attempts" in alert.message


@pytest.fixture
async def hf_quick(store_url: str) -> Any:
    async with Holdfast(store_url, config=QUICK) as hf:
        yield hf


async def test_a_backlog_is_reported_and_cleared(store_url: str) -> None:
    """A step that no agent can take waits longer than its limit. When one takes it, a second notice says so."""
    config = msgspec.structs.replace(QUICK, backlog_s=0.3, leader_lease_s=0.5)
    async with web() as server:
        alerts = settings(ops=hook(server.port))
        async with Holdfast(store_url, config=config, alerts=alerts) as hf:
            run = await hf.start(flows.renders.using(id="g"))
            await until(lambda: len(server.requests) == 1)
            async with Holdfast(store_url, config=config, roles=["agent"], labels=["gpu"]):
                await run.result(60)
                await until(lambda: len(server.requests) == 2)
    assert [(body["kind"], body["event"]) for body in server.bodies] == [
        ("backlog", "raised"),
        ("backlog", "cleared"),
    ]
    assert "`holdfast why g`" in server.bodies[0]["message"]


async def test_an_alert_is_compared_with_those_of_its_own_kind(store_url: str) -> None:
    """However many runs are stuck, every other lasting trouble is raised once, and cleared when it is over: a breaker,
    a backlog, a window, poison, a pool in trouble, a straggler."""
    store, config = open_store(store_url, Environment()), Config(claim_max=500)
    await store.open()
    await join(store)
    epoch = await store.leader.lead(A, LONG_S)
    assert epoch is not None
    await store.gates.observe(
        [answers.Observation("stripe", 0, 30, "ConnectionError: refused")], config.breaker_window_s
    )
    assert await store.gates.change_breaker(
        epoch, "stripe", 0, BreakerChange(BreakerState.OPEN, 0, LONG_S, "30 of 30 failed")
    )
    assert await alert_on_breakers(store, epoch, config) == 1
    over = [AlertKind.BACKLOG, AlertKind.STEP_QUARANTINED, AlertKind.POOL_TROUBLE, AlertKind.STRAGGLER]
    old = [NewAlert(kind, Level.WARNING, f"{kind}:x", "it was so") for kind in [*over, AlertKind.RUN_FAILED]]
    await store.alerts.raise_alerts(epoch, old)
    stuck = [new_run(f"stuck-{i}") for i in range(600)]
    now = Environment().now()
    assert set(await store.batches.commit(A, [Hop(run.id, 1, begin=run, begun_at=now) for run in stuck])) == {
        Answer.ACCEPTED
    }
    failure = '{"type": "builtins.ValueError", "message": "no"}'
    for run in stuck:
        closed = closing(RunState.STUCK, error=failure)
        assert await store.batches.commit(A, [Hop(run.id, 1, close=closed)]) == [Answer.ACCEPTED]
    assert len(await store.alerts.open_alerts(1000)) == 606

    async def known(kind: AlertKind) -> list[int]:
        return [one.times for one in await store.alerts.open_alerts_of(kind, 0, 10)]

    for _ in range(3):
        assert await alert_on_breakers(store, epoch, config) == 0
    assert await known(AlertKind.BREAKER_OPEN) == [1], "it was raised once, and is not again"
    assert await store.gates.change_breaker(
        epoch, "stripe", 1, BreakerChange(BreakerState.CLOSED, note="well")
    )
    await alert_on_breakers(store, epoch, config)
    kinds = await store.alerts.open_kinds()
    await watch_backlog(store, epoch, config, now + config.alert_window_s + 60, kinds)
    await clear_released(store, epoch, config, kinds)
    await watch_pools(store, epoch, config, kinds)
    await Stragglers(store, Environment(), config).watch(epoch, now, kinds)
    assert {one.kind for one in await store.alerts.open_alerts(1000)} == {AlertKind.RUN_STUCK}
    assert len(await store.alerts.open_alerts(1000)) == 600, "a stuck run's stays until a person moves it"
    await store.close()


async def test_a_lost_leader_is_reported(store_url: str) -> None:
    """The next leader raises the alert. A leader that resigned is not missed."""
    store = open_store(store_url, Environment())
    await store.open()
    await store.leader.lead("somebody", 0.2)
    config = msgspec.structs.replace(QUICK, leader_lease_s=60.0)
    async with Holdfast(store_url, config=config) as hf:

        async def is_raised() -> bool:
            return any(one.kind == AlertKind.LEADER_LOST for one in await store.alerts.alerts())

        await until_store(is_raised)
        assert "leader somebody is lost" in (await store.alerts.alerts())[0].message
        await store.alerts.clear_alerts(
            (await hf.store.leader.leader() or ("", 0))[1], [(await store.alerts.alerts())[0].id]
        )
    async with Holdfast(store_url, config=config):
        assert await store.alerts.open_alerts(10) == []
    await store.close()


# --- the outbox -----------------------------------------------------------------------------------------------------


class RecordingChannel(Channel):
    """A channel that records its notices, and fails a given number of times."""

    type = "recording"

    def __init__(self, name: str, failures: int = 0) -> None:
        super().__init__(name, environment=Environment(), timeout_s=5.0, level="info", kinds=())
        self.failures = failures
        self.notices: list[Notice] = []
        self.gate: asyncio.Event | None = None

    async def send(self, notice: Notice) -> None:
        self.notices.append(notice)
        if self.gate is not None:
            await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise ConnectionError("out of reach")


@pytest.fixture
async def store(store_url: str) -> Any:
    store = open_store(store_url, Environment())
    await store.open()
    yield store
    await store.close()


async def raise_one(store: Store, key: str = "k") -> None:
    epoch = await store.leader.lead("leader", 3600.0)
    assert epoch is not None
    assert await store.alerts.raise_alerts(
        epoch, [NewAlert(AlertKind.RUN_FAILED, Level.ERROR, key, "it failed", "r")]
    )


async def work(*outboxes: Outbox, done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not done():
            for outbox in outboxes:
                await outbox.tick()
            await asyncio.sleep(0.01)


async def idle(*outboxes: Outbox) -> None:
    """Run some more passes, so that anything that would still be sent is sent."""
    for _ in range(5):
        for outbox in outboxes:
            await outbox.tick()
        await asyncio.sleep(0.03)


async def test_a_failed_delivery_is_tried_again_and_stays_the_same_delivery(store: Store) -> None:
    """It keeps its id until it is accepted, and is never sent again after that."""
    channel = RecordingChannel("c", failures=2)
    outbox = Outbox(store.alerts, "n", [channel], Environment(), QUICK)
    await raise_one(store)
    await work(outbox, done=lambda: len(channel.notices) == 3)
    await idle(outbox)
    assert len(channel.notices) == 3
    assert len({one.delivery for one in channel.notices}) == 1
    (row,) = await store.alerts.deliveries([(await store.alerts.alerts())[0].id])
    assert (row.attempts, row.last_error, row.sent_at is not None) == (3, None, True)
    await outbox.close()


async def test_a_bad_channel_does_not_stop_the_others_and_is_given_up(store: Store) -> None:
    """One channel hangs, one fails for ever, and one works."""
    hangs, fails, works = (
        RecordingChannel("hangs"),
        RecordingChannel("fails", failures=1000),
        RecordingChannel("works"),
    )
    hangs.gate = asyncio.Event()
    config = msgspec.structs.replace(QUICK, alert_tries_max=3)
    outbox = Outbox(store.alerts, "n", [hangs, fails, works], Environment(), config)
    await raise_one(store, "a")
    await work(outbox, done=lambda: len(works.notices) == 1)
    await raise_one(store, "b")
    await work(outbox, done=lambda: len(works.notices) == 2)
    await work(outbox, done=lambda: len(fails.notices) == 6)
    await idle(outbox)
    assert len(fails.notices) == 6
    rows = await store.alerts.deliveries([one.id for one in await store.alerts.alerts()])
    gone = [row for row in rows if row.channel == "fails"]
    assert all(
        row.given_up_at is not None and row.last_error == "ConnectionError: out of reach" for row in gone
    )
    await outbox.close()


async def test_two_supervisors_send_once(store: Store, store_url: str) -> None:
    """Both have the channel, and one has the lease."""
    other = open_store(store_url, Environment())
    await other.open()
    channel = RecordingChannel("c")
    outboxes = [
        Outbox(door.alerts, node, [channel], Environment(), QUICK)
        for door, node in ((store, "a"), (other, "b"))
    ]
    for n in range(5):
        await raise_one(store, f"k{n}")
    await work(*outboxes, done=lambda: len(channel.notices) >= 5)
    await idle(*outboxes)
    assert len(channel.notices) == 5
    for outbox in outboxes:
        await outbox.close()
    await other.close()


async def test_who_lost_the_lease_sends_nothing(store: Store) -> None:
    """It believes that it has the lease, but the store knows better: its claim finds no row."""
    old, new = RecordingChannel("c"), RecordingChannel("c")
    deposed = Outbox(store.alerts, "old", [old], Environment(), QUICK)
    await deposed.tick()
    assert deposed.epoch is not None
    await store.leader.resign("old")
    heir = Outbox(store.alerts, "new", [new], Environment(), QUICK)
    await heir.tick()
    await raise_one(store)
    await work(heir, done=lambda: len(new.notices) == 1)
    await raise_one(store, "other")
    await heir._route(heir.epoch or 0)
    await deposed._send_due(old)
    assert old.notices == []
    await work(heir, done=lambda: len(new.notices) == 2)
    await heir.close()
    await deposed.close()


async def test_a_crash_between_sending_and_recording_sends_once_more(store: Store) -> None:
    """It keeps its delivery id, by which the receiver recognizes it."""
    first, second = RecordingChannel("c"), RecordingChannel("c")
    first.gate = asyncio.Event()
    doomed = Outbox(store.alerts, "a", [first], Environment(), QUICK)
    await raise_one(store)
    await work(doomed, done=lambda: len(first.notices) == 1)
    await doomed.close()
    await store.leader.resign("a")
    heir = Outbox(store.alerts, "b", [second], Environment(), QUICK)
    await idle(heir)
    assert second.notices == [], "the claim is kept for a while"
    (row,) = await store.alerts.deliveries([(await store.alerts.alerts())[0].id])
    assert heir.epoch is not None
    assert await store.alerts.end_delivery(heir.epoch, row.id, row.attempts, "unknown", 0.0)
    await work(heir, done=lambda: len(second.notices) == 1)
    assert second.notices[0].delivery == first.notices[0].delivery
    await heir.close()


async def test_a_store_that_is_away_is_reported_without_it(store_url: str) -> None:
    """The supervisor that had the lease says so once, and says once that the store is back."""
    store = open_store(store_url, Environment())
    await store.open()
    channel = RecordingChannel("c")
    config = msgspec.structs.replace(QUICK, store_trouble_s=0.1)
    outbox = Outbox(store.alerts, "n", [channel], Environment(), config)
    await outbox.tick()
    await store.close()
    for _ in range(10):
        with pytest.raises(Exception, match="not open"):
            await outbox.tick()
        await asyncio.sleep(0.05)
    assert [(one.kind, one.event) for one in channel.notices] == [("store trouble", "raised")]
    await store.open()
    await outbox.tick()
    assert [one.event for one in channel.notices] == ["raised", "cleared"]
    await outbox.close()
    await store.close()


# --- channels -------------------------------------------------------------------------------------------------------


async def test_a_webhook_is_signed() -> None:
    """The signature covers time, delivery and body: none of them can be changed or replayed."""
    async with web() as server:
        channel = one_channel(hook(server.port, secret_env="HOOK"), HOOK=SECRET)
        assert await attempt(channel, notice()) is None
    first, headers, body = server.requests[0]
    assert first == "POST /hook HTTP/1.1"
    assert (headers["Host"], headers["Holdfast-Delivery"]) == (f"localhost:{server.port}", "d-1")
    signed = f"{headers['Holdfast-Timestamp']}.d-1.".encode() + body
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert headers["Holdfast-Signature"] == f"v1={expected}"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433"])
async def test_a_webhook_to_this_host_is_refused_unless_named(host: str) -> None:
    """Nothing is connected to."""
    async with web() as server:
        channel = one_channel({"type": "webhook", "url": f"http://{host}:{server.port}/hook"})
        error = await attempt(channel, notice())
        assert error is not None
        assert "not a public address" in error or "cannot be resolved" in error
        assert server.requests == []


async def test_a_name_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address that was checked is the one that is connected to. A second answer of the name server changes
    nothing."""
    import socket

    async with web() as server:
        asked: list[str] = []
        real = socket.getaddrinfo

        def rebinding(host: str, *arguments: Any, **more: Any) -> Any:
            if host == "rebind.example":
                asked.append(host)
                return real("127.0.0.2" if len(asked) == 1 else "127.0.0.1", *arguments, **more)
            return real(host, *arguments, **more)

        monkeypatch.setattr(socket, "getaddrinfo", rebinding)
        url = f"http://rebind.example:{server.port}/hook"
        channel = one_channel({"type": "webhook", "url": url, "allow": ["127.0.0.2"]})
        error = await attempt(channel, notice())
        assert asked == ["rebind.example"]
        assert error is not None
        assert "cannot connect" in error
        assert server.requests == []


@pytest.mark.parametrize("answer", ["301 Moved", "302 Found", "307 Again", "308 Gone"])
async def test_redirects_are_not_followed(answer: str) -> None:
    """This holds wherever they lead."""
    async with web() as inner, web(f"{answer}\r\nLocation: http://127.0.0.1:{inner.port}/") as server:
        error = await attempt(one_channel(hook(server.port)), notice())
        assert error is not None
        assert "redirects are not followed" in error
        assert inner.requests == []


@pytest.mark.parametrize(
    ("answer", "says"),
    [("500 No", "it answered 500"), ("404 No", "it answered 404"), (None, "no answer within")],
)
async def test_a_webhook_that_is_not_taken_says_why(answer: str | None, says: str) -> None:
    """The list of alerts gets the reason in words."""
    async with web(answer) as server:
        error = await attempt(one_channel(hook(server.port, timeout_s=0.3)), notice())
        assert error is not None
        assert says in error


async def test_tls_is_that_of_the_name(tmp_path: Path) -> None:
    """The channel connects to the address that was checked. The certificate must be for the name, from a trusted
    authority."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    context, authority = certificate(good, "localhost")
    wrong, other = certificate(bad, "elsewhere.example")

    async def failure(port: int, ca_file: str | None) -> str | None:
        channel = hook(port, url=f"https://localhost:{port}/hook", ca_file=ca_file)
        return await attempt(one_channel(channel), notice())

    async with web(tls=context) as server, web(tls=wrong) as stranger:
        assert await failure(server.port, authority) is None
        assert "certificate is not valid" in str(await failure(server.port, None))
        assert "certificate is not valid" in str(await failure(stranger.port, other))
        assert stranger.requests == []


async def test_mail_goes_by_starttls_with_a_login(tmp_path: Path) -> None:
    """The password is sent only under TLS, to a server whose certificate is for its name."""
    context, authority = certificate(tmp_path, "localhost")
    async with post(context) as office:
        mail = {
            "type": "email",
            "host": "localhost",
            "port": office.port,
            "from": "holdfast@example.com",
            "to": ["ops@example.com", "boss@example.com"],
            "user": "holdfast",
            "password_env": "PW",
            "ca_file": authority,
        }
        injected = notice(message="one\r\nBcc: thief@example.com", run="r")
        assert await attempt(one_channel(mail, PW=SECRET), injected) is None
        untrusted = one_channel(mail | {"ca_file": None}, PW=SECRET)
        assert "certificate is not valid" in str(await attempt(untrusted, notice()))
    (letter,) = office.letters
    assert "To: ops@example.com, boss@example.com" in letter
    assert "Message-ID: <d-1@holdfast>" in letter
    assert not any(line.startswith("Bcc:") for line in letter.partition("\r\n\r\n")[0].splitlines())
    assert len(office.logins) == 1


async def test_a_command_gets_the_notice_and_may_refuse_it(tmp_path: Path) -> None:
    """It gets JSON on standard input. A non-zero exit code, a missing program and one that hangs are failures."""
    program = Program(tmp_path)
    channel = one_channel({"type": "command", "argv": program.argv})
    assert await attempt(channel, notice(message="“quoted”; $(rm -rf /)")) is None
    assert program.notices[0]["message"] == "“quoted”; $(rm -rf /)"
    program.broken.touch()
    assert "exited with 7" in str(await attempt(channel, notice()))
    assert "cannot start" in str(
        await attempt(one_channel({"type": "command", "argv": ["/no/such"]}), notice())
    )
    slow = one_channel({"type": "command", "argv": ["sleep", "60"], "timeout_s": 0.2})
    assert "no answer within 0.2 s" in str(await attempt(slow, notice()))


async def test_secrets_stay_out_of_logs_rows_and_errors(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong, the error does not contain the address of a hook, its path or the shared secret."""
    caplog.set_level(logging.DEBUG)
    url = f"http://localhost:1/services/{SECRET}?token={SECRET}-2"
    monkeypatch.setenv("HOOK_URL", url)
    monkeypatch.setenv("HOOK", f"{SECRET}-3")
    channels = load_channels(
        settings(
            c={
                "type": "webhook",
                "url_env": "HOOK_URL",
                "secret_env": "HOOK",
                "allow": ["127.0.0.0/8", "::1"],
            }
        ),
        Environment(),
    )
    outbox = Outbox(
        store.alerts, "n", channels, Environment(), msgspec.structs.replace(QUICK, alert_tries_max=2)
    )
    await raise_one(store)

    async def given_up() -> bool:
        await outbox.tick()
        rows = await store.alerts.deliveries([one.id for one in await store.alerts.alerts()])
        return bool(rows) and rows[0].given_up_at is not None

    await until_store(given_up)
    rows = await store.alerts.deliveries([one.id for one in await store.alerts.alerts()])
    assert "cannot connect" in str(rows[0].last_error)
    assert channels[0].without_secrets(f"bad {url}") == "bad …"
    assert SECRET not in caplog.text + str(rows) + repr(channels)
    await outbox.close()
