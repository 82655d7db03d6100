"""Attention, as people look at it: what needs a person now, and what would get it on."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.access import Act, Identity
from holdfast.config import Config
from holdfast.desk.backlog import moment, seen, waiting
from holdfast.model import RunState
from holdfast.namespaces import namespace_of, shown, shown_row, shown_text
from holdfast.store.reads import RunFilter
from holdfast.store.store import Store
from holdfast.supervisor import attention
from holdfast.supervisor.attention import AttentionKind, LeftOut
from holdfast.supervisor.health import examine
from holdfast.supervisor.moves import Move
from holdfast.supervisor.phrases import ago
from holdfast.wire.paths import path_of

ATTENTION = 8
"""How many things that need a person are named, of as many kinds as there are. The rest is counted."""
LOOKED_AT = 100
"""How many of a kind are looked at."""
SOLVED_WITHIN = 50
"""How many of the newest entries of the journal are searched for what a person did last."""
SOLVES = frozenset({"release", "retry", "skip", "cancel", "fail", "quarantine release", "reset", "close"})
OURS = frozenset({"supervisor", "scheduler", "agent"})


class Solved(msgspec.Struct):
    """What a person did last."""

    actor: str
    verb: str
    run: str | None
    at: datetime


class AttentionItem(msgspec.Struct, kw_only=True):
    kind: AttentionKind
    id: str
    title: str
    sentence: str
    since: datetime
    run: str | None
    ref: str | None
    """The run as it stands in a path."""
    ask: str | None = None
    """The question that it is about. If there are several, the oldest."""
    count: int
    moves: list[Move]


class AttentionList(msgspec.Struct, kw_only=True):
    """What needs a person now, most urgent first."""

    headline: str
    total: int
    is_exact: bool
    """False if there may be more than were counted."""
    items: list[AttentionItem]
    rest: list[LeftOut]
    """How many of each kind are left out."""
    solved: Solved | None
    """What a person did last, if whoever asks may read the journal."""
    now: datetime


async def attention_list(store: Store, config: Config, who: Identity, limit: int) -> AttentionList:
    """Return what needs a person now, most urgent first."""
    who.demand(Act.READ)
    namespace, now = who.namespace, await store.now()
    found: list[attention.Attention | None] = []
    # Both at once: a state that few runs are in is looked for in all of them.
    stopped = RunFilter(namespace=namespace, states=("stuck", "held"), limit=2 * LOOKED_AT, has_pages=True)
    for row in await store.reads.runs(stopped):
        about = attention.stuck if row.state is RunState.STUCK else attention.held
        found.append(about(row, shown(namespace, row.id), now))
    poison = await store.quarantine.quarantine(LOOKED_AT, namespace)
    found += [attention.poison(shown_row(namespace, one), now) for one in poison]
    breakers = [one for one in await store.gates.breakers() if who.sees(namespace_of(one.name))]
    found += [attention.breaker(shown_row(namespace, one), now) for one in breakers]
    found += [
        attention.hopeless(seen(namespace, one), now)
        for one in await waiting(store, config, who)
        if one.is_hopeless
    ]
    if namespace is None or who.may(Act.READ_STORE):
        loads = await store.nodes.loads()
        nodes = [node for node in await store.nodes.nodes() if node.retired_at is None]
        found += [attention.agent(examine(node, loads.get(node.id, (0, 0)), now), now) for node in nodes]
    alerts = await store.alerts.open_alerts(LOOKED_AT, namespace)
    found += [attention.alarm(one, now) for one in alerts]
    if who.may(Act.SEE_ASKS):
        found += attention.asks(await store.asks.open_asks(namespace, limit=LOOKED_AT), now)
    there = attention.in_order(one for one in found if one is not None)
    solved = await _solved(store, who) if who.may(Act.AUDIT) else None
    return AttentionList(
        headline=attention.headline(there),
        total=len(there),
        is_exact=len(found) < LOOKED_AT,
        items=[_item(who, await _as_it_is(store, one, now)) for one in attention.named(there, limit)],
        rest=attention.rest(there, limit),
        solved=solved,
        now=moment(now),
    )


async def _as_it_is(store: Store, one: attention.Attention, now: float) -> attention.Attention:
    """A run that was late when people were notified is later now."""
    if one.kind != "late run" or one.run is None or not one.title.startswith("Run "):
        return one
    row = await store.reads.run(one.run)
    if row is None or row.due_at is None or now < row.due_at:
        return one
    return msgspec.structs.replace(one, sentence=f"It was due {ago(now - row.due_at)} ago.")


async def _solved(store: Store, who: Identity) -> Solved | None:
    for entry in await store.reads.journal(None, SOLVED_WITHIN, who.namespace):
        if entry.verb in SOLVES and entry.actor not in OURS:
            run = None if entry.run_id is None else shown(who.namespace, entry.run_id)
            return Solved(entry.actor, entry.verb, run, moment(entry.at))
    return None


def _item(who: Identity, one: attention.Attention) -> AttentionItem:
    run = None if one.run is None else shown(who.namespace, one.run)
    return AttentionItem(
        kind=one.kind,
        id=shown_text(who.namespace, one.id),
        title=shown_text(who.namespace, one.title),
        sentence=shown_text(who.namespace, one.sentence),
        since=moment(one.since),
        run=run,
        ref=None if run is None else path_of(run),
        ask=one.ask,
        count=one.count,
        moves=[allowed(who, each) for each in one.moves[: attention.MOVES_MAX]],
    )


def allowed(who: Identity, one: Move) -> Move:
    """Return a move as the identity sees it: with whether it may do that."""
    act = {"signal": Act.START, "update": Act.START, "answer": Act.ANSWER}.get(one.verb, Act.STEER)
    return one if who.may(act) else msgspec.structs.replace(one, allowed=False)
