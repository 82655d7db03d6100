"""Turns what a server answers into the rows that handles and commands show. It is the reverse of the server's views."""

from __future__ import annotations

import json
from datetime import datetime

import msgspec
from msgspec import Raw

from holdfast import model
from holdfast.durations import Eta
from holdfast.supervisor.outlook import Outlook
from holdfast.wire import answers

NULL = b"null"


def at(moment: datetime) -> float:
    return moment.timestamp()


def maybe(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def error(found: answers.Failure | None) -> str | None:
    """Return an error as it is recorded. In a list, an error has only a part of that."""
    if found is None:
        return None
    if bytes(found.recorded) != NULL:
        return bytes(found.recorded).decode()
    known = {"type": found.type, "message": found.message}
    return json.dumps(known if found.step is None else known | {"step": found.step})


def progress(found: answers.Progress | None) -> str | None:
    return None if found is None else json.dumps({"fraction": found.fraction, "note": found.note})


def payload(raw: Raw) -> bytes | None:
    data = bytes(raw)
    return None if data == NULL else data


def run(found: answers.Run) -> model.RunRow:
    is_stuck = found.state is model.RunState.STUCK
    whole = found if isinstance(found, answers.WholeRun) else None
    output = None if whole is None else payload(whole.output)
    if whole is not None and output is None and found.state is model.RunState.SUCCEEDED:
        output = NULL
    published = None if whole is None else payload(whole.published)
    return model.RunRow(
        id=found.id,
        namespace=found.namespace,
        workflow=found.workflow,
        version=found.version,
        state=found.state,
        priority=found.priority,
        owner=None,
        fence=found.fence,
        input=b"{}" if whole is None else bytes(whole.input),
        digest=b"",
        output=output,
        error=error(found.cause if is_stuck else found.error),
        tags=json.dumps(found.tags) if found.tags else None,
        parent_id=found.parent,
        parent_n=found.parent_n,
        retry_of=found.retry_of,
        generation=found.generation,
        base_n=found.base_n,
        progress=progress(found.progress),
        published=None if published is None else published.decode(),
        resume=found.resume,
        note=error(found.error) if is_stuck else found.note,
        deadline=maybe(found.deadline),
        created_at=at(found.created_at),
        started_at=maybe(found.started_at),
        finished_at=maybe(found.finished_at),
        ending=found.ending,
        kept_n=found.kept_n,
        forked_from=found.forked_from,
        started_by=found.started_by,
        begin_at=maybe(found.begin_at),
        due_at=maybe(found.due_at),
        fair=found.fair,
    )


def eta(found: answers.Eta | None) -> Eta | None:
    return None if found is None else Eta(found.left_s, found.most_s, found.samples)


def step(run_id: str, found: answers.Step) -> model.StepRow:
    output = payload(found.output)
    if output is None and found.state is model.StepState.SUCCEEDED:
        output = NULL
    return model.StepRow(
        run_id=run_id,
        n=found.n,
        key=found.key,
        kind=found.kind,
        name=found.name,
        lane=found.lane,
        state=found.state,
        priority=found.priority,
        ready_at=at(found.ready_at),
        attempt=found.attempts,
        losses=found.losses,
        excused=found.excused,
        attempts_max=found.attempts_max,
        timeout_s=found.timeout_s,
        fence=found.fence,
        agent=found.agent,
        complete_by=maybe(found.complete_by),
        input=payload(found.input),
        digest=None,
        output=output,
        error=error(found.error),
        retry=found.retry,
        checkpoint=None,
        progress=progress(found.progress),
        delivered_seq=found.delivered,
        issued_at=at(found.issued_at),
        started_at=maybe(found.started_at),
        finished_at=maybe(found.finished_at),
        after_seq=found.after,
        timeouts=found.timeouts,
        throttled=found.throttled,
        effect=found.effect,
    )


def attempt(run_id: str, found: answers.Attempt) -> model.Attempt:
    return model.Attempt(
        run_id,
        found.n,
        found.attempt,
        found.ending,
        found.agent,
        error(found.error),
        maybe(found.started_at),
        at(found.finished_at),
        maybe(found.ready_at),
    )


def entry(found: answers.Entry) -> model.JournalEntry:
    return model.JournalEntry(
        found.id,
        at(found.at),
        found.actor,
        found.verb,
        found.run,
        found.n,
        found.note,
        found.via,
        found.request,
    )


def signal(run_id: str, found: answers.SignalSeen) -> model.SignalRow:
    return model.SignalRow(
        found.id,
        run_id,
        found.name,
        found.key,
        bytes(found.data),
        found.delivered,
        at(found.sent_at),
        found.set_aside,
        found.answer,
        None if found.answer is None else bytes(found.reply),
        maybe(found.replied_at),
    )


def outlook(run_id: str, found: answers.Outlook) -> Outlook:
    twins = {
        one.n: model.Twin(
            run_id,
            one.n,
            model.TwinState(one.state),
            one.not_agent,
            one.agent,
            at(one.made_at),
            maybe(one.started_at),
            maybe(one.ended_at),
        )
        for one in found.twins
    }
    return Outlook(eta(found.eta), found.bounds, twins)


def declaration(found: answers.Workflow) -> model.Declaration:
    whole = found if isinstance(found, answers.WholeWorkflow) else None
    return model.Declaration(
        "" if whole is None else whole.namespace,
        found.name,
        found.version,
        "" if whole is None else whole.code,
        found.origin,
        "" if whole is None else whole.digest,
        "{}" if whole is None else bytes(whole.input).decode(),
        "{}" if whole is None else bytes(whole.result).decode(),
        "{}" if whole is None else bytes(whole.signals).decode(),
        at(found.first_at),
        at(found.last_at),
    )


def node(found: answers.Agent) -> model.NodeRow:
    return model.NodeRow(
        found.id,
        found.host,
        found.pid,
        ",".join(found.roles),
        bytes(found.offers).decode(),
        found.capacity,
        at(found.started_at),
        at(found.lease_until),
        maybe(found.left_at),
    )


def leader(found: answers.Leader | None) -> model.LeaderLease | None:
    if found is None:
        return None
    return model.LeaderLease(
        found.node, found.epoch, at(found.expires_at), maybe(found.since), found.vacant_s, found.predecessor
    )


def hold(found: answers.Hold) -> model.Hold:
    return model.Hold(found.scope, found.value, found.actor, found.note, at(found.at))


def breaker(found: answers.Breaker) -> model.Breaker:
    return model.Breaker(
        name=found.name,
        state=found.state,
        round=found.round,
        ok=found.ok,
        failed=found.failed,
        window_at=maybe(found.window_at) or 0.0,
        told_at=maybe(found.told_at) or 0.0,
        wave=found.wave,
        allowance=found.allowance,
        opened_at=maybe(found.opened_at),
        open_until=maybe(found.open_until),
        open_s=found.open_s,
        trips=found.trips,
        forced=found.forced,
        actor=found.actor,
        note=found.note,
        error=found.error,
    )


def poison(found: answers.Poison) -> model.Poison:
    fields = msgspec.structs.asdict(found)
    return model.Poison(**fields | {"since": at(found.since), "last_at": at(found.last_at)})


def alert(found: answers.Alert) -> tuple[model.Alert, list[model.Delivery]]:
    row = model.Alert(
        found.id,
        at(found.at),
        found.kind,
        found.run,
        found.message,
        maybe(found.sent_at),
        found.level,
        found.key,
        found.times,
        at(found.last_at),
        maybe(found.cleared_at),
    )
    deliveries = [
        model.Delivery(
            one.id,
            found.id,
            one.channel,
            one.event,
            one.attempts,
            maybe(one.next_try_at) or 0.0,
            maybe(one.sent_at),
            maybe(one.given_up_at),
            one.last_error,
        )
        for one in found.deliveries
    ]
    return row, deliveries


def act(found: answers.Act) -> model.ActRow:
    return model.ActRow(
        id=found.id,
        verb=model.ActVerb(found.verb),
        state=model.ActState(found.state),
        fence=found.fence,
        holder=found.holder,
        lease_until=maybe(found.lease_until),
        actor=found.actor,
        note=found.note,
        options=bytes(found.options).decode(),
        preview=bytes(found.preview).decode(),
        runs=found.runs,
        done=found.done,
        changed=found.changed,
        refused=found.refused,
        created_at=at(found.created_at),
        begun_at=maybe(found.begun_at),
        ended_at=maybe(found.ended_at),
    )


def act_run(found: answers.ActRun) -> model.ActRun:
    fate = None if found.fate is None else model.Fate(found.fate)
    return model.ActRun(found.run, found.state, found.fence, fate, found.note)


def token(found: answers.Token) -> model.TokenRow:
    return model.TokenRow(
        found.id,
        found.name,
        found.role,
        json.dumps(found.namespaces),
        json.dumps(found.can),
        found.payloads,
        found.made_by,
        at(found.made_at),
        maybe(found.expires_at),
        maybe(found.revoked_at),
        maybe(found.used_at),
        b"",
        None,
        None,
        json.dumps(found.who),
    )
