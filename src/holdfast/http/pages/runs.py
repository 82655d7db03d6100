"""The page of runs: which runs, and what does each wait for?"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import quote, urlencode

import msgspec

from holdfast.desk.overview import COUNTED_MAX, CountedRuns
from holdfast.http.call import Call, Given
from holdfast.http.pages.day import last_day
from holdfast.http.pages.page import Page
from holdfast.http.runs import RunsQuery
from holdfast.model import RunState
from holdfast.wire import answers
from holdfast.wire.views import Views

FIRST = ("running", "undoing", "stuck", "held", "pending", "succeeded", "failed", "undone", "cancelled")
"""The order in which states are counted: what goes on first."""
VIEWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Needs a person", {"state": ["stuck", "held"]}),
    ("Under way", {"state": ["running", "undoing", "pending"]}),
    ("Retrying", {"is": ["retrying"]}),
    ("Went wrong today", {"state": ["failed", "undone", "stuck"], "since": "24h"}),
)
"""Lists that many want to see. Others are saved by whoever wants them."""
NAMED = ("workflow", "since", "until", "error", "prefix")
_TOKEN = re.compile(r'(\w[\w.-]*)([:=])("[^"]*"|\S+)')


class RunsPageQuery(msgspec.Struct, rename={"traits": "is"}):
    q: str = ""
    """What was typed into the bar: it becomes the parameters below."""
    state: list[str] = []
    workflow: str | None = None
    since: str | None = None
    until: str | None = None
    error: str | None = None
    prefix: str | None = None
    traits: list[str] = []
    order: Literal["newest", "oldest"] | None = None
    cursor: str | None = None


Usual: TypeAlias = tuple[float, float]
"""How long half of the runs take, and nine of ten."""


class Shown(NamedTuple):
    """A row of the list."""

    id: str
    ref: str
    workflow: str
    state: str
    words: str
    fraction: float | None
    created_at: datetime
    finished_at: datetime | None
    took_s: float
    usual: Usual | None


class Own(NamedTuple):
    """A view of whoever looks."""

    name: str
    ref: str
    address: str


class Token(NamedTuple):
    name: str
    value: str
    without: str
    """The address of the list without it."""


async def runs(call: Call) -> Given:
    query: RunsPageQuery = call.query
    page = Page(call)
    given = _parameters(query, call.tags)
    if query.q.strip():
        return page.to(page.url("/runs", **given | typed(query.q)))
    asked = RunsQuery(
        workflow=query.workflow,
        state=query.state,
        since=query.since,
        until=query.until,
        error=query.error,
        prefix=query.prefix,
        traits=query.traits,
        order=query.order or "newest",
        cursor=query.cursor,
        pages=False,
        eta=True,
        words=True,
    )
    found: answers.Runs = await page.ask("GET /v1/runs", query=asked, tags=call.tags)
    counts: CountedRuns = await page.ask("GET /v1/runs/counts", query=asked, tags=call.tags)
    page.now = (await page.ask("GET /v1/me")).now
    usual = await usually(page)
    own: Views = await page.ask("GET /v1/views")
    tokens = [
        Token(name, value, page.url("/runs", **_without(given, name, value)))
        for name, some in given.items()
        if name not in {"state", "cursor", "order"}
        for value in _each(some)
    ]
    numbers = [(state, counts.runs.get(state, 0)) for state in FIRST]
    return await page.shown(
        "runs.html",
        "runs",
        "Runs",
        items=[shown(row, page.now, usual.get(row.workflow)) for row in found.items],
        views=[(name, page.url("/runs", **view)) for name, view in VIEWS],
        own=[Own(one.name, one.ref, page.listed(one.query)) for one in own.items],
        query=urlencode(_left(given, "cursor"), doseq=True),
        here_now=page.url("/runs", **given),
        counts=[(state, number) for state, number in numbers if number or state in query.state],
        total=sum(counts.runs.values()) if counts.exact else COUNTED_MAX,
        is_exact=counts.exact,
        is_oldest_first=query.order == "oldest",
        turned=page.url(
            "/runs", **_left(given, "order") | {"order": None if query.order == "oldest" else "oldest"}
        ),
        chosen=query.state,
        tokens=tokens,
        kept=[(name, value) for name, one in given.items() for value in _each(one) if name != "cursor"],
        drop=tokens[-1] if tokens else None,
        q="",
        without=lambda name: page.url("/runs", **_left(given, name)),
        with_state=lambda state: page.url("/runs", **_left(given, "state") | {"state": state}),
        next=None if found.next is None else page.url("/runs", **given | {"cursor": found.next}),
        is_later=query.cursor is not None,
        topics=_topic(given),
        bulk=page.url("/do/v1/acts", **_meant(given)),
    )


def _parameters(query: RunsPageQuery, tags: dict[str, str]) -> dict[str, Any]:
    """Return what the address says, as it stands in an address."""
    found: dict[str, Any] = {"state": query.state} if query.state else {}
    found |= {name: value for name in NAMED if (value := getattr(query, name))}
    if query.traits:
        found["is"] = query.traits
    if query.order == "oldest":
        found["order"] = query.order
    found |= {f"tag.{name}": value for name, value in tags.items()}
    return found


def _left(given: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in {name, "cursor"}}


def _without(given: dict[str, Any], name: str, value: str) -> dict[str, Any]:
    """Return the parameters without one of those of a name that may be given several times."""
    rest = [one for one in _each(given[name]) if one != value]
    return _left(given, name) | ({name: rest} if rest else {})


def _each(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def typed(text: str) -> dict[str, Any]:
    """Return the parameters that a text means: `state:failed workflow:order region=eu since:2h trip-8`."""
    found: dict[str, Any] = {}
    rest = text
    for token in _TOKEN.finditer(text):
        name, sign, value = token[1], token[2], token[3].strip('"')
        if sign == "=":
            found[f"tag.{name}"] = value
        elif name in {"state", "is"}:
            found.setdefault(name, []).append(value)
        elif name in NAMED:
            found[name] = value
        else:
            continue  # an id may have a colon in it
        rest = rest.replace(token[0], " ")
    words = rest.split()
    if words:
        is_state = words[0] in set(RunState) and len(words) == 1
        found |= {"state": [words[0]]} if is_state else {"prefix": " ".join(words)}
    return found


def _topic(given: dict[str, Any]) -> str:
    return "topic=" + quote("runs:" + urlencode(_left(given, "cursor"), doseq=True), safe="")


def _meant(given: dict[str, Any]) -> dict[str, Any]:
    """Return what a form for an act on all runs of this list begins with."""
    tags = {name.removeprefix("tag."): value for name, value in given.items() if name.startswith("tag.")}
    plain = {name: value for name, value in given.items() if name in NAMED}
    state = " ".join(given.get("state", ()))
    plain["is"] = " ".join(given.get("is", ()))
    return plain | {"state": state, "tags": json.dumps(tags) if tags else ""}


async def usually(page: Page) -> dict[str, Usual]:
    """Return how long runs of each workflow take: half of them, and nine of ten, in the last 24 hours."""
    if not page.may("GET /v1/stats"):
        return {}
    day = (await last_day(page)).workflows
    return {one.workflow: (one.took.half_s, one.took.most_s) for one in day if one.took is not None}


def shown(row: answers.Run, now: datetime | None, usual: Usual | None = None) -> Shown:
    took = ((row.finished_at or now or row.created_at) - row.created_at).total_seconds()
    return Shown(
        row.id,
        row.ref,
        row.workflow,
        str(row.state),
        words(row),
        None if row.progress is None or row.finished_at else row.progress.fraction,
        row.created_at,
        row.finished_at,
        took,
        usual,
    )


def words(row: answers.Run) -> str:
    """Say in a few words what a run waits for, or what became of it."""
    if row.words is not None:
        return row.words
    if row.error is not None:
        return f"{row.error.type}: {row.error.message}" if row.error.message else row.error.type
    if row.note:
        return row.note
    return row.progress.note if row.progress is not None else ""
