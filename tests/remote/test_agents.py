"""Agents over HTTP: the same agent, with the same promises."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import msgspec
import pytest

from holdfast import Holdfast, RunFailed, StepInfo
from holdfast.http import doorway
from holdfast.model import RunState
from holdfast.remote import connection, store
from holdfast.store.claims import StepClaim
from holdfast.store.remotes import NewTurn
from holdfast.wire.agents import secret_of
from tests.http.conftest import FAST, bearer, made_token
from tests.remote import flows
from tests.remote.conftest import Faults, Served, eventually, served, through

WITHOUT_AGENT = ("scheduler", "supervisor", "server")
REMOTE = msgspec.structs.replace(FAST, lease_s=8.0)


@pytest.fixture(autouse=True)
def clean() -> None:
    flows.begun.clear()
    flows.cancelled.clear()
    flows.gate = asyncio.Event()


@pytest.fixture
async def at(store_url: str) -> AsyncIterator[Served]:
    """A server in a process that hosts everything but an agent."""
    async with served(store_url, WITHOUT_AGENT) as found:
        yield found


@asynccontextmanager
async def agent(at: Served, **given: object) -> AsyncIterator[Holdfast]:
    async with Holdfast(at.url, roles=["agent"], config=REMOTE, **given) as hf:  # type: ignore[arg-type]
        yield hf


async def test_it_executes_steps_of_every_kind(at: Served) -> None:
    """`async def` and `def` steps, alone and side by side."""
    async with agent(at):
        run = await at.hf.start(flows.sums, 5)
        assert await run.result(timeout=30) == 25
        wide = await at.hf.start(flows.wide, 300)
        assert await wide.result(timeout=30) == sum(range(1, 301))
    assert set(flows.begun.values()) == {1}


async def test_a_place_that_becomes_free_is_filled_at_once(at: Served) -> None:
    """An agent with one place for `async def` steps, and idle threads, does not wait for the end of the claim that it sent
    while the place was taken."""
    async with Holdfast(at.url, roles=["agent"], config=msgspec.structs.replace(REMOTE, steps_max=1)):
        assert await (await at.hf.start(flows.wide, 4)).result(timeout=connection.WAIT_S * 0.75) == 10


async def test_retries_errors_and_timeouts_are_those_of_the_code(at: Served) -> None:
    """The agent decides by the policy of its code, and errors come back as they were raised."""
    async with agent(at):
        assert await (await at.hf.start(flows.tries, 2)).result(timeout=30) == 3
        assert await (await at.hf.start(flows.late)).result(timeout=30) == "StepTimeout"
        assert await (await at.hf.start(flows.fails)).result(timeout=30) == "caught 'no such thing'"
        failed = await at.hf.start(flows.tries, 9)
        with pytest.raises(RunFailed) as wrong:
            await failed.result(timeout=30)
        assert isinstance(wrong.value.__cause__, ConnectionError)
    attempts = (await failed.view()).attempts
    assert [one.attempt for one in attempts] == [1, 2, 3]


async def test_checkpoints_and_logs_ride_along(at: Served) -> None:
    """`here.save` is written before it returns, and what a step logs is kept."""
    async with agent(at):
        saved = await at.hf.start(flows.saved)
        result = await saved.result(timeout=30)
        # An agent on a busy machine may lose an attempt, or hand it back, before or after it has saved.
        assert 2 <= result < sum(flows.begun.values())
        run = await at.hf.start(flows.tries.using(id="logs"), 1)
        await run.result(timeout=30)
        assert "it worked" in [line.message for line in await run.logs()]


async def test_a_cancelled_step_is_stopped(at: Served) -> None:
    """The stream says when to look, so a step whose run is cancelled stops soon."""
    async with agent(at):
        run = await at.hf.start(flows.held.using(id="stops"))
        await eventually(lambda: _true(bool(flows.begun)))
        await run.cancel()
        await eventually(lambda: _true(flows.cancelled == ["stops"]), 3.0)
        with pytest.raises(RunFailed):
            await run.result(timeout=30)


async def _true(value: bool) -> bool:
    return value


async def test_labels_and_tokens_decide_what_it_gets(at: Served) -> None:
    """A step goes to an agent with its labels. A token narrowed to steps or labels gets no others."""
    narrow = await made_token(at.hf, "agent", "*", can='["steps:remote.add", "labels:cpu"]')
    wide = await made_token(at.hf, "agent", "*")
    gpu = await at.hf.start(flows.renders)
    async with agent(at, token=narrow, labels=["gpu"]):
        assert await (await at.hf.start(flows.wide, 3)).result(timeout=30) == 6
        other = await at.hf.start(flows.tries, 0)
        assert await gpu.state() is RunState.RUNNING
        assert [step.state for step in await other.steps()] == ["ready"]
    async with agent(at, token=wide, labels=["gpu"]):
        assert await gpu.result(timeout=30) == "rendered"
        assert await other.result(timeout=30) == 1


@pytest.mark.parametrize("part", ["claim", "report", "beat", "agents"])
@pytest.mark.parametrize("fault", ["lose the request", "lose the reply", "double", "late"])
async def test_faults_on_the_way_cost_nothing(at: Served, part: str, fault: str) -> None:
    """Every third request of a kind meets a fault. Each step has its effect once, and no attempt is spent."""
    count = 0

    def plan(request: httpx2.Request) -> str:
        nonlocal count
        if not request.url.path.endswith(part):
            return ""
        count += 1
        return fault if count % 3 == 1 else ""

    async with through(Faults(plan), at.url, roles=["agent"], config=REMOTE):
        runs = [await at.hf.start(flows.sums.using(id=f"{part}-{n}"), 6) for n in range(8)]
        for run in runs:
            assert await run.result(timeout=60) == await _local()
    assert count > 0
    assert set(flows.begun.values()) == {1}
    for run in runs:
        steps = await run.steps()
        rows = [step._row for step in steps]
        assert [(row.attempt - row.excused, row.losses) for row in rows] == [(1, 0)] * len(rows)


async def _local() -> int:
    return 36


async def test_an_agent_whose_token_is_revoked_can_be_closed(
    at: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """It is like one that cannot reach the server: no bug is logged, and whoever has a good token goes on."""
    flows.begun.clear()
    token = await made_token(at.hf, "agent")
    agent = Holdfast(at.url, token=token, roles=["agent"], config=FAST)
    await agent.open()
    assert await at.hf.desk.tokens.revoke(at.hf.who, token.split("_")[2])

    async def is_refused() -> bool:
        return any("knows no such token" in one.getMessage() for one in caplog.records)

    await eventually(is_refused)
    await agent.close()
    assert [one.getMessage() for one in caplog.records if one.exc_info] == []
    async with Holdfast(at.url, token=await made_token(at.hf, "agent"), roles=["agent"], config=FAST):
        run = await at.hf.start(flows.wide, 2)
        assert await run.result(timeout=60) == 3


async def test_an_agent_that_is_refused_asks_more_and_more_rarely(
    at: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """When its lease has ended, it asks to join again. It says once that it may not, and each pause is twice as long."""
    tries: list[float] = []

    def plan(request: httpx2.Request) -> str:
        if request.url.path == "/v1/agents":
            tries.append(time.monotonic())
        return ""

    token = await made_token(at.hf, "agent")
    config = msgspec.structs.replace(REMOTE, lease_s=1.5)
    async with through(Faults(plan), at.url, token=token, roles=["agent"], config=config):
        assert await at.hf.desk.tokens.revoke(at.hf.who, token.split("_")[2])

        async def has_tried() -> bool:
            return len(tries) >= 8

        await eventually(has_tried)
    least_s = config.poll_s / 2 * (2**6 - 1)
    assert tries[7] - tries[1] >= least_s, "the first one is from before, and seven follow with six pauses"
    said = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert len([one for one in said if "may not join" in one]) == 1
    assert len([one for one in said if one.startswith("claiming steps")]) == 1


async def test_a_late_claim_takes_nothing(at: Served) -> None:
    """A claim whose turn is overtaken takes nothing, and a turn takes something once."""
    remotes = at.hf.store.remotes
    columns = ("here", 1, "agent", '{"steps": []}', 10, 30.0)
    assert await remotes.register("agent-one", columns, "", b"k" * 32) == b"k" * 32
    assert await remotes.register("agent-one", columns, "", b"x" * 32) == b"k" * 32
    assert await remotes.register("agent-one", columns, "another token", b"x" * 32) is None
    run = await at.hf.start(flows.wide.using(id="turns"), 6)
    await eventually(lambda: _ready(at, 6))
    lanes = [lane.id for lane in await at.hf.store.agents.lanes()]

    async def claim(turn: int, limit: int) -> int:
        found = await remotes.claim("agent-one", turn, [StepClaim("agent-one", lanes, limit)])
        return len(found or [])

    assert [await claim(1, 2), await claim(1, 2), await claim(3, 1), await claim(2, 1)] == [2, 0, 1, 0]
    steps = [(row.run_id, row.n, row.fence) for row in await at.hf.store.reads.steps(run.id) if row.agent]
    late, good, nobody = await remotes.begin_turns(
        [
            NewTurn("agent-one", 3, 30.0, []),
            NewTurn("agent-one", 5, 30.0, steps[:1]),
            NewTurn("nobody", 1, 30.0, []),
        ]
    )
    assert (late.is_overtaken, good.handed_back, nobody.is_member) == (True, 2, False)
    assert [await claim(4, 1), await claim(5, 1), await claim(5, 1)] == [0, 1, 0]


async def _ready(at: Served, number: int) -> bool:
    found = await at.hf.store.reads.steps("turns")
    return len([row for row in found if row.state == "ready"]) == number


async def test_a_report_needs_the_secret_of_its_claim(at: Served) -> None:
    """Nobody reports on a step that they have not claimed, and another token's agent is unknown."""
    tokens = [await made_token(at.hf, "agent", "*") for _ in range(2)]
    async with httpx2.AsyncClient(base_url=f"{at.url}/v1") as client:

        async def post(path: str, body: object, token: str = tokens[0]) -> httpx2.Response:
            return await client.post(path, json=body, headers=bearer(token))

        groups = [{"name": "g", "steps": ["remote.add"], "places": 5}]
        ids = [(await post("/agents", {"groups": groups}, token)).json()["agent"] for token in tokens]
        run = await at.hf.start(flows.wide.using(id="secret"), 2)
        claimed = await post(f"/agents/{ids[0]}/claim", {"turn": 1, "free": {"g": 1}, "wait_s": 5})
        (step,) = claimed.json()["steps"]
        ref = {"run": step["run"], "n": step["n"], "fence": step["fence"]}
        done = {"verb": "succeed", "output": 7, **ref}
        other = {**done, "n": 3 - step["n"], "secret": step["secret"]}
        forged = secret_of(b"x" * 32, step["run"], step["n"], step["fence"])
        answers = await post(f"/agents/{ids[0]}/report", {"reports": [{**done, "secret": forged}, other]})
        assert answers.json() == {"answers": ["refused", "refused"]}
        assert (await post(f"/agents/{ids[0]}/report", {"reports": []}, tokens[1])).status_code == 410
        assert (
            await post(
                f"/agents/{ids[1]}/report", {"reports": [{**done, "secret": step["secret"]}]}, tokens[1]
            )
        ).json() == {"answers": ["refused"]}
        good = {"reports": [{**done, "secret": step["secret"]}]}
        twice = [(await post(f"/agents/{ids[0]}/report", good)).json()["answers"] for _ in range(2)]
        assert twice == [["accepted"], ["duplicate"]]
        left = await post(f"/agents/{ids[0]}/leave", {})
        assert left.status_code == 200
        assert (await post(f"/agents/{ids[0]}/claim", {"turn": 2, "free": {"g": 1}})).status_code == 410
        assert (await post(f"/agents/{ids[0]}/beat", {})).status_code == 410
    assert sorted(str(step.state) for step in await run.steps()) == ["ready", "succeeded"]


