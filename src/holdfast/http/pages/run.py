"""The page of one run: what is it doing, and why?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Meta

from holdfast.desk.overview import Explained
from holdfast.durations import Eta
from holdfast.errors import HoldfastError
from holdfast.graph import to_svg
from holdfast.http.call import Call, Given
from holdfast.http.overview import TimelineQuery
from holdfast.http.pages.page import Page
from holdfast.http.pages.runs import shown
from holdfast.http.pages.timeline import picture
from holdfast.http.pages.words import STATES
from holdfast.http.refusals import Refusal, problem_of
from holdfast.http.runs import LimitQuery, LogsQuery, StepsQuery
from holdfast.http.views import NULL
from holdfast.lateness import due_words
from holdfast.model import Ending, RunState, StepKind, StepState
from holdfast.timeline import Timeline
from holdfast.wire import answers

PAGE = 200
GROUPS_MAX = 20
BRIEF = 12
"""Below a timeline of so few rows, input and published values stand at once."""
VIEWS = ("timeline", "steps", "graph", "data", "signals", "children", "journal", "logs")
COMMANDS_ONLY = {"update"}
"""Moves without a form: whoever calls an update waits for its answer."""
ENDED = {RunState.SUCCEEDED, RunState.FAILED, RunState.UNDONE, RunState.CANCELLED}


class RunPageQuery(msgspec.Struct):
    view: str = "timeline"
    step: int | None = None
    after: int = 0
    only: Literal["all", "open", "wrong"] = "all"
    open: Annotated[list[str], Meta(max_length=GROUPS_MAX)] = []
    """Groups of the timeline that are open."""
    fold: bool | None = None
    """Whether quiet time is folded. Without it, if most of the run is quiet."""


class StepSeen(NamedTuple):
    step: answers.Step
    state: str
    words: str
    tries: list[answers.Attempt]
    took_s: float | None


async def run(call: Call) -> Given:
    query: RunPageQuery = call.query
    if query.view not in VIEWS:
        raise Refusal("invalid", f"there is no such view: it is one of {', '.join(VIEWS)}", place="?view")
    page = Page(call)
    row: answers.WholeRun = await page.ask("GET /v1/runs/{run}")
    page.now = (await page.ask("GET /v1/me")).now
    assert page.now is not None
    why: Explained = await page.ask("GET /v1/runs/{run}/why")
    values: dict[str, Any] = {
        "row": row,
        "why": why,
        "moves": [one for one in why.moves if one.allowed and one.verb not in COMMANDS_ONLY],
        "others": [one for one in why.acts if one.allowed],
        "look": why.state if why.state in STATES else str(row.state),
        "view": query.view,
        "drawer": None,
        "topics": "topic=" + quote(f"run:{row.ref}", safe=""),
        "brief": shown(row, page.now),
        "none_yet": NULL,
    }
    tried: answers.Attempts = await page.ask("GET /v1/runs/{run}/attempts")
    values["retried"] = sum(one.ending is not Ending.REFUSED for one in tried.items)
    outlook = None if row.state in ENDED else await page.ask("GET /v1/runs/{run}/eta")
    values["eta"] = None if outlook is None else outlook.eta
    values |= _promise(row, values["eta"], page.now)
    values |= await _view(page, query, tried)
    if query.step is not None:
        values["drawer"] = await _drawer(page, query.step, tried)
    return await page.shown("run.html", "runs", row.id, **values)


def _promise(row: answers.Run, expected: answers.Eta | None, now: datetime | None) -> dict[str, Any]:
    """Return what the page says about when the run is due."""
    if row.due_at is None or now is None:
        return {"promise": "", "is_late": False}
    due_at, ended = row.due_at.timestamp(), None if row.finished_at is None else row.finished_at.timestamp()
    known = None if expected is None else Eta(expected.left_s, expected.most_s, expected.samples)
    said = due_words(due_at, ended, now.timestamp(), known)
    return {"promise": said, "is_late": "late" in said}


async def _view(page: Page, query: RunPageQuery, tried: answers.Attempts) -> dict[str, Any]:
    assert page.now is not None
    if query.view == "timeline":
        return await _timeline(page, query)
    if query.view == "steps":
        asked = StepsQuery(query.after, PAGE)
        found: answers.Steps = await page.ask("GET /v1/runs/{run}/steps", query=asked)
        return {
            "steps": [seen(one, tried.items, page.now) for one in found.items],
            "next": found.next,
        }
    if query.view == "graph":
        try:
            await page.ask("GET /v1/runs/{run}/graph")
        except HoldfastError as wrong:
            return {"no_graph": problem_of(wrong, hide=f"{page.who.namespace}//").detail}
        return {"no_graph": ""}
    if query.view == "journal":
        return {"journal": (await page.ask("GET /v1/runs/{run}/journal", query=LimitQuery(200))).items}
    if query.view == "signals":
        return {"signals": (await page.ask("GET /v1/runs/{run}/signals")).items}
    if query.view == "children":
        children = (await page.ask("GET /v1/runs/{run}/children")).items
        started = (await page.ask("GET /v1/runs/{run}/started")).items
        return {
            "children": [shown(one, page.now) for one in children],
            "started": [shown(one, page.now) for one in started],
        }
    if query.view == "logs":
        return {"logs": await page.ask("GET /v1/runs/{run}/logs", query=LogsQuery(limit=1_000))}
    return {}


async def graph(call: Call) -> Given:
    """The workflow of a run as a picture, with the run's way in it: for an image, which executes nothing."""
    drawing: answers.Drawing = await Page(call).ask("GET /v1/runs/{run}/graph")
    headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}
    return Given(to_svg(drawing.graph).encode(), headers=headers, media_type="image/svg+xml")


