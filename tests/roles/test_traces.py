"""Traces: one trace from the caller through the run and its steps, whoever executes them, and none where nobody asks."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from opentelemetry.trace import SpanKind, StatusCode

from holdfast import Holdfast, RunFailed
from holdfast.config import Config
from holdfast.errors import InvalidSettings, RunUndone
from holdfast.model import TRACE_TAG
from holdfast.traces import trace_of
from tests.roles import traced_flows as flows
from tests.roles.conftest import FAST, until
from tests.tracing import EXPORTER, OPEN, Seen, attribute, caller, id_of, is_ours, parent_id, trace_id

TRACED = msgspec.structs.replace(FAST, traces=True)


@pytest.fixture
def seen() -> Seen:
    EXPORTER.clear()
    return Seen()


@pytest.fixture
async def traced(store_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(store_url, config=TRACED) as hf:
        yield hf


async def test_each_attempt_is_a_span_under_the_start(traced: Holdfast, seen: Seen) -> None:
    """A retried step is two spans with one parent, and each says which attempt it was, of what, and whose."""
    with caller() as trace:
        run = await traced.start(flows.plain.using(id="r"), 1)
        assert await run.result(timeout=60) == 3
    start = seen.one("start tests.roles.traced_flows.plain")
    first, second = seen.named("tests.roles.traced_flows.flaky")
    thread = seen.one("tests.roles.traced_flows.threaded")
    assert {trace_id(one) for one in (start, first, second, thread)} == {trace()}
    assert {parent_id(one) for one in (first, second, thread)} == {id_of(start)}
    assert start.kind is SpanKind.PRODUCER
    assert (attribute(first, "attempt"), attribute(second, "attempt")) == (1, 2)
    assert (attribute(first, "outcome"), attribute(second, "outcome")) == ("failed", "succeeded")
    assert first.status.status_code is StatusCode.ERROR
    assert (first.attributes or {})["error.type"] == "ConnectionError"
    for one in (first, second, thread):
        assert attribute(one, "run") == "r"
        assert attribute(one, "agent") == traced.node_id
    assert attribute(first, "key") == attribute(second, "key")
    whole = seen.one("run tests.roles.traced_flows.plain")
    assert (attribute(whole, "state"), parent_id(whole)) == ("succeeded", id_of(start))
    assert not OPEN.names


async def test_the_span_is_current_while_the_code_runs(
    traced: Holdfast, seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the spans of an author's libraries are under it: in the loop, in a thread, in a process of its own."""
    spans = tmp_path / "spans.jsonl"
    monkeypatch.setenv("SPANS_FILE", str(spans))
    await (await traced.start(flows.plain, 1)).result(timeout=60)
    first, second = seen.named("tests.roles.traced_flows.flaky")
    assert [parent_id(one) for one in seen.named("inside")] == [id_of(first), id_of(second)]
    assert parent_id(seen.one("inside a thread")) == id_of(seen.one("tests.roles.traced_flows.threaded"))
    await (await traced.start(flows.apart, 1)).result(timeout=60)
    (line,) = [json.loads(one) for one in spans.read_text().splitlines()]
    attempt = seen.one("tests.roles.traced_flows.isolated")
    assert (line["name"], int(line["parent_id"], 16)) == ("inside a process", id_of(attempt))
    assert int(line["context"]["trace_id"], 16) == trace_id(attempt)


async def test_a_child_run_is_in_the_trace_of_its_parent(traced: Holdfast, seen: Seen) -> None:
    """It inherits the trace, and so do its steps."""
    with caller() as trace:
        run = await traced.start(flows.parent, 1)
    await run.result(timeout=60)
    step, whole = (
        seen.one("tests.roles.traced_flows.threaded"),
        seen.one("run tests.roles.traced_flows.child"),
    )
    assert (trace_id(step), trace_id(whole)) == (trace(), trace())
    assert parent_id(step) == id_of(seen.one("start tests.roles.traced_flows.parent"))
    assert attribute(step, "run") != attribute(seen.one("run tests.roles.traced_flows.parent"), "run")


async def test_an_undo_is_a_span_like_any_other(traced: Holdfast, seen: Seen) -> None:
    """It says what it undoes. The run's own span says that it did not succeed."""
    with caller() as trace:
        run = await traced.start(flows.fails, 1)
    with pytest.raises(RunUndone):
        await run.result(timeout=60)
    undo = seen.one("tests.roles.traced_flows.unflaky")
    assert trace_id(undo) == trace()
    assert attribute(undo, "undoes") == attribute(seen.named("tests.roles.traced_flows.flaky")[0], "key")
    assert parent_id(seen.one("inside an undo")) == id_of(undo)
    whole = seen.one("run tests.roles.traced_flows.fails")
    assert (attribute(whole, "state"), whole.status.status_code) == ("undone", StatusCode.ERROR)