async def test_a_failure_without_a_verdict_is_decided_by_the_policy(at: Served) -> None:
    """Agents in other languages need not know policies: the server decides from the row."""
    async with httpx2.AsyncClient(base_url=f"{at.url}/v1") as client:
        groups = [{"name": "g", "steps": ["remote.flaky"], "places": 5}]
        agent_id = (await client.post("/agents", json={"groups": groups})).json()["agent"]
        run = await at.hf.start(flows.tries.using(id="decided"), 0)
        for turn in range(1, 4):
            found = await client.post(
                f"/agents/{agent_id}/claim", json={"turn": turn, "free": {"g": 1}, "wait_s": 20}, timeout=30
            )
            (step,) = found.json()["steps"]
            assert step["attempt"] == turn
            failed = {
                "verb": "fail",
                "error": {"type": "Broken", "message": "no"},
                **{name: step[name] for name in ("run", "n", "fence", "secret")},
            }
            answer = await client.post(f"/agents/{agent_id}/report", json={"reports": [failed]})
            assert answer.json() == {"answers": ["accepted"]}
    with pytest.raises(RunFailed, match="Broken"):
        await run.result(timeout=30)


async def test_an_agent_that_lost_its_lease_registers_anew(at: Served) -> None:
    """An agent whose lease ran out registers anew, and goes on under another id."""
    async with agent(at) as hf:
        before = hf.node.id
        leader = await at.hf.store.leader.leader()
        assert leader is not None
        await at.hf.store.remotes.shorten(before, -60.0)
        await eventually(lambda: _true(hf.node.id != before and hf.node.started))
        assert await (await at.hf.start(flows.wide, 3)).result(timeout=30) == 6


