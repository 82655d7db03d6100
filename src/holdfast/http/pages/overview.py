"""The first page: what needs a person now?"""

from __future__ import annotations

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
        pulse=pulse(hour, day),
        waits_since=hour.oldest_ready,
        workflows=day.workflows[:WORKFLOWS],
        live=[shown(row, page.now) for row in opened.items],
        under_way=sum(counts.runs.get(state, 0) for state in OPEN),
        topics="topic=attention&topic=runs%3A",
    )
