"""The page of agents: who works, and how well?"""

from __future__ import annotations

import msgspec

from holdfast.desk.backlog import BacklogList
from holdfast.http.call import Call, Given
from holdfast.http.operators import EverythingQuery
from holdfast.http.pages.page import Page
from holdfast.wire import answers


class AgentsPageQuery(msgspec.Struct):
    all: bool = False


async def agents(call: Call) -> Given:
    page = Page(call)
    found: answers.Agents = await page.ask("GET /v1/agents", query=EverythingQuery(call.query.all))
    page.now = found.now
    waiting: BacklogList = await page.ask("GET /v1/backlog")
    groups: dict[str, list[answers.Agent]] = {}
    for one in found.items:
        groups.setdefault(one.host, []).append(one)
    hosts = len(groups)
    work = len([one for one in found.items if one.state not in {"offline", "gone", "left"}])
    return await page.shown(
        "agents.html",
        "agents",
        "Agents",
        topics="topic=agents",
        groups=groups,
        leader=found.leader,
        said=f"{len(found.items)} {'process' if len(found.items) == 1 else 'processes'} on {hosts} {'host' if hosts == 1 else 'hosts'}, {work} at work",
        nobody=[one for one in waiting.items if one.is_hopeless],
        everything=call.query.all,
    )