async def test_what_a_beat_counts_is_added_up_and_bounded(at: Served) -> None:
    """An agent gathers counts until its next beat, so that a bucket may occur several times. What no store can have is
    refused, and names the place."""
    async with httpx2.AsyncClient(base_url=at.url) as client:
        groups = [{"name": "g", "steps": ["remote.add"]}]
        agent = (await client.post("/v1/agents", json={"groups": groups})).json()["agent"]
        twice = {"durations": [["step:remote.add", 3, 2.0], ["step:remote.add", 3, 1.0]]}
        assert (await client.post(f"/v1/agents/{agent}/beat", json=twice)).status_code == 200
        assert ("step:remote.add", 3, 3.0) in await at.hf.store.durations.durations(["step:remote.add"])
        for wrong in (
            {"durations": [["x", 10**6, 1.0]]},
            {"durations": [["x", 1, -1.0]]},
            {"has": [["x", 10**12, 1]]},
            {"seen": [{"name": "x", "ok": 10**12, "failed": 0}]},
        ):
            answer = await client.post(f"/v1/agents/{agent}/beat", json=wrong)
            assert (answer.status_code, bool(answer.json()["place"])) == (422, True), answer.text
        report = {"verb": "succeed", "run": "x", "n": 10**12, "fence": 1, "secret": ""}
        refused = await client.post(f"/v1/agents/{agent}/report", json={"reports": [report]})
        assert refused.status_code == 422


