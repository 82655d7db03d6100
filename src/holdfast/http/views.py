"""Turns rows into what a server answers. Ids lose the namespace before them, and get the form that stands in a path."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw

from holdfast import model
from holdfast.access import Identity
from holdfast.codec.secret import masked_json
from holdfast.desk.agents import Health, LaneSeen
from holdfast.desk.alerts import AlertSeen
from holdfast.desk.overview import SeenStep
from holdfast.desk.runs import Ahead
from holdfast.durations import Eta
from holdfast.logs import LogInfo
from holdfast.namespaces import shown
from holdfast.store.forks import Forked
from holdfast.wire import answers
from holdfast.wire.paths import path_of

NULL = Raw(b"null")
FIRST = datetime(1, 1, 1, tzinfo=UTC).timestamp()
LAST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def moment(at: float) -> datetime:
    """Return a time of a row. What is beyond the calendar is its first or its last one."""
    return datetime.fromtimestamp(min(max(at, FIRST), LAST), UTC)


def maybe(at: float | None) -> datetime | None:
    return None if at is None else moment(at)


def payload(raw: bytes | str | None, who: Identity) -> Raw:
    """Return a payload with dots in the place of secrets. One that is no JSON any more, because somebody damaged its row,
    is null."""
    if raw is None or not who.payloads:
        return NULL
    data = raw.encode() if isinstance(raw, str) else raw
    try:
        json.loads(data)
    except ValueError:
        return NULL
    return Raw(masked_json(data))


def failure(raw: str | None, who: Identity | None = None) -> answers.Failure | None:
    """Return an error. With `who`, it has all that was recorded, if that identity may see payloads."""
    fields = _object(raw)
    if raw is None or fields is None:
        return None
    kind = str(fields.get("type", "")).removeprefix("builtins.").removeprefix("holdfast.errors.")
    step = fields.get("step")
    recorded = NULL if who is None else payload(raw, who)
    return answers.Failure(kind, str(fields.get("message", "")), None if not step else str(step), recorded)


def progress(raw: str | None) -> answers.Progress | None:
    fields = _object(raw)
    if fields is None:
        return None
    fraction = fields.get("fraction")
    return answers.Progress(
        float(fraction) if isinstance(fraction, int | float) else None, str(fields.get("note") or "")
    )


def _object(raw: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(raw or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _run_fields(row: model.RunRow, who: Identity, *, whole: bool = False) -> dict[str, Any]:
    def bare(stored: str | None) -> str | None:
        return None if stored is None else shown(who.namespace, stored)

    is_stuck = row.state is model.RunState.STUCK
    note = _object(row.note)
    run_id = shown(who.namespace, row.id)
    return {
        "id": run_id,
        "ref": path_of(run_id),
        "namespace": row.namespace,
        "workflow": row.workflow,
        "version": row.version,
        "state": row.state,
        "priority": row.priority,
        "fair": row.fair,
        "tags": {str(name): str(value) for name, value in (_object(row.tags) or {}).items()},
        "parent": bare(row.parent_id),
        "started_by": bare(row.started_by),
        "retry_of": bare(row.retry_of),
        "forked_from": bare(row.forked_from),
        "generation": row.generation,
        "progress": progress(row.progress),
        "note": None if is_stuck else row.note if note is None else str(note.get("message", "")),
        "error": failure(row.note if is_stuck else row.error, who if whole else None),
        "cause": failure(row.error, who if whole else None) if is_stuck else None,
        "resume": row.resume,
        "ending": row.ending,
        "parent_n": row.parent_n,
        "base_n": row.base_n,
        "kept_n": row.kept_n,
        "fence": row.fence,
        "created_at": moment(row.created_at),
        "started_at": maybe(row.started_at),
        "finished_at": maybe(row.finished_at),
        "deadline": maybe(row.deadline),
        "begin_at": maybe(row.begin_at),
        "due_at": maybe(row.due_at),
    }


def run(
    row: model.RunRow, who: Identity, expected: Eta | None = None, words: str | None = None
) -> answers.Run:
    return answers.Run(**_run_fields(row, who), eta=eta(expected), words=words)


def eta(found: Eta | None) -> answers.Eta | None:
    return None if found is None else answers.Eta(found.left_s, found.most_s, found.samples)


def whole_run(row: model.RunRow, who: Identity) -> answers.WholeRun:
    return answers.WholeRun(
        **_run_fields(row, who, whole=True),
        input=payload(row.input, who),
        output=payload(row.output, who),
        published=payload(row.published, who),
        hidden=not who.payloads,
    )


def ended_run(row: model.RunRow, who: Identity) -> answers.EndedRun:
    run_id = shown(who.namespace, row.id)
    return answers.EndedRun(
        id=run_id,
        ref=path_of(run_id),
        state=row.state,
        error=failure(row.note if row.state is model.RunState.STUCK else row.error, who),
        output=payload(row.output, who),
        hidden=not who.payloads,
        finished_at=maybe(row.finished_at),
    )


def started(stored: str, who: Identity, *, new: bool) -> answers.Started:
    run_id = shown(who.namespace, stored)
    return answers.Started(run_id, path_of(run_id), new)


def state(run_id: str, found: model.RunState) -> answers.State:
    return answers.State(run_id, path_of(run_id), found)


def forked(made: Forked, who: Identity) -> answers.Forked:
    run_id = shown(who.namespace, made.id)
    return answers.Forked(run_id, path_of(run_id), made.kept, list(made.undone))


def step(row: model.StepRow, who: Identity) -> answers.Step:
    return answers.Step(**_step_fields(row, who))


def whole_step(seen: SeenStep, who: Identity) -> answers.WholeStep:
    row, lane = seen.row, seen.lane
    child = None if seen.child is None else shown(who.namespace, seen.child)
    return answers.WholeStep(
        **_step_fields(row, who),
        here_key=row.effect_key,
        needs=[] if lane is None else list(lane.needs),
        depends="" if lane is None else shown(who.namespace, lane.depends),
        breaker=seen.breaker,
        undo=None if lane is None or not lane.undo else shown(who.namespace, lane.undo.removesuffix("!")),
        place=seen.place,
        checkpoint=payload(row.checkpoint, who),
        tried=[attempt(one, who) for one in seen.tried],
        child=child,
        child_ref=None if child is None else path_of(child),
    )


def _step_fields(row: model.StepRow, who: Identity) -> dict[str, Any]:
    return {
        "n": row.n,
        "key": row.key,
        "name": row.name,
        "kind": row.kind,
        "state": row.state,
        "attempts": row.attempt,
        "spent": row.spent,
        "losses": row.losses,
        "timeouts": row.timeouts,
        "throttled": row.throttled,
        "quarantined": row.quarantined,
        "agent": row.agent,
        "progress": progress(row.progress),
        "error": failure(row.error, who),
        "issued_at": moment(row.issued_at),
        "ready_at": moment(row.ready_at),
        "started_at": maybe(row.started_at),
        "finished_at": maybe(row.finished_at),
        "input": payload(row.input, who),
        "output": payload(row.output, who),
        "hidden": not who.payloads,
        "lane": row.lane,
        "priority": row.priority,
        "excused": row.excused,
        "attempts_max": row.attempts_max,
        "timeout_s": row.timeout_s,
        "fence": row.fence,
        "complete_by": maybe(row.complete_by),
        "retry": row.retry,
        "delivered": row.delivered_seq,
        "after": row.after_seq,
        "effect": row.effect,
    }


def signal(row: model.SignalRow, who: Identity) -> answers.SignalSeen:
    return answers.SignalSeen(
        id=row.id,
        name=row.name,
        key=row.key,
        sent_at=moment(row.sent_at),
        delivered=row.delivered_seq,
        set_aside=row.set_aside,
        answer=row.answer,
        replied_at=maybe(row.replied_at),
        data=payload(row.payload, who),
        reply=payload(row.reply, who),
        hidden=not who.payloads,
    )


def outlook(found: Ahead) -> answers.Outlook:
    twins = [
        answers.SeenTwin(
            one.n,
            str(one.state),
            one.not_agent,
            one.agent,
            moment(one.made_at),
            maybe(one.started_at),
            maybe(one.ended_at),
        )
        for one in found.twins.values()
    ]
    return answers.Outlook(eta(found.eta), dict(found.bounds), twins)


def attempt(row: model.Attempt, who: Identity) -> answers.Attempt:
    return answers.Attempt(
        row.n,
        row.attempt,
        row.ending,
        row.agent,
        failure(row.error, who),
        maybe(row.started_at),
        moment(row.finished_at),
        maybe(row.ready_at),
    )


def entry(row: model.JournalEntry, who: Identity) -> answers.Entry:
    run_id = None if row.run_id is None else shown(who.namespace, row.run_id)
    return answers.Entry(
        row.id, moment(row.at), row.actor, row.verb, run_id, row.n, row.note, row.via, row.request
    )


def line(info: LogInfo) -> answers.Line:
    return answers.Line(*info)


def workflow(row: model.Declaration) -> answers.Workflow:
    return answers.Workflow(
        row.name, path_of(row.name), row.version, row.origin, moment(row.first_at), moment(row.last_at)
    )


def whole_workflow(row: model.Declaration) -> answers.WholeWorkflow:
    return answers.WholeWorkflow(
        row.name,
        path_of(row.name),
        row.version,
        row.origin,
        moment(row.first_at),
        moment(row.last_at),
        code=row.code,
        digest=row.digest,
        namespace=row.namespace,
        input=Raw(row.input.encode()),
        result=Raw(row.result.encode()),
        signals=Raw(row.signals.encode()),
    )


def agent(health: Health, leader: str | None) -> answers.Agent:
    node, offers = health.node, health.offers
    return answers.Agent(
        id=node.id,
        host=node.host,
        pid=node.pid,
        state=str(health.state),
        roles=node.roles.split(","),
        leads=node.id == leader,
        labels=list(offers.get("labels", ())),
        workflows=list(offers.get("workflows", ())),
        steps=list(offers.get("steps", ())),
        capacity=node.capacity,
        has=health.steps,
        runs=health.runs,
        started_at=moment(node.started_at),
        lease_until=moment(node.lease_until),
        left_at=maybe(node.retired_at),
        offers=Raw(node.offers.encode()),
    )


def leader(lease: model.LeaderLease | None) -> answers.Leader | None:
    if lease is None:
        return None
    return answers.Leader(
        lease.node,
        lease.epoch,
        moment(lease.expires_at),
        maybe(lease.since),
        lease.vacant_s,
        lease.predecessor,
    )


def lane(seen: LaneSeen) -> answers.Lane:
    one, backlog = seen
    return answers.Lane(
        one.id, one.name, list(one.needs), one.depends, backlog.ready, maybe(backlog.since), one.undo
    )


def hold(row: model.Hold) -> answers.Hold:
    return answers.Hold(row.scope, row.value, row.actor, row.note, moment(row.at))


def breaker(row: model.Breaker) -> answers.Breaker:
    return answers.Breaker(
        name=row.name,
        ref=path_of(row.name),
        state=row.state,
        forced=row.forced,
        ok=row.ok,
        failed=row.failed,
        trips=row.trips,
        opened_at=maybe(row.opened_at),
        open_until=maybe(row.open_until),
        actor=row.actor,
        note=row.note,
        error=row.error,
        round=row.round,
        wave=row.wave,
        allowance=row.allowance,
        open_s=row.open_s,
        window_at=moment(row.window_at),
        told_at=moment(row.told_at),
    )


def poison(row: model.Poison) -> answers.Poison:
    fields = msgspec.structs.asdict(row)
    return answers.Poison(**fields | {"since": moment(row.since), "last_at": moment(row.last_at)})


def alert(seen: AlertSeen) -> answers.Alert:
    row, words, deliveries = seen
    return answers.Alert(
        id=row.id,
        kind=row.kind,
        level=row.level,
        key=row.key,
        message=words,
        run=row.run_id,
        times=row.times,
        at=moment(row.at),
        last_at=moment(row.last_at),
        cleared_at=maybe(row.cleared_at),
        sent_at=maybe(row.sent_at),
        deliveries=[
            answers.Delivery(
                one.channel,
                one.event,
                one.attempts,
                maybe(one.sent_at),
                maybe(one.given_up_at),
                one.last_error,
                one.id,
                moment(one.next_try_at),
            )
            for one in deliveries
        ],
    )


def act(row: model.ActRow) -> answers.Act:
    return answers.Act(
        id=row.id,
        verb=str(row.verb),
        state=str(row.state),
        actor=row.actor,
        note=row.note,
        runs=row.runs,
        done=row.done,
        changed=row.changed,
        refused=row.refused,
        holder=row.holder,
        fence=row.fence,
        created_at=moment(row.created_at),
        begun_at=maybe(row.begun_at),
        ended_at=maybe(row.ended_at),
        lease_until=maybe(row.lease_until),
        options=Raw((row.options or "{}").encode()),
        preview=Raw((row.preview or "{}").encode()),
    )


def act_run(row: model.ActRun) -> answers.ActRun:
    return answers.ActRun(
        row.run_id, row.state, row.fence, None if row.fate is None else str(row.fate), row.note
    )


def token(row: model.TokenRow) -> answers.Token:
    return answers.Token(
        id=row.id,
        name=row.name,
        role=row.role,
        namespaces=msgspec.json.decode(row.namespaces, type=list[str]),
        can=msgspec.json.decode(row.can, type=list[str]),
        payloads=row.payloads,
        made_by=row.made_by,
        made_at=moment(row.made_at),
        expires_at=maybe(row.expires_at),
        revoked_at=maybe(row.revoked_at),
        used_at=maybe(row.used_at),
        who=msgspec.json.decode(row.who, type=list[str]),
    )
