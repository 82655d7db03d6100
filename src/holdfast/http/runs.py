"""What programs ask about runs: start them, follow them, send them something, steer them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.config import Config
from holdfast.desk.filters import run_filter
from holdfast.desk.runs import mark_of
from holdfast.desk.starts import StartRequest
from holdfast.errors import InvalidInput, UnknownSignal, UnknownUpdate, UpdateTimeout
from holdfast.http import views
from holdfast.http.call import Call, Given
from holdfast.http.reader import value_place
from holdfast.http.refusals import Refusal, problem_of
from holdfast.log_buffer import level_number
from holdfast.logs import LogFilter
from holdfast.model import ActOptions, ActVerb, StepRow
from holdfast.namespaces import shown
from holdfast.store.reads import RunFilter
from holdfast.wire import answers, requests
from holdfast.wire.cursors import cursor_text, filter_digest, read_cursor
from holdfast.wire.paths import id_of
from holdfast.wire.requests import Wait

LIMIT, LIMIT_MAX = 50, 200
STEPS_PAGE = 1_000

Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX)]


class RunsQuery(msgspec.Struct, rename={"traits": "is"}):
    workflow: str | None = None
    state: list[str] = []
    since: str | None = None
    until: str | None = None
    error: str | None = None
    prefix: str | None = None
    traits: list[str] = []
    """Only open runs that are all of this: retrying, late, waiting-for-agent, waiting-for-breaker, waiting-for-signal,
    waiting-for-ask, waiting-for-callback, waiting-for-child, waiting-for-timer."""
    order: Literal["newest", "oldest"] = "newest"
    """Which run comes first, by the time at which it was started."""
    limit: Limit = LIMIT
    cursor: str | None = None
    before: Annotated[str, Meta(max_length=1_000)] | None = None
    """The run before which the page begins, as it stands in a path: what comes after it in the list."""
    pages: bool = True
    """False leaves out the pages of maps, except for those that wait for a person."""
    eta: bool = False
    """Also say when each running run will probably end."""
    words: bool = False
    """Also say in a few words how each run ended, or what it waits for."""


class CountsQuery(msgspec.Struct, rename={"traits": "is"}):
    workflow: str | None = None
    since: str | None = None
    until: str | None = None
    error: str | None = None
    prefix: str | None = None
    traits: list[str] = []
    pages: bool = True


class RunQuery(msgspec.Struct):
    wait_s: Wait = 0.0


class StepsQuery(msgspec.Struct):
    after: Annotated[int, Meta(ge=0, le=2_147_483_647)] = 0
    limit: Limit = LIMIT


class LimitQuery(msgspec.Struct):
    limit: Limit = LIMIT


class LogsQuery(msgspec.Struct):
    step: Annotated[int, Meta(ge=0, le=2_147_483_647)] | None = None
    attempt: Annotated[int, Meta(ge=0, le=2_147_483_647)] | None = None
    level: str | None = None
    limit: Annotated[int, Meta(ge=1, le=5_000)] = 1_000
    skip: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    """How many lines to leave out: those that earlier pages had."""


def _request(given: requests.Start, key: str | None) -> StartRequest:
    return StartRequest(
        given.workflow,
        bytes(given.input),
        given.version,
        given.id,
        key,
        given.tags,
        given.priority,
        given.timeout_s,
        None if given.begin_at is None else given.begin_at.timestamp(),
        given.begin_in_s,
        given.fair,
        None if given.due_at is None else given.due_at.timestamp(),
        given.due_in_s,
    )


def _demand_one_time(given: requests.Start, place: str = "") -> None:
    if given.begin_at is not None and given.begin_in_s is not None:
        raise Refusal("invalid", "give begin_in_s or begin_at, not both", place=f"{place}/begin_in_s")


STARTS = ("id", "tags", "priority", "fair", "key", "begin_at", "due_at", "due_in_s")
"""What a start has besides its input, as errors begin that are about it."""


def start_place(wrong: Exception) -> str:
    """Return which part of a start an error is about."""
    text = str(wrong)
    if name := next((one for one in STARTS if text.startswith(one)), ""):
        return f"/{name}"
    return value_place("/input", text)


async def start(call: Call) -> Given:
    key = call.header("idempotency-key")
    if key is not None and call.body.id is not None:
        raise Refusal(
            "invalid",
            "give an id or an Idempotency-Key, not both: each makes a start idempotent",
            place="/id",
        )
    if key is not None and not 1 <= len(key) <= requests.NAME_MAX:
        raise Refusal("invalid", "the key needs 1 to 200 characters", place="Idempotency-Key")
    _demand_one_time(call.body)
    try:
        found = await call.desk.starts.start(call.who, _request(call.body, key))
    except InvalidInput as wrong:
        raise Refusal("invalid", str(wrong), place=start_place(wrong)) from None
    made = views.started(found.run, call.who, new=found.new)
    return Given(made, 201 if found.new else 200, {"Location": f"/v1/runs/{made.ref}"})


async def start_batch(call: Call) -> Given:
    """Start many. Each is authorised and answered by itself."""
    items: list[requests.StartItem] = call.body.items
    for number, item in enumerate(items):
        if item.key is not None and item.id is not None:
            raise Refusal("invalid", "give an id or a key, not both", place=f"/items/{number}/key")
        _demand_one_time(item, f"/items/{number}")
    found = await call.desk.starts.start_many(call.who, [_request(item, item.key) for item in items])
    hide = f"{call.who.namespace}//"
    made = []
    for number, one in enumerate(found):
        if isinstance(one, Exception):
            place = f"/items/{number}{start_place(one)}" if isinstance(one, InvalidInput) else ""
            wrong = problem_of(one, place=place, hide=hide)
            made.append(answers.StartedItem(wrong.status, problem=wrong))
        else:
            run = views.started(one.run, call.who, new=one.new)
            made.append(answers.StartedItem(201 if one.new else 200, run=run))
    return Given(answers.StartedItems(made))


async def _filter(call: Call, query: RunsQuery | CountsQuery, states: Sequence[str] = ()) -> RunFilter:
    """Return what the parameters of a list of runs choose. Refuse those that are wrong."""
    try:
        return run_filter(
            now=await call.server.hf.store.now(),
            states=states,
            workflow=query.workflow,
            tags=call.tags,
            since=query.since,
            until=query.until,
            error=query.error,
            prefix=query.prefix,
            traits=query.traits,
            what="?{}",
        )
    except InvalidInput as wrong:
        place = str(wrong).partition(":")[0]
        raise Refusal("invalid", str(wrong), place=place if place.startswith("?") else "") from None


async def runs(call: Call) -> Given:
    query: RunsQuery = call.query
    where = await _filter(call, query, states=query.state)
    asked = [
        msgspec.structs.replace(query, limit=0, cursor=None, before=None, eta=False, words=False),
        call.tags,
        call.who.namespace,
    ]
    digest = filter_digest(asked)
    if query.cursor is not None:
        where.before = read_cursor(query.cursor, digest)
        if where.before is None:
            raise Refusal("malformed", "this is no cursor of this list", place="?cursor")
    elif query.before is not None:
        last = id_of(query.before)
        if last is None:
            raise Refusal("invalid", "this is not the id of a run", place="?before")
        row = await call.desk.runs.get(call.who, last)
        where.before = row.created_at, row.id
    where.limit, where.has_pages = query.limit + 1, query.pages
    where.is_oldest_first = query.order == "oldest"
    found = await call.desk.runs.list(call.who, where)
    page, more = found[: query.limit], len(found) > query.limit
    after = cursor_text(page[-1].created_at, page[-1].id, digest) if more else None
    expected = await call.desk.runs.etas(call.who, page) if query.eta else {}
    words = await call.desk.overview.words(call.who, page, expected) if query.words else {}
    return Given(
        answers.Runs(
            [views.run(row, call.who, expected.get(row.id), words.get(row.id)) for row in page], after
        )
    )


async def counts(call: Call) -> Given:
    query: CountsQuery = call.query
    where = await _filter(call, query)
    where.has_pages = query.pages
    return Given(await call.desk.overview.counts(call.who, where))


async def run(call: Call) -> Given:
    row = await call.desk.runs.get(call.who, call.run)
    known, mark = call.known_marks, mark_of(row)
    if call.query.wait_s and mark in known:
        row = await call.desk.runs.after(call.who, call.run, mark, call.query.wait_s)
        mark = mark_of(row)
    headers = {"ETag": f'"{mark}"'}
    if call.knows(mark):
        return Given(status=304, headers=headers)
    return Given(views.whole_run(row, call.who), headers=headers)


async def ended(call: Call) -> Given:
    found = await call.desk.runs.ended(call.who, call.body.runs, call.body.wait_s)
    made: list[answers.EndedRun] = []
    left = call.server.config.batch_max_bytes
    for row in found:
        left -= len(row.output or b"")
        if made and left < 0:
            break  # the rest comes with the next question
        made.append(views.ended_run(row, call.who))
    return Given(answers.EndedRuns(made))


async def steps(call: Call) -> Given:
    query: StepsQuery = call.query
    found = await call.desk.runs.steps(call.who, call.run, query.after, query.limit + 1)
    page = found[: query.limit]
    after = page[-1].n if len(found) > query.limit else None
    return Given(answers.Steps([views.step(row, call.who) for row in page], after))


async def step(call: Call) -> Given:
    found = await call.desk.overview.step(call.who, call.run, call.number("n"))
    return Given(views.whole_step(found, call.who))


async def attempts(call: Call) -> Given:
    found = await call.desk.runs.attempts(call.who, call.run)
    return Given(answers.Attempts([views.attempt(row, call.who) for row in found]))


async def journal(call: Call) -> Given:
    found = await call.desk.runs.journal(call.who, call.run, call.query.limit)
    return Given(answers.Journal([views.entry(row, call.who) for row in found]))


async def children(call: Call) -> Given:
    found = await call.desk.runs.children(call.who, call.run)
    return Given(answers.Runs([views.run(row, call.who) for row in found]))


async def started(call: Call) -> Given:
    found = await call.desk.runs.started(call.who, call.run)
    return Given(answers.Runs([views.run(row, call.who) for row in found]))


async def signals(call: Call) -> Given:
    found = await call.desk.signals.list(call.who, call.run)
    return Given(answers.Signals([views.signal(row, call.who) for row in found]))


async def log_counts(call: Call) -> Given:
    return Given(answers.LogCounts(await call.desk.runs.log_counts(call.who, call.run)))


async def eta(call: Call) -> Given:
    row = await call.desk.runs.get(call.who, call.run)
    found: list[StepRow] = []
    while page := await call.desk.runs.steps(call.who, call.run, found[-1].n if found else 0, STEPS_PAGE):
        found += page
        if len(page) < STEPS_PAGE:
            break
    return Given(views.outlook(await call.desk.runs.outlook(call.who, row, found)))


async def resolve(call: Call) -> Given:
    given: requests.Resolve = call.body
    run, result = call.run, json.loads(bytes(given.result))
    await call.desk.runs.get(call.who, run)
    done = await call.desk.quarantine.resolve(call.who, given.act, run_id=run, note=given.note, result=result)
    return Given(answers.Resolved(done))


async def logs(call: Call) -> Given:
    query: LogsQuery = call.query
    try:
        level = 0 if query.level is None else level_number(query.level)
    except ValueError as wrong:
        raise Refusal("invalid", str(wrong), place="?level") from None
    where = LogFilter(query.step, query.attempt, level)
    found = await call.desk.runs.logs(call.who, call.run, where, query.limit + 1, query.skip)
    lines = [views.line(one) for one in found[: query.limit]]
    return Given(answers.Lines(lines, len(found) > query.limit))


async def graph(call: Call) -> Given:
    drawn = await call.desk.runs.graph(call.who, call.run)
    return Given(answers.Drawing(drawn))


async def signal(call: Call) -> Given:
    given: requests.Signal = call.body
    try:
        new = await call.desk.signals.send(
            call.who, call.run, given.name, _compact(given.data, call.server.config), given.key
        )
    except (InvalidInput, UnknownSignal) as wrong:
        raise _misfit(wrong, call) from None
    return Given(answers.Sent(new), 202)


async def update(call: Call) -> Given:
    given: requests.Update = call.body
    data = _compact(given.data, call.server.config)
    try:
        reply = await call.desk.signals.update(call.who, call.run, given.name, data, given.key, given.wait_s)
    except UpdateTimeout:
        return Given(answers.Reply(False), 202)
    except (InvalidInput, UnknownUpdate) as wrong:
        raise _misfit(wrong, call) from None
    return Given(answers.Reply(True, views.payload(reply, call.who)))


def _compact(raw: msgspec.Raw, config: Config) -> bytes:
    """Return a payload as the store keeps it."""
    value = json.loads(bytes(raw))
    made = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    if len(made) > config.payload_max_bytes:
        raise Refusal(
            "too-large",
            f"a payload may have {config.payload_max_bytes:,} bytes, and this one has {len(made):,}",
            place="/data",
        )
    return made


def _misfit(wrong: Exception, call: Call) -> Refusal:
    text = str(wrong).replace(f"{call.who.namespace}//", "")
    is_name = not isinstance(wrong, InvalidInput) or text.startswith("the name of")
    place = "/name" if is_name else "/key" if text.startswith("the key of") else "/data"
    error = "" if isinstance(wrong, InvalidInput) else type(wrong).__name__
    return Refusal("invalid", text, place=place, error=error)


async def _previewed(call: Call, verb: str, **how: Any) -> Given:
    """Only say what would happen."""
    return Given(await call.desk.overview.preview(call.who, call.run, ActVerb(verb), ActOptions(**how)))


async def cancel(call: Call) -> Given:
    run = call.run
    if call.body.preview:
        return await _previewed(call, "cancel", force=call.body.force)
    return Given(
        views.state(run, await call.desk.runs.cancel(call.who, run, call.body.note, force=call.body.force))
    )


async def hold(call: Call) -> Given:
    run = call.run
    if call.body.preview:
        return await _previewed(call, "hold")
    return Given(views.state(run, await call.desk.runs.hold(call.who, run, call.body.note)))


async def release(call: Call) -> Given:
    run = call.run
    if call.body.preview:
        return await _previewed(call, "release")
    return Given(views.state(run, await call.desk.runs.release(call.who, run, call.body.note)))


async def skip(call: Call) -> Given:
    run = call.run
    if call.body.preview:
        return await _previewed(call, "skip")
    return Given(views.state(run, await call.desk.runs.skip(call.who, run, call.body.step, call.body.note)))


async def retry(call: Call) -> Given:
    run = call.run
    if call.body.preview:
        return await _previewed(call, "retry")
    stored = await call.desk.runs.retry(call.who, run)
    made = views.started(stored, call.who, new=shown(call.who.namespace, stored) != run)
    return Given(made, headers={"Location": f"/v1/runs/{made.ref}"})


async def fork(call: Call) -> Given:
    given: requests.Fork = call.body
    if given.preview:
        return await _previewed(call, "fork", start=given.start)
    edited: Any = json.loads(bytes(given.input))
    results = {key: json.loads(bytes(value)) for key, value in given.results.items()}
    try:
        made = await call.desk.runs.fork(call.who, call.run, given.start, edited, results, given.id)
    except InvalidInput as wrong:
        text = str(wrong)
        place = "/id" if "(id=" in text else "/set" if "result of" in text else "/input"
        raise Refusal("invalid", text, place=place) from None
    forked = views.forked(made, call.who)
    return Given(forked, 201, {"Location": f"/v1/runs/{forked.ref}"})