async def test_the_end_of_a_stream_shortens_the_lease_and_a_beat_restores_it(at: Served) -> None:
    """When an agent's connection closes, its lease is short. A beat makes it long again. A cut of many shortens none."""
    async with httpx2.AsyncClient(base_url=f"{at.url}/v1") as client:
        groups = [{"name": "g", "steps": ["remote.add"], "places": 5}]
        ids = [(await client.post("/agents", json={"groups": groups})).json()["agent"] for _ in range(1)]
        async with client.stream("GET", f"/agents/{ids[0]}/stream") as answer:
            async for text in answer.aiter_lines():
                assert text == "event: ping"
                break
        await eventually(lambda: _lease_is(at, ids[0], 0.0, doorway.SHORT_S))
        await client.post(f"/agents/{ids[0]}/beat", json={})
        assert await _lease_is(at, ids[0], 20.0, 31.0)


async def _lease_is(at: Served, node: str, least_s: float, most_s: float) -> bool:
    now = await at.hf.store.now()
    (row,) = [one for one in await at.hf.store.nodes.nodes() if one.id == node]
    return least_s <= row.lease_until - now <= most_s


async def test_agents_find_the_next_server(store_url: str) -> None:
    """A server leaves and another one takes its address: an agent goes on, and loses nothing."""
    async with Holdfast(store_url, roles=["scheduler", "supervisor"], config=FAST) as hf:
        async with served(store_url, ("server",)) as first:
            port = int(first.url.rpartition(":")[2])
            remote = Holdfast(first.url, roles=["agent"], config=REMOTE)
            await remote.open()
            run = await hf.start(flows.held.using(id="over"))
            await eventually(lambda: _true(bool(flows.begun)))
        try:
            async with served(store_url, ("server",), port=port):
                flows.gate.set()
                assert await run.result(timeout=30) == "done"
                assert await (await hf.start(flows.wide, 5)).result(timeout=30) == 15
        finally:
            await remote.close()
    row = (await _only_step(store_url, "over"))._row
    assert (row.attempt, row.losses) == (1, 0)


async def _only_step(store_url: str, run_id: str) -> StepInfo:
    async with Holdfast(store_url, roles=()) as hf:
        (step,) = await hf.run(run_id).steps()
        return step


def test_the_figures_that_both_ends_rely_on() -> None:
    """A claim waits for less time than a lease lasts, and a silent stream is noticed after two lost pings."""
    assert connection.WAIT_S < 30.0
    assert connection.SILENCE_S > 2 * doorway.PING_S
    assert store.LOOK_S < 30.0
