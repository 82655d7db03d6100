"""Traces over HTTP: a program, a server and an agent that share nothing but requests are in one trace."""

from __future__ import annotations

import json

import httpx2
import msgspec
import pytest
from opentelemetry.trace import SpanKind

from holdfast import Holdfast
from tests.http.conftest import FAST, made_token
from tests.remote.conftest import served
from tests.roles import traced_flows as flows
from tests.tracing import EXPORTER, OPEN, Seen, attribute, caller, id_of, parent_id, trace_id

WITHOUT_AGENT = ("scheduler", "supervisor", "server")
TRACED = msgspec.structs.replace(FAST, traces=True)
REMOTE = msgspec.structs.replace(TRACED, lease_s=8.0)


@pytest.fixture
def seen() -> Seen:
    EXPORTER.clear()
    return Seen()


async def test_a_remote_program_and_a_remote_agent_are_in_one_trace(store_url: str, seen: Seen) -> None:
    """From the caller through the server, the run and the agent: each is under the one before."""
    async with (
        served(store_url, WITHOUT_AGENT, TRACED) as at,
        Holdfast(at.url, roles=["agent"], config=REMOTE) as agent,
    ):
        node = agent.node.id
        with caller() as trace:
            run = await agent.start(flows.plain.using(id="r"), 1)
        assert await run.result(timeout=60) == 3
        with caller("sender"):
            waits = await agent.start(flows.waits.using(id="w"), 1)
            await flows.go.send("w", "now")
        assert await waits.result(timeout=60) == "now"
    request, *_ = seen.named("POST /v1/runs")
    start = seen.one("start tests.roles.traced_flows.plain")
    first, second = seen.named("tests.roles.traced_flows.flaky")
    assert (trace_id(request), request.kind) == (trace(), SpanKind.SERVER)
    assert (request.attributes or {})["http.response.status_code"] == 201
    assert parent_id(start) == id_of(request)
    for attempt in (first, second):
        assert (trace_id(attempt), parent_id(attempt)) == (trace(), id_of(start))
        assert attribute(attempt, "agent") == node
    assert parent_id(seen.named("inside")[0]) == id_of(first)
    signal = seen.one("signal go")
    assert len(signal.links) == 1
    assert parent_id(signal) == id_of(seen.one("POST /v1/runs/{run}/signals"))
    polls = {span.name for span in seen.all() if span.kind is SpanKind.SERVER}
    assert polls == {"POST /v1/runs", "POST /v1/runs/{run}/signals"}, (
        "polls and reports are in nobody's trace"
    )
    assert not OPEN.names


async def test_programs_in_other_languages_send_the_header(store_url: str, seen: Seen) -> None:
    """`traceparent` of W3C. One that cannot be read is as good as none."""
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with served(store_url, WITHOUT_AGENT, TRACED) as at, httpx2.AsyncClient(base_url=at.url) as client:
        for number, header in enumerate((given, "00-zz-yy-01", "x" * 500, "")):
            body = {"workflow": "tests.roles.traced_flows.child", "input": {"x": 1}, "id": f"r{number}"}
            answer = await client.post("/v1/runs", json=body, headers={"traceparent": header})
            assert answer.status_code == 201
        tags = [(await client.get(f"/v1/runs/r{number}")).json()["tags"] for number in range(4)]
    assert tags[0]["$trace"].startswith("00-4bf92f3577b34da6a3ce929d0e0e4736-")
    others = {one["$trace"].split("-")[1] for one in tags[1:]}
    assert len(others) == 3
    assert "4bf92f3577b34da6a3ce929d0e0e4736" not in others


async def test_who_is_not_let_in_makes_no_span(store_url: str, seen: Seen) -> None:
    """Strangers write nothing into our traces."""
    async with served(store_url, WITHOUT_AGENT, TRACED) as at, httpx2.AsyncClient(base_url=at.url) as client:
        await made_token(at.hf, "admin")
        given = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
        while (await client.get("/v1/runs", headers=given)).status_code != 401:
            EXPORTER.clear()
        EXPORTER.clear()
        assert (await client.get("/v1/runs", headers=given)).status_code == 401
        bad = {**given, "Authorization": "Bearer nonsense"}
        assert (await client.post("/v1/runs", content="{}", headers=bad)).status_code == 401
    assert [span.name for span in seen.all() if span.kind is SpanKind.SERVER] == []


async def test_a_server_that_does_not_trace_passes_nothing_on(store_url: str, seen: Seen) -> None:
    """Its runs have no trace, and the attempts of an agent that traces have traces of their own."""
    async with (
        served(store_url, WITHOUT_AGENT, FAST) as at,
        Holdfast(at.url, roles=["agent"], config=REMOTE) as agent,
    ):
        with caller() as trace:
            run = await agent.start(flows.child.using(id="r"), 1)
        assert await run.result(timeout=60) == 2
        row = await at.hf.store.reads.run("r")
        assert row is not None
        assert "$trace" not in json.loads(row.tags or "{}")
    attempt = seen.one("tests.roles.traced_flows.threaded")
    assert trace_id(attempt) != trace()
    assert parent_id(attempt) is None