async def _timeline(page: Page, query: RunPageQuery) -> dict[str, Any]:
    name = "GET /v1/runs/{run}/timeline"
    found: Timeline = await page.ask(name, query=TimelineQuery(only=query.only, after=query.after))
    below = {}
    for group in query.open:
        part: Timeline = await page.ask(name, query=TimelineQuery(only=query.only, group=group))
        below[group] = part.rows
    kept = {
        "only": None if query.only == "all" else query.only,
        "open": query.open,
        "fold": _flag(query.fold),
    }
    here = f"/runs/{found.ref}"
    return {
        "time": picture(found, below, folded=query.fold),
        "undo": found.undo,
        "has_folds": bool(found.folds),
        "opened": query.open,
        "only": query.only,
        "kept": kept,
        "steps_count": found.steps,
        "is_brief": len(found.rows) <= BRIEF,
        "more_rows": None if found.next is None else page.url(here, **kept | {"after": found.next}),
        "onlys": [
            (one, words, page.url(here, **kept | {"only": None if one == "all" else one}))
            for one, words in (("all", "All"), ("open", "Open"), ("wrong", "Went wrong"))
        ],
        "folding": lambda is_folded: page.url(here, **kept | {"fold": _flag(not is_folded)}),
    }


def _flag(value: bool | None) -> str | None:
    return None if value is None else "true" if value else "false"


async def _drawer(page: Page, n: int, tried: answers.Attempts) -> dict[str, Any]:
    assert page.now is not None
    step: answers.WholeStep = await page.ask("GET /v1/runs/{run}/steps/{n}", n=str(n))
    logs = await page.ask("GET /v1/runs/{run}/logs", query=LogsQuery(step=n, limit=200))
    one = seen(step, tried.items, page.now)
    return {
        "seen": one,
        "tries": [_tried(each) for each in reversed(one.tries)],
        "traceback": traceback(step.error),
        "logs": logs,
        "checkpoint": step.checkpoint != NULL,
        "here": partial(_where, step),
    }


def _where(step: answers.WholeStep, agent: str) -> str:
    """Return where an agent is. Of one that has the step no more, only its id is known."""
    return step.place if agent == step.agent and step.place else agent[:8]


def _tried(attempt: answers.Attempt) -> dict[str, Any]:
    took = None if attempt.started_at is None else (attempt.finished_at - attempt.started_at).total_seconds()
    return {"attempt": attempt, "took_s": took, "traceback": traceback(attempt.error)}


def traceback(error: answers.Failure | None) -> str:
    """Return the recorded traceback of an error. Empty if there is none, or if payloads are hidden."""
    recorded = None if error is None else msgspec.json.decode(bytes(error.recorded))
    text = recorded.get("traceback") if isinstance(recorded, dict) else None
    return text if isinstance(text, str) else "\n".join(map(str, text)) if isinstance(text, list) else ""


def seen(step: answers.Step, attempts: Sequence[answers.Attempt], now: datetime) -> StepSeen:
    tries = [one for one in attempts if one.n == step.n]
    begun = step.started_at or step.issued_at
    ended = step.finished_at or now
    return StepSeen(step, state(step, now), words(step, tries), tries, (ended - begun).total_seconds())


def state(step: answers.Step, now: datetime) -> str:
    """Return a step's state for people, as the command line says it."""
    if step.quarantined:
        return "quarantined"
    backs_off = step.state is StepState.READY and step.kind is StepKind.CALL and step.ready_at > now
    return "backing off" if backs_off else str(step.state)


def words(step: answers.Step, tries: Sequence[answers.Attempt]) -> str:
    if step.error is not None:
        return f"{step.error.type}: {step.error.message}"
    if step.progress is not None and step.finished_at is None:
        share = "" if step.progress.fraction is None else f"{step.progress.fraction:.0%} "
        return f"{share}{step.progress.note}"
    if step.finished_at is None and tries and tries[-1].error is not None:
        return f"after {tries[-1].error.type}: {tries[-1].error.message}"
    return ""