async def test_an_attempt_that_times_out_ends_its_span(traced: Holdfast, seen: Seen) -> None:
    """And says so."""
    with pytest.raises(RunFailed):
        await (await traced.start(flows.late)).result(timeout=60)
    assert attribute(seen.one("tests.roles.traced_flows.slow"), "outcome") == "timed_out"
    assert not OPEN.names


async def test_no_span_is_open_while_a_run_waits(traced: Holdfast, seen: Seen) -> None:
    """However long. What happened before and after is in one trace."""
    with caller() as trace:
        run = await traced.start(flows.waits.using(id="w"), 1)
    await until(lambda: bool(seen.named("tests.roles.traced_flows.threaded")))
    assert not OPEN.names
    await flows.go.send("w", "now")
    assert await run.result(timeout=60) == "now"
    assert trace_id(seen.one("run tests.roles.traced_flows.waits")) == trace()


async def test_what_is_sent_to_a_run_links_to_its_trace(traced: Holdfast, seen: Seen) -> None:
    """A signal and an update are in the trace of their sender, with a link to that of the run."""
    with caller("starter") as first:
        run = await traced.start(flows.waits.using(id="w"), 1)
    with caller("sender") as second:
        assert await flows.change.call("w", "x", key="k", timeout=60) == "x"
        await flows.go.send("w", "now")
    await run.result(timeout=60)
    assert first() != second()
    for name in ("signal go", "update change"):
        span = seen.one(name)
        assert trace_id(span) == second()
        assert [link.context.trace_id for link in span.links] == [first()]


async def test_an_event_starts_runs_in_its_trace_and_links_to_those_it_wakes(
    traced: Holdfast, seen: Seen
) -> None:
    """Whoever sends it is their caller."""
    # The first wait of a store for this type may see an event that came before. Later ones are woken by it.
    (before,) = (await traced.emit("traced.ordered", "o-0")).started
    await traced.emit("traced.paid", "yes", subject="o-0")
    await traced.run(before).result(timeout=60)
    EXPORTER.clear()
    with caller("shop") as shop:
        (started,) = (await traced.emit("traced.ordered", "o-1")).started
    await until(lambda: bool(seen.named("tests.roles.traced_flows.threaded")))
    assert trace_id(seen.one("tests.roles.traced_flows.threaded")) == shop()
    async with asyncio.timeout(60):
        while not any(  # noqa: ASYNC110  a row in the store gives no event
            one.state == "waiting" for one in (await traced.run(started).view()).steps
        ):
            await asyncio.sleep(0.01)
    with caller("bank") as bank:
        await traced.emit("traced.paid", "yes", subject="o-1")
    assert await traced.run(started, flows.ordered).result(timeout=60) == "yes"
    last = seen.one("emit traced.paid")
    assert trace_id(last) == bank()
    assert [link.context.trace_id for link in last.links] == [shop()]


async def test_a_step_that_starts_a_run_is_its_caller(traced: Holdfast, seen: Seen) -> None:
    """The start is under the attempt, because that is current."""
    flows.inner[:] = [traced]
    with caller() as trace:
        await (await traced.start(flows.starts)).result(timeout=60)
    start = seen.one("start tests.roles.traced_flows.child")
    assert parent_id(start) == id_of(seen.one("tests.roles.traced_flows.start_another"))
    assert trace_id(seen.one("tests.roles.traced_flows.threaded")) == trace()


def test_a_framework_that_traces_is_the_caller(store_url: str, seen: Seen) -> None:
    """FastAPI makes a span of each request. A start in a plain endpoint and in an async one is in its trace. Its spans are
    not taken for ours."""
    hf = Holdfast(store_url, config=TRACED)
    app = FastAPI(lifespan=hf.lifespan)
    during: list[str] = []

    @app.post("/async")
    async def start() -> int:
        during.extend(OPEN.names)
        return await (await hf.start(flows.child, 1)).result(timeout=60)

    @app.post("/plain")
    def start_plainly() -> int:
        return hf.wait(hf.wait(hf.start(flows.child, 1)).result(timeout=60))

    with TestClient(app) as client:
        for path in ("/async", "/plain"):
            EXPORTER.clear()
            assert client.post(path).json() == 2
            request, start_span = seen.one(f"POST {path}"), seen.one("start tests.roles.traced_flows.child")
            assert trace_id(start_span) == trace_id(request)
            assert trace_id(seen.one("tests.roles.traced_flows.threaded")) == trace_id(request)
            assert (is_ours(request), is_ours(start_span)) == (False, True)
    assert (during, OPEN.names) == ([], [])


