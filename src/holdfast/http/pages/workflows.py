"""The pages of workflows: does this code work well?"""

from __future__ import annotations

from urllib.parse import quote, urlencode

from holdfast.desk.overview import CountedRuns
from holdfast.http.call import Call, Given
from holdfast.http.overview import StatsQuery
from holdfast.http.pages.charts import pulse
from holdfast.http.pages.day import last_day
from holdfast.http.pages.page import Page
from holdfast.http.pages.runs import FIRST, shown
from holdfast.http.runs import RunsQuery
from holdfast.wire import answers


async def workflows(call: Call) -> Given:
    page = Page(call)
    found: answers.Workflows = await page.ask("GET /v1/workflows")
    groups: dict[str, list[answers.Workflow]] = {}
    for one in found.items:
        groups.setdefault(one.name, []).append(one)
    day = {one.workflow: one for one in (await last_day(page)).workflows} if page.may("GET /v1/stats") else {}
    return await page.shown("workflows.html", "workflows", "Workflows", groups=groups, day=day)


async def workflow(call: Call) -> Given:
    page = Page(call)
    found: answers.WorkflowVersions = await page.ask("GET /v1/workflows/{name}")
    page.now = (await page.ask("GET /v1/me")).now
    went, by_version = None, {}
    if page.may("GET /v1/stats"):
        day = await page.ask(
            "GET /v1/stats", query=StatsQuery(window="24h", by="version", workflow=found.name)
        )
        went = pulse(day)
        by_version = {one.version: one for one in day.versions}
    rows: list[answers.Run] = []
    counts: list[tuple[str, int]] = []
    is_exact = True
    if page.may("GET /v1/runs"):
        asked = RunsQuery(workflow=found.name, limit=20, words=True)
        rows = (await page.ask("GET /v1/runs", query=asked)).items
        counted: CountedRuns = await page.ask("GET /v1/runs/counts", query=asked)
        counts = [(state, counted.runs[state]) for state in FIRST if counted.runs.get(state)]
        is_exact = counted.exact
    return await page.shown(
        "workflow.html",
        "workflows",
        found.name,
        name=found.name,
        versions=found.versions,
        pulse=went,
        day=by_version,
        runs=[shown(row, page.now) for row in rows],
        counts=counts,
        is_exact=is_exact,
        topics="topic=" + quote("runs:" + urlencode({"workflow": found.name}), safe=""),
    )
