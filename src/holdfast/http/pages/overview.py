"""The first page: what needs a person now?"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.desk.attention import AttentionList
from holdfast.desk.overview import CountedRuns
from holdfast.desk.stats import Stats
from holdfast.http.call import Call, Given
from holdfast.http.pages.charts import pulse
from holdfast.http.pages.day import last_day
from holdfast.http.pages.page import Page
from holdfast.http.pages.runs import shown
from holdfast.http.runs import RunsQuery
from holdfast.wire import answers

WORKFLOWS = 7
"""How many workflows are shown: those that fail most."""
OPEN = ["running", "undoing", "pending"]
LOOKS = {
    "stuck run": "stuck",
    "quarantine": "quarantined",
    "nobody can do this": "stuck",
    "store trouble": "stuck",
    "breaker open": "open",
    "late ask": "waiting",
    "ask": "waiting",
    "held run": "held",
    "late run": "waiting",
    "agent": "stalled",
    "trouble": "stuck",
}
"""How each kind of thing that needs a person looks."""


class Rest(NamedTuple):
    """What there is no room for, of one kind: in words, for one and for many, and where it is dealt with."""

    one: str
    many: str
    path: str
    state: str | None = None

    def words(self, number: int) -> str:
        return (self.one if number == 1 else self.many).format(f"{number:,}")


RESTS = {
    "stuck run": Rest("{} stuck run", "{} stuck runs", "/runs", "stuck"),
    "quarantine": Rest("{} failure in quarantine", "{} failures in quarantine", "/quarantine"),
    "nobody can do this": Rest("{} step that nobody can do", "{} steps that nobody can do", "/backlog"),
    "store trouble": Rest("trouble with the store", "trouble with the store", "/alerts"),
    "breaker open": Rest("{} open breaker", "{} open breakers", "/gates"),
    "late ask": Rest("{} late question", "{} late questions", "/asks"),
    "ask": Rest("open questions", "open questions", "/asks"),  # they are one thing together
    "held run": Rest("{} held run", "{} held runs", "/runs", "held"),
    "late run": Rest("{} late run", "{} late runs", "/runs"),
    "agent": Rest("{} agent in trouble", "{} agents in trouble", "/agents"),
    "trouble": Rest("{} other trouble", "{} other troubles", "/alerts"),
}


async def overview(call: Call) -> Given:
    page = Page(call)
    needs: AttentionList = await page.ask("GET /v1/attention")
    page.now = needs.now
    counts: CountedRuns = await page.ask("GET /v1/runs/counts")
    opened: answers.Runs = await page.ask(
        "GET /v1/runs", query=RunsQuery(state=OPEN, limit=7, eta=True, words=True)
    )
    hour: Stats = await page.ask("GET /v1/stats")
    day = await last_day(page)
    return await page.shown(
        "overview.html",
        "overview",
        "Overview",
        needs=needs,
        looks=LOOKS,
        rests=RESTS,
        pulse=pulse(hour, day),
        waits_since=hour.oldest_ready,
        workflows=day.workflows[:WORKFLOWS],
        live=[shown(row, page.now) for row in opened.items],
        under_way=sum(counts.runs.get(state, 0) for state in OPEN),
        topics="topic=attention&topic=runs%3A",
    )
