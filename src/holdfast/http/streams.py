"""One stream of pokes. A poke says that something is not as it was: a topic and its mark, without content. Readers fetch
what they want to know, with `If-None-Match`.

An event's id is a digest of all marks that were last sent. Whoever comes back with it, at any server, gets nothing if
nothing has changed, or a poke for each topic. States in between may be left out; the newest never is. There is no log.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.access import Act, Identity
from holdfast.desk.desk import Desk
from holdfast.desk.filters import run_filter
from holdfast.desk.opened import Opened
from holdfast.desk.runs import mark_of
from holdfast.errors import InvalidInput, StoreError, UnknownRun
from holdfast.http.call import Call, Given
from holdfast.http.marks import UNKNOWN, WHOLE, digest, mark_of_limit
from holdfast.http.reader import read_query
from holdfast.http.refusals import Refusal
from holdfast.http.runs import RunsQuery
from holdfast.store.reads import RunFilter
from holdfast.wire.paths import id_of

MEDIA_TYPE = "text/event-stream"
TOPICS_MAX = 50
LOOK_S, LOOK_MAX_S = 0.5, 2.0
"""How often a topic is looked at: twice a second while it changes, and more rarely after a while."""
COMMENT_S = 15.0
"""How often a line is sent although nothing happens, so that nobody on the way thinks that the connection is dead."""
RETRY_MS = (1_000, 4_000)
PAGE = 50
"""The mark of a list is that of its first page."""
WHICH = f"run:REF, runs: and a filter, limit:KEY, {', '.join(sorted(WHOLE))}"

Mark = Callable[[], Awaitable[str]]


class StreamQuery(msgspec.Struct):
    topic: Annotated[list[str], Meta(max_length=TOPICS_MAX)] = []


class Looks:
    """Looks at topics. One look serves everybody who watches the same."""

    def __init__(self, hf: Opened) -> None:
        self._hf = hf
        self._marks: dict[tuple[str | None, str], tuple[float, asyncio.Future[str]]] = {}

    async def mark(self, who: Identity, topic: str, read: Mark) -> str:
        """Return the mark of a topic, which may have been read by somebody else a moment ago."""
        key, now = (who.namespace, topic), self._hf.environment.monotonic()
        known = self._marks.get(key)
        if known is None or now > known[0] + LOOK_S / 2:
            self._marks = {key: one for key, one in self._marks.items() if now < one[0] + LOOK_S}
            known = self._marks[key] = now, asyncio.ensure_future(read())
        return await asyncio.shield(known[1])


async def stream(call: Call) -> Given:
    topics: list[str] = list(dict.fromkeys(call.query.topic))
    if not topics:
        raise Refusal("invalid", f"name at least one topic: {WHICH}", place="?topic")
    marks = {topic: await _topic(call, topic) for topic in topics}
    await call.server.demand_streams(call.who)
    return Given(_pokes(call, marks), media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})


async def _topic(call: Call, topic: str) -> Mark:
    """Return what reads the mark of a topic. Raise if it is none."""
    kind, separator, rest = topic.partition(":")
    if separator and kind == "run" and (run := id_of(rest)) is not None:
        return lambda: _mark_of_run(call.desk, call.who, run)
    if separator and kind == "runs":
        where = await _filter(call, rest)
        return lambda: _mark_of_runs(call.desk, call.who, where)
    if separator and kind == "limit" and (limit := id_of(rest)) is not None:
        return lambda: mark_of_limit(call.desk, call.who, limit)
    if (read := WHOLE.get(topic)) is not None:
        return lambda: read(call.desk, call.who)
    raise Refusal("invalid", f"there is no such topic: write {WHICH}", place="?topic")


async def _mark_of_run(desk: Desk, who: Identity, run: str) -> str:
    try:
        return mark_of(await desk.runs.get(who, run))
    except UnknownRun:
        return UNKNOWN


async def _mark_of_runs(desk: Desk, who: Identity, where: RunFilter) -> str:
    found = [mark_of(row) for row in await desk.runs.list(who, where)]
    return digest(found)


async def _filter(call: Call, text: str) -> RunFilter:
    query, tags = read_query(text.encode(), RunsQuery, has_tags=True)
    assert query is not None
    try:
        found = run_filter(
            now=await call.server.hf.store.now(),
            states=query.state,
            workflow=query.workflow,
            tags=tags,
            since=query.since,
            until=query.until,
            error=query.error,
            prefix=query.prefix,
            traits=query.traits,
            what="?{}",
        )
    except InvalidInput as wrong:
        raise Refusal("invalid", str(wrong), place="?topic") from None
    found.limit, found.is_oldest_first = PAGE, query.order == "oldest"
    return found


async def _pokes(call: Call, topics: dict[str, Mark]) -> AsyncIterator[bytes]:
    """Yield pokes until the reader goes, the server leaves, or the token is no longer good."""
    server, environment = call.server, call.server.hf.environment
    known: dict[str, str] = {}
    came_with = call.headers.get("last-event-id", "")
    with server.counted_stream(call.who), server.watch.over(call.who, Act.READ, call.headers) as opened:
        yield f"retry: {environment.random.randint(*RETRY_MS)}\n\n".encode()
        pause_s, said_at, is_away = LOOK_S, environment.monotonic(), False
        while not opened.over.is_set():
            try:
                found = {
                    topic: await server.looks.mark(call.who, topic, read) for topic, read in topics.items()
                }
                is_away = False
            except StoreError:
                found = known  # the next look may succeed
                if not is_away:
                    is_away = True
                    yield b"event: away\ndata: {}\n\n"
            changed = [topic for topic, mark in found.items() if known.get(topic) != mark]
            if changed and not (not known and digest(found) == came_with):
                pause_s = LOOK_S
                for topic in changed:
                    known[topic] = found[topic]
                    yield _poke(topic, found[topic], digest(found))
                said_at = environment.monotonic()
            known = dict(found)
            if environment.monotonic() > said_at + COMMENT_S:
                said_at = environment.monotonic()
                yield b": still here\n\n"
            await opened.pause(pause_s)
            pause_s = min(pause_s * 1.2, LOOK_MAX_S)
        if not opened.is_refused:
            yield b"event: leave\ndata: {}\n\n"


def _poke(topic: str, mark: str, id: str) -> bytes:
    data = msgspec.json.encode({"topic": topic, "mark": mark}).decode()
    return f"id: {id}\nevent: poke\ndata: {data}\n\n".encode()
