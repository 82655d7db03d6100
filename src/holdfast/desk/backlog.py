"""The backlog, as people look at it: what waits for somebody who can do it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import msgspec

from holdfast.access import Act, Identity
from holdfast.config import Config
from holdfast.namespaces import namespace_of, shown, shown_text
from holdfast.store.store import Store
from holdfast.supervisor.backlog import BacklogItem, Capabilities, backlog


class WaitingItem(msgspec.Struct, kw_only=True):
    kind: Literal["step", "workflow"]
    name: str
    needs: list[str]
    depends: str
    ready: int
    is_exact: bool
    """False if there are more than were counted."""
    since: datetime
    able: int
    """How many live agents or schedulers can do it."""
    is_hopeless: bool
    """True if nobody can, and nothing else is in the way."""
    parked: str
    """The hold or the breaker that keeps it from beginning, in words."""
    start: str
    """The command that starts somebody who can do it, if nobody can."""


class BacklogList(msgspec.Struct):
    """What waits for somebody who can do it: first what nobody can do, then by age, and last what a gate parks."""

    items: list[WaitingItem]


async def backlog_list(store: Store, config: Config, who: Identity) -> BacklogList:
    """Return what waits for somebody who can do it."""
    who.demand(Act.READ)
    limit = config.pool_backlog_max
    return BacklogList(
        [
            WaitingItem(
                kind=one.kind,
                name=one.name,
                needs=one.needs,
                depends=one.depends,
                ready=one.ready,
                is_exact=one.ready < limit,
                since=moment(one.since),
                able=one.able,
                is_hopeless=one.is_hopeless,
                parked=one.parked,
                start=one.start,
            )
            for one in (seen(who.namespace, each) for each in await waiting(store, config, who))
        ]
    )


async def waiting(store: Store, config: Config, who: Identity) -> list[BacklogItem]:
    """Return what waits for somebody who can do it, with stored names."""
    limit = config.pool_backlog_max
    steps, codes = await store.overview.waiting_lanes(limit), await store.overview.pending_codes(limit)
    if not steps and not codes:
        return []
    lanes = [lane for lane in await store.agents.lanes() if who.sees(namespace_of(lane.name))]
    codes = {code: waits for code, waits in codes.items() if who.sees(namespace_of(code[0]))}
    gates = store.gates
    offering = Capabilities(await store.nodes.nodes(), await store.now())
    return backlog(lanes, steps, codes, offering, await gates.holds(), await gates.breakers())


def seen(namespace: str | None, one: BacklogItem) -> BacklogItem:
    """Return what waits with the names that those in the namespace see."""
    return msgspec.structs.replace(
        one,
        name=shown(namespace, one.name),
        depends=shown(namespace, one.depends),
        parked=shown_text(namespace, one.parked),
    )


def moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