async def test_a_run_that_nobody_traced_has_traces_of_its_own(store_url: str, seen: Seen) -> None:
    """Its attempts say which run they belong to. The next process may trace what the last one did not."""
    async with Holdfast(store_url, roles=(), config=FAST) as hf:
        await hf.start(flows.child.using(id="r"), 1)
    async with Holdfast(store_url, config=TRACED) as hf:
        with caller():
            assert await hf.run("r").result(timeout=60) == 2
    step = seen.one("tests.roles.traced_flows.threaded")
    assert parent_id(step) is None
    assert attribute(step, "run") == "r"


async def test_without_the_setting_nothing_is_traced(
    store_url: str, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No span, no tag, no look for one, though an SDK is there and the caller traces."""
    async with Holdfast(store_url, config=FAST) as hf:

        def looked(*_: Any) -> Any:
            raise AssertionError("nobody asked for traces")

        monkeypatch.setattr(hf.store.agents, "run_traces", looked)
        with caller():
            run = await hf.start(flows.parent.using(id="r"), 1)
            assert await run.result(timeout=60) == 2
            await hf.emit("traced.paid", "yes", subject="nobody")
        row = await hf.store.reads.run("r")
        assert row is not None
        assert trace_of(row.tags) is None
    assert {span.name for span in seen.all()} == {"caller", "inside a thread"}


async def test_the_trace_is_a_tag_that_runs_can_be_found_by(traced: Holdfast, seen: Seen) -> None:
    """And a retry keeps it."""
    with caller() as trace:
        run = await traced.start(flows.fails.using(id="r"), 1)
    with pytest.raises(RunUndone):
        await run.result(timeout=60)
    row = await traced.store.reads.run("r")
    assert row is not None
    text = trace_of(row.tags)
    assert text is not None
    start = seen.one("start tests.roles.traced_flows.fails")
    assert text.startswith(f"00-{trace():032x}-{id_of(start):016x}-")
    assert [one.id for one in await traced.runs(tags={TRACE_TAG: text})] == ["r"]
    with pytest.raises(RunUndone):
        await (await run.retry()).result(timeout=60)
    assert {trace_id(one) for one in seen.named("tests.roles.traced_flows.flaky")} == {trace()}


async def test_an_agent_in_another_process_goes_on_with_the_trace(
    store_url: str, seen: Seen, tmp_path: Path
) -> None:
    """Its spans are under the start of this process."""
    spans = tmp_path / "spans.jsonl"
    environment = {**os.environ, "HOLDFAST_TRACES": "1", "SPANS_FILE": str(spans)}
    holdfast = str(Path(sys.executable).with_name("holdfast"))
    agent = await asyncio.create_subprocess_exec(
        holdfast, "agent", "tests.roles.traced_flows", "--store", store_url, env=environment,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with Holdfast(store_url, roles=("scheduler", "supervisor"), config=TRACED) as hf:
            with caller() as trace:
                run = await hf.start(flows.plain.using(id="r"), 1)
            assert await run.result(timeout=60) == 3
    finally:
        agent.terminate()
        await agent.wait()
    start = seen.one("start tests.roles.traced_flows.plain")
    found = [json.loads(line) for line in spans.read_text().splitlines()]
    attempts = [one for one in found if one["name"].startswith("tests.roles.traced_flows.")]
    assert [one["attributes"]["holdfast.attempt"] for one in attempts] == [1, 2, 1]
    for one in attempts:
        assert (int(one["context"]["trace_id"], 16), int(one["parent_id"], 16)) == (trace(), id_of(start))
    assert {int(one["context"]["trace_id"], 16) for one in found} == {trace()}


async def test_what_was_sent_is_in_no_span(traced: Holdfast, seen: Seen) -> None:
    """Spans have names and numbers. Inputs, results and the messages of errors are not among them."""
    with pytest.raises(RunUndone):
        await (await traced.start(flows.fails, 4711)).result(timeout=60)
    mine = "\n".join(span.to_json() for span in seen.all() if is_ours(span))
    assert "tests.roles.traced_flows.flaky" in mine
    assert "canary-4f1d" not in mine
    assert "4711" not in mine


def test_traces_need_their_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """And say which one."""
    monkeypatch.setitem(sys.modules, "holdfast.spans", None)
    with pytest.raises(InvalidSettings, match=r"holdfast\[otel\]"):
        Holdfast("https://holdfast.example", config=Config(traces=True))


def test_the_environment_switches_traces_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """For every process that it is set for."""
    for value, on in (("", False), ("0", False), ("1", True)):
        monkeypatch.setenv("HOLDFAST_TRACES", value)
        assert Holdfast("sqlite://:memory:").config.traces is on
