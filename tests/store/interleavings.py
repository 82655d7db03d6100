"""A store in which every statement that writes has something to do, and operations that do it.

The rows are such that the operations get in each other's way: most are about the same few runs. A new statement that
writes or locks needs an operation here (see test_postgres_interleavings.py).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import msgspec

from holdfast import codec
from holdfast.adaptation import LimitChange, LimitLook
from holdfast.breaker import BreakerChange
from holdfast.errors import WrongState
from holdfast.model import (
    CANCEL,
    UNDO,
    ActOptions,
    ActVerb,
    AlertKind,
    BackfillRow,
    BackfillState,
    BreakerState,
    ChildUndo,
    ComposedRow,
    Declaration,
    Failure,
    FireFate,
    Gathering,
    HoldScope,
    Level,
    LogPart,
    NewAlert,
    NewEvent,
    NewHook,
    NewRun,
    NewSchedule,
    NewSignal,
    NewToken,
    Outcome,
    RunState,
    ScheduleRow,
    ScheduleState,
    StepState,
    Trigger,
    TwinState,
    undo_key,
)
from holdfast.occasions import ArrivedTimes, Composition, Group, Part
from holdfast.questions import Answerer
from holdfast.queues import LimitKey, Queue, QueueKey
from holdfast.store.acts import NewAct
from holdfast.store.alerts import ALERTS
from holdfast.store.answers import AlertRoute, Observation
from holdfast.store.asks import GivenAnswer
from holdfast.store.callbacks import GivenResult
from holdfast.store.claims import StepClaim
from holdfast.store.database import LEADER, Session, StoreCall
from holdfast.store.events import Arrival, EventWait, write_triggers
from holdfast.store.forks import ForkRequest
from holdfast.store.limits import LimitLoad
from holdfast.store.occasions import DueTime, write_composed
from holdfast.store.operations import (
    BeginUndo,
    Close,
    HandBack,
    Hop,
    NewStep,
    Op,
    QuarantineStep,
    RetryStep,
    Save,
    Start,
)
from holdfast.store.remotes import NewTurn, TwinClaim
from holdfast.store.schedules import DeclaredSet, NewBackfill
from holdfast.store.seals import TABLES, Table, Values, reseal
from holdfast.store.store import Store
from holdfast.store.tokens import RefusedEntry
from holdfast.store.transaction import Transaction
from holdfast.store.verbs import Verb
from holdfast.store.views import View
from holdfast.store.walk import Turns
from holdfast.times import Plan
from holdfast.times.backfill import Filled
from holdfast.times.decision import Decision, FireChange, NewFire
from tests.store.made import (
    ENVIRONMENT,
    LONG_S,
    SERVED,
    A,
    B,
    C,
    D,
    ask_step,
    asked,
    asks_people,
    begin,
    call,
    callback_steps,
    child,
    closing,
    delivered,
    end_overdue,
    join,
    new_run,
    parked,
    reclaim,
    report,
    running_call,
    start,
    succeeded,
    timer,
    wait,
)
from tests.store.stepwise import Operation, WatchedDatabase

E = "node-e"
"""A node whose steps are slow, so that they have twins."""
LANES = [1, 2, 3]
"""The lanes of `shop.charge`, of `shop.ship`, whose dependency is being probed, and of `shop.slow`."""
OLD_S = 10 * 24 * 3600.0
EPOCH = 1
"""The epoch of the leader, and of the holder of the lease `alerts`."""
HALF = json.dumps({"done": 1, "total": 2})
ERROR = json.dumps({"type": "builtins.ValueError", "message": "no"})
PLANTED = """
INSERT INTO holdfast.breakers (name, state, round, wave, allowance, ok) VALUES ('bank', 'probing', 3, 2, 2, 0);
INSERT INTO holdfast.breakers (name, ok, failed) VALUES ('shop.slow', 5, 1);
INSERT INTO holdfast.holds (scope, value, actor) VALUES ('namespace', 'elsewhere', 'ann');
INSERT INTO holdfast.workflows (namespace, name, version, code, origin, digest, input, result, signals, first_at, last_at)
    VALUES ('default', 'shop.old', '1', 'shop.old@1', 'shop', 'd', '{}', '{}', '{}', clock_timestamp(), clock_timestamp());
INSERT INTO holdfast.journal (actor, verb, note) VALUES ('ann', 'hold', 'long ago');
INSERT INTO holdfast.journal (at, actor, verb, note, via)
    VALUES (clock_timestamp() - interval '60 days', 'ann', 'hold', 'longer ago', 'cli');
INSERT INTO holdfast.tokens (id, name, role, namespaces, can, payloads, made_by, made_at, digest)
    VALUES ('token-2', 'ci', 'viewer', '["default"]', '[]', true, 'ann', clock_timestamp(), 'digest');
INSERT INTO holdfast.sessions (digest, token, token_digest, made_at, expires_at)
    SELECT digest::bytea, 'token-2', 'digest', clock_timestamp(), clock_timestamp() + make_interval(secs => lasts)
    FROM (VALUES ('session-2', 600), ('session-3', -600)) AS made (digest, lasts);
INSERT INTO holdfast.views (holder, namespace, name, query, saved_at)
    VALUES ('token-2', 'default', 'bad ones', 'state=failed', clock_timestamp());
INSERT INTO holdfast.schedules (name, origin, workflow, version, input, digest, plan, state, cursor, next_at, tzdata, created_at)
    SELECT name, origin, 'shop.nightly', '1', '{}', 'd', '{"times":"2090-01-01"}', state, to_timestamp(1.6e9),
           to_timestamp(next_at), '2000a', clock_timestamp()
    FROM (VALUES ('due', '', 'active', 1.7e9), ('paused', '', 'paused', 3.7e9), ('lined', 'shop', 'active', 3.7e9),
                 ('dropped', 'shop', 'active', 3.7e9)) made(name, origin, state, next_at);
INSERT INTO holdfast.fires (schedule, at, fate, run_id, decided_at, last_at, ended) VALUES
    ('due', to_timestamp(1.5e9), 'started', 'open', clock_timestamp(), to_timestamp(1.5e9), false),
    ('due', to_timestamp(1.55e9), 'buffered', NULL, clock_timestamp(), to_timestamp(1.55e9), false),
    ('due', to_timestamp(1.1e9), 'missed', NULL, clock_timestamp(), to_timestamp(1.1e9), true);
INSERT INTO holdfast.backfills (id, schedule, from_at, to_at, newest_first, most, again, actor, created_at, state, ended_at) VALUES
    ('fill-1', 'due', to_timestamp(1e9), to_timestamp(1.2e9), false, 3, 'all', 'ann', clock_timestamp(), 'running', NULL),
    ('fill-0', 'due', to_timestamp(1e9), to_timestamp(1.2e9), false, 3, 'all', 'ann', clock_timestamp(), 'done', clock_timestamp());
INSERT INTO holdfast.asks (id, namespace, run_id, n, workflow, state, question, form, show, quorum, not_by, plan, asked_at, ended_at)
    VALUES ('ask-old', 'default', 'old-1', 1, 'shop.order', 'answered', '?', '{}', 'null', 1, '[]', '{}', clock_timestamp(),
            clock_timestamp());
INSERT INTO holdfast.ask_people (ask, who, since, through, value, answered_at) VALUES
    ('ask-old', 'person:ann', clock_timestamp(), 'asked', 'true', clock_timestamp());
INSERT INTO holdfast.declared (origin, digest, body, first_seen) VALUES ('shop', 'before', '[]', clock_timestamp());
INSERT INTO holdfast.event_paths (namespace, type, path) VALUES ('default', 'paid', 'subject');
INSERT INTO holdfast.events (namespace, source, id, type, data, subject, received_at) VALUES
    ('default', 'bank', 'e0', 'paid', '1', 'o1', clock_timestamp()),
    ('default', 'bank', 'e-old', 'paid', '1', 'o1', clock_timestamp() - interval '10 days');
INSERT INTO holdfast.event_keys (namespace, type, path, value, received_at, source, id)
    SELECT namespace, type, 'subject', subject, received_at, source, id FROM holdfast.events;
INSERT INTO holdfast.event_takers (namespace, source, id, run_id, wait, received_at)
    SELECT namespace, source, id, 'gone', '', received_at FROM holdfast.events WHERE id = 'e-old';
INSERT INTO holdfast.triggers (namespace, type, name, origin, version, parameter) VALUES
    ('default', 'paid', 'shop.ship', 'shop', '1', 'order'), ('default', 'gone', 'shop.ship', 'shop', '1', 'order');
INSERT INTO holdfast.composed (name, namespace, workflow, version, body, digest, origin)
    SELECT name, 'default', 'shop.report', '1', '{"needs":{"is":"group","need":"all","of":[{"is":"part","name":"paid","type":"paid"},'
           '{"is":"part","name":"file","type":"file"},{"is":"part","name":"time","times":{"times":"1h"}}]},"by":"subject",'
           '"within_s":60.0,"otherwise":"alert","parameter":"arrived"}', 'd1', 'shop'
    FROM (VALUES ('report'), ('dropped')) made(name);
INSERT INTO holdfast.composed_types (namespace, type, name) VALUES ('default', 'paid', 'report'), ('default', 'file', 'report');
INSERT INTO holdfast.composed_times (name, part, plan, cursor, next_at) VALUES
    ('report', '$time:time', '{"times":"1h"}', 1.6e9, 1.6e9), ('dropped', '$time:time', '{"times":"1h"}', 1.6e9, 3.7e9);
INSERT INTO holdfast.occasions (id, namespace, trigger_name, value, state, digest, opened_at, ends_at, ended_at) VALUES
    ('report@when:o1', 'default', 'report', 'o1', 'open', 'd1', 3.6e9, 3.6e9 + 60, NULL),
    ('report@when:o2', 'default', 'report', 'o2', 'open', 'd0', 1.6e9, 1.6e9 + 60, NULL),
    ('report@when:o3', 'default', 'report', 'o3', 'started', 'd1', 1.0e9, 1.0e9, 1.0e9),
    ('gone@when:o4', 'default', 'gone', 'o4', 'open', 'd1', 1.0e9, 1.0e9, NULL);
INSERT INTO holdfast.collected (occasion, part, source, id, namespace, at) VALUES
    ('report@when:o1', 'paid', 'bank', 'e0', 'default', 1.7e9), ('report@when:o1', '$time:time', '', '1', 'default', 1.7e9),
    ('report@when:o3', 'paid', 'bank', 'e-gone', 'default', 1.0e9);
INSERT INTO holdfast.hooks (name, namespace, scheme, secret, header, actor, created_at)
    VALUES ('hook', 'default', 'github', 'secret', 'x-signature', 'ann', clock_timestamp());
INSERT INTO holdfast.joins (run_id, waiter_id, waiter_n) VALUES ('old-joined', 'joiner', 1), ('done', 'joiner', 2),
    ('old-2', 'old-1', 1);
INSERT INTO holdfast.signals (run_id, name, key, payload) VALUES ('done', 'paid', 'late', '1'), ('old-1', 'paid', 'late', '1');
INSERT INTO holdfast.attempts (run_id, n, attempt, ending) VALUES ('old-1', 1, 1, 'failed');
INSERT INTO holdfast.logs (run_id, n, attempt, part, first_line, first_byte, lines, at, body) VALUES
    ('old-1', 1, 1, 0, 0, 0, 1, clock_timestamp(), '[]'), ('open', 1, 1, 0, 0, 0, 1, clock_timestamp(), '[]');
INSERT INTO holdfast.inherited (run_id, key, effect) VALUES ('old-1', 'x', 'y');
INSERT INTO holdfast.quarantine (run_id, n, fingerprint, step, error, place) VALUES ('old-1', 1, 'f', 's', 'e', 'p');
INSERT INTO holdfast.twins (run_id, n, state, step_fence, lane, ended_at) VALUES ('old-1', 1, 'outrun', 0, 0, clock_timestamp());
INSERT INTO holdfast.twins (run_id, n, state, step_fence, lane) VALUES ('old-1', 2, 'ready', 0, 0);
INSERT INTO holdfast.deliveries (id, alert_id, channel, event, next_try_at) VALUES
    ('delivery-1', 2, 'mail', 'raised', clock_timestamp()), ('delivery-2', 2, 'page', 'raised', clock_timestamp()),
    ('delivery-3', 3, 'mail', 'raised', clock_timestamp() - interval '1 day');
UPDATE holdfast.deliveries SET attempts = 1 WHERE id = 'delivery-2';
UPDATE holdfast.alerts SET routed = 1, logged = 1 WHERE id = 2;
UPDATE holdfast.steps SET agent = 'node-b' WHERE run_id = 'busy';
UPDATE holdfast.steps SET agent = 'node-e' WHERE run_id = 'slow';
UPDATE holdfast.steps SET losses = 2, attempt = 2 WHERE run_id = 'ready-2' AND n = 1;
UPDATE holdfast.steps SET complete_by = clock_timestamp() - interval '1 hour' WHERE run_id = 'busy' AND n > 2;
INSERT INTO holdfast.remote_nodes (node, token, secret) VALUES ('node-e', 'token-2', 'secret');
UPDATE holdfast.nodes SET lease_until = clock_timestamp() - interval '1 hour' WHERE id = 'node-c'
"""
"""Rows that the store's methods would make only in a longer story."""
BACKDATED = """
UPDATE holdfast.runs SET finished_at = finished_at - interval '10 days' WHERE id LIKE 'old-%';
UPDATE holdfast.nodes SET retired_at = retired_at - interval '10 days' WHERE id = 'node-d';
UPDATE holdfast.alerts SET cleared_at = cleared_at - interval '10 days' WHERE cleared_at IS NOT NULL;
UPDATE holdfast.journal SET at = at - interval '10 days' WHERE note = 'long ago';
UPDATE holdfast.workflows SET last_at = last_at - interval '10 days' WHERE name = 'shop.old';
UPDATE holdfast.durations SET last_at = last_at - interval '10 days' WHERE name = 'step:shop.old';
UPDATE holdfast.acts SET created_at = created_at - interval '10 days' WHERE id = 'old';
UPDATE holdfast.fires SET decided_at = decided_at - interval '10 days' WHERE ended;
UPDATE holdfast.backfills SET ended_at = ended_at - interval '10 days' WHERE id = 'fill-0';
UPDATE holdfast.declared SET first_seen = first_seen - interval '10 days'
"""


# --- the prepared rows ----------------------------------------------------------------------------------------------


async def prepare(store: Store, admin: asyncpg.Connection[Any]) -> None:
    for node in (A, B, C, D, E):
        await join(store, node, lease_s=10 * LONG_S)
    await store.nodes.retire(D)
    await store.leader.lead(A, 10 * LONG_S)
    await store.leader.lead(A, 10 * LONG_S, ALERTS)
    names = [("shop.charge", "shop.charge"), ("shop.ship", "bank"), ("shop.slow", "shop.slow")]
    assert (
        await store.schedulers.number_lanes([(name, (), None, depends) for name, depends in names]) == LANES
    )
    await _owned_runs(store)
    await _waiting_runs(store)
    await _families(store)
    for run_id in ("old-1", "old-2", "old-joined", "done"):
        await _ended(store, run_id)
    for name in ("one", "two", "three"):
        alert = NewAlert(AlertKind.TEST, Level.WARNING, name, name, None)
        assert await store.alerts.raise_alerts(EPOCH, [alert])
    assert await store.alerts.clear_alert(3, "ann")
    await store.durations.add_durations([("step:shop.charge", 1, 5.0), ("step:shop.old", 1, 1.0)])
    await admin.execute(PLANTED)
    await _twins(store)
    await _undoing_runs(store)
    await _quarantined_runs(store)
    await _acts(store)
    await admin.execute(BACKDATED)


async def _owned_runs(store: Store) -> None:
    """Runs that a node owns and whose steps run: `open`, `busy` and `slow` of a live node, `lost-1` and `lost-2` of a
    dead one."""
    steps = [running_call(1), running_call(2), wait(3), timer(4, ENVIRONMENT.now() + LONG_S), child(5)]
    await begin(store, *steps, running_call(6), running_call(7), run=new_run("open"))
    await _write(store, Hop("open", 1, children=[new_run("kid", parent_id="open", parent_n=5)]))
    await _write(store, report("open", 6, 1))
    for key in ("one", "two"):
        await store.operators.send_signal(NewSignal("open", "paid", key, b"1"))
    await begin(store, *(running_call(n) for n in range(1, 5)), run=new_run("busy"))
    slow = [running_call(n, name="shop.slow", lane=3) for n in range(1, 5)]
    await begin(store, *slow, run=new_run("slow"))
    await begin(store, running_call(1), run=new_run("lone"))
    await _write(store, report("lone", 1, 1))
    await begin(store, running_call(1), running_call(2), node=C, run=new_run("lost-1"))
    await begin(store, node=C, run=new_run("lost-2"))
    await asks_people(
        store,
        asked(1, id="ask-1"),
        asked(2, id="ask-2", quorum=2, next_s=0.0, plan='{"escalate":[[0.0,"person:cfo"]]}'),
        asked(3, id="ask-3", quorum=2, timeout_s=0.001, next_s=0.0, plan='{"timeout_s":0.001}'),
        run=new_run("asking"),
    )
    waits = [callback_steps(n - 1, 0.001 if n == 6 else LONG_S)[1] for n in (2, 4, 6)]
    await begin(store, *waits, run=new_run("calling"))
    await _write(store, Hop("calling", 1, begun_waits=[2, 6]))
    await store.operators.send_signal(NewSignal("lost-1", CANCEL, "cancel", b"{}"))


async def _waiting_runs(store: Store) -> None:
    """Runs without an owner: some have a step to claim, some a timer to fire, some something to deliver."""
    later = ENVIRONMENT.now() + LONG_S
    await parked(store, call(1), call(2, ready_at=later), run=new_run("ready-1"))
    await parked(store, call(1), call(2, priority=2), run=new_run("ready-2"))
    await parked(store, call(1), call(2), run=new_run("ready-3", priority=1))
    limits = (
        LimitKey("limit", 2),
        LimitKey("rate", 9, per_s=1.0, burst=9),
        LimitKey("slow-bank", 50, least=1),
    )
    (queue,) = await store.queues.number_queues([QueueKey("acme", limits)])
    await parked(store, *(call(n, queue=queue) for n in (1, 2, 3)), run=new_run("queued"))
    crowd = (LimitKey("crowd", 2, weight=1), LimitKey("crowd", 2, weight=2))
    light, heavy = await store.queues.number_queues([QueueKey("acme", (one,)) for one in crowd])
    await parked(store, call(1, queue=light, priority=2), run=new_run("light"))
    await parked(store, call(1, queue=heavy, priority=2, ready_at=1.0), run=new_run("heavy"))
    for run_id in ("probe-1", "probe-2", "probe-3"):
        await parked(store, call(1, name="shop.ship", lane=2), run=new_run(run_id))
    for run_id in ("pending-1", "pending-2"):
        await start(store, new_run(run_id, due_in_s=60.0))
    for run_id in ("later-1", "later-2"):
        await start(store, new_run(run_id, begin_in_s=0.001))
    await store.gathers.take(_gathered("one", run_id="start-1"))
    await store.gathers.take(_gathered("one", "quiet", run_id="start-0", parameter=""))
    await store.gathers.take(_gathered("one", "due", run_id="start-due", first_s=0.001))
    for run_id in ("asleep-1", "asleep-2"):
        await parked(store, timer(1, ENVIRONMENT.now() - 60), run=new_run(run_id))
    await parked(store, running_call(1), call(2), run=new_run("awake-1"))
    await _write(store, report("awake-1", 1, 1))
    await parked(store, wait(1), run=new_run("awake-2"))
    await store.operators.send_signal(NewSignal("awake-2", "paid", "one", b"1"))
    paid = "$event:paid subject=o1"
    await parked(store, msgspec.structs.replace(wait(1), name=paid), run=new_run("waits"))
    await parked(store, call(1), run=new_run("held-1"))
    await store.operators.hold("held-1", "ann", "")


def undo_of(n: int, child_n: int) -> NewStep:
    """Return a step that undoes the child of another step."""
    return msgspec.structs.replace(child(n), key=undo_key(child(child_n).key))


async def _families(store: Store) -> None:
    """Runs with children, runs that have joined others, and runs that failed and can be retried."""
    await begin(store, child(1), child(2), run=new_run("parent"))
    kids = [new_run(f"kid-{n}", parent_id="parent", parent_n=n) for n in (1, 2)]
    await _write(store, Hop("parent", 1, children=kids))
    for kid in kids:
        assert await store.schedulers.claim_run(A, kid.id) is not None
    await _write(store, Hop("kid-2", 1, issued=[child(1)]))
    await _write(
        store, Hop("kid-2", 1, dropped=[1], close=closing(output=b"7", parent_id="parent", parent_n=2))
    )
    await begin(store, child(1), run=new_run("undone-parent"))
    kid = new_run("undone-kid", parent_id="undone-parent", parent_n=1)
    await begin(store, child(1), run=kid)
    await _write(store, Hop(kid.id, 1, dropped=[1], close=closing(parent_id="undone-parent", parent_n=1)))
    undo = ChildUndo(2, 1, codec.revoked_error("undone-parent", 2, ERROR))
    await _write(store, Hop("undone-parent", 1, issued=[undo_of(2, 1)], child_undos=[undo]))
    assert await store.schedulers.claim_run(A, kid.id) is not None
    await parked(store, child(1), child(2), run=new_run("joiner"))
    for run_id in ("failed-1", "failed-2", "old-failed"):
        await begin(store, child(1), child(2), running_call(3), run=new_run(run_id))
        kids = [new_run(f"{run_id}/{n}", parent_id=run_id, parent_n=n) for n in (1, 2)]
        await _write(store, Hop(run_id, 1, children=kids))
        for kid, state in zip(kids, (RunState.SUCCEEDED, RunState.FAILED), strict=True):
            assert await store.schedulers.claim_run(A, kid.id) is not None
            error = None if state is RunState.SUCCEEDED else ERROR
            close = closing(state, output=b"7", error=error, parent_id=run_id, parent_n=kid.parent_n)
            await _write(store, Hop(kid.id, 1, close=close))
        await store.operators.send_signal(NewSignal(run_id, "paid", "one", b"1"))
        end = json.dumps(json.loads(ERROR) | {"seq": 2, "steps": [2]})
        outcomes = [delivered(1, 1), delivered(2, 2)]
        await _write(
            store, Hop(run_id, 1, outcomes=outcomes, dropped=[3], close=closing(RunState.FAILED, error=end))
        )
    assert await store.operators.retry_run("failed-2", "ann") == "failed-2~2"
    assert await store.schedulers.claim_run(A, "failed-2~2") is not None


async def _twins(store: Store) -> None:
    """The run `slow` has a step with a twin that is ready, one whose twin runs, one without, and one that has ended
    before its twin."""
    assert len(await store.twins.make_twins(EPOCH, [("slow", 2, 1), ("slow", 4, 1)])) == 2
    assert len(await store.twins.claim_twins(B, LANES, 10)) == 2
    assert len(await store.twins.make_twins(EPOCH, [("slow", 1, 1)])) == 1
    await _write(store, report("slow", 4, 1))


async def _undoing_runs(store: Store) -> None:
    """Runs that undo themselves: with and without an owner, held, and stuck."""
    for run_id in ("undoing-1", "undoing-2", "held-2", "stuck-1"):
        await begin(store, running_call(1), run=new_run(run_id))
        undo = BeginUndo("failed", ERROR)
        wake = NewSignal(run_id, UNDO, "begin", b"{}")
        await _write(store, Hop(run_id, 1, outcomes=[succeeded(1, 1, 1)], undo=undo, sends=[wake]))
    await store.operators.hold("held-2", "ann", "")
    for run_id in ("undoing-2", "stuck-1"):
        assert await store.schedulers.claim_run(A, run_id) is not None
    await _write(store, Hop("stuck-1", 3, close=closing(RunState.STUCK, error="the undo gave up")))


async def _quarantined_runs(store: Store) -> None:
    """Runs whose steps are in quarantine: `stuck-2` is stuck, and `poison` and `poison-2` are about to be."""
    for run_id in ("stuck-2", "poison", "poison-2"):
        await begin(store, running_call(1), run=new_run(run_id))
        await _write(store, poisoned(run_id, 1, 1))
        if run_id == "stuck-2":
            assert await store.quarantine.stick_quarantined(EPOCH, 10) == 1
    await begin(store, running_call(1), run=new_run("poison-3"))
    await _write(store, poisoned("poison-3", 1, 1))
    await _write(store, Hop("poison-3", 1, dropped=[1]))  # so its entry in the list is stale


async def _acts(store: Store) -> None:
    """Acts: two that were begun and whose leases have run out, one that somebody has, one that is planned, one that is
    being planned, and an old one."""
    planned = {
        "idle": (ActVerb.RETRY, ["failed-1", "failed-2", "gone", "held-1", "stuck-1"]),
        "cancels": (ActVerb.CANCEL, ["awake-1", "kid", "open", "pending-1", "held-2"]),
        "planned": (ActVerb.HOLD, ["open"]),
        "listing": (ActVerb.HOLD, ["open"]),
        "old": (ActVerb.FORK, ["old-1", "old-2"]),
    }
    for act_id, (verb, run_ids) in planned.items():
        await store.acts.plan_act(NewAct(act_id, verb, "ann", "", ActOptions()))
        found = {one: await store.reads.run(one) for one in run_ids}
        rows = [(one, row.state if row else "failed", row.fence if row else 1) for one, row in found.items()]
        await store.acts.add_act_runs(act_id, rows)
        if act_id != "listing":
            assert await store.acts.finish_plan(act_id, "{}") is not None
    assert await store.acts.begin_act("idle", A, 0.0, LONG_S) == 1
    assert await store.acts.begin_act("cancels", A, 10 * LONG_S, LONG_S) == 1


async def _ended(store: Store, run_id: str) -> None:
    await begin(store, running_call(1), run=new_run(run_id))
    await _write(store, Hop(run_id, 1, dropped=[1], close=closing(output=b"7")))


async def _write(store: Store, op: Op, node: str = A) -> None:
    assert await store.batches.commit(node, [op]) == ["accepted"]


def poisoned(run_id: str, n: int, fence: int) -> QuarantineStep:
    return QuarantineStep(
        run_id, n, fence, "lost", ERROR, Failure.POISON, "print", "shop.charge", "builtins.ValueError", "here"
    )


# --- the operations -------------------------------------------------------------------------------------------------

OPERATIONS: dict[str, Operation] = {}
CLAIMS = "what is locked belongs to somebody else's claim, and whoever asks again gets what that one left"
LEAVES = "somebody is changing the row, and the next pass looks at it again"
RESEALS = "what was written after the walk had passed is for the next walk"

Call = Callable[[Store, str], Awaitable[Any]]


def operation(skips: str = "") -> Callable[[Call], Call]:
    """Add a function to the operations."""

    def add(function: Call) -> Call:
        name = function.__name__
        OPERATIONS[name] = Operation(name, function, skips)
        return function

    return add


def batch(*ops: Callable[[], Op], node: str | None = None) -> Call:
    """Return an operation that commits these operations of a node in one batch."""

    async def commit(store: Store, here: str) -> Any:
        return await store.batches.commit(node or here, [make() for make in ops])

    return commit


def _add(name: str, function: Call) -> None:
    OPERATIONS[name] = Operation(name, function)


def late() -> float:
    """Return a time before which the old rows are, and no others."""
    return ENVIRONMENT.now() - OLD_S / 2


def outcome(run_id: str, n: int, state: StepState = StepState.SUCCEEDED, fence: int = 1) -> Outcome:
    error = ERROR if state is StepState.FAILED else None
    return Outcome(run_id, n, state, b"7" if error is None else None, error, ENVIRONMENT.now(), fence)


def logged(attempt: int = 1) -> list[LogPart]:
    """What attempt has logged: one part that is there already, and one that is new."""
    return [LogPart(attempt, False, part, part, part, 1, ENVIRONMENT.now(), b"[]") for part in (0, 1)]


# Schedulers, on the hot path. The node that owns these runs writes them.

_add("hop_advances", batch(lambda: Hop(
    "open", 1, outcomes=[succeeded(1, 1, 1), delivered(6, 2)], issued=[call(8), running_call(9)], progress=HALF,
    published='{"a": 1}', effects=[(8, "an effect")], placed=[(8, 1)], promised=[(8, 60.0)], kept_n=1), node=A))  # fmt: skip
_add("hop_queues", batch(lambda: Hop("open", 1, issued=[call(8, queue=Queue(16, ((1, 1),)))]), node=A))
_add("hop_delivers", batch(lambda: Hop("lone", 1, outcomes=[delivered(1, 1)]), node=A))
_add("hop_hears", batch(lambda: Hop(
    "open", 1, signals=[(1, 1), (2, 2)], set_aside=[(2, "why")], ended=[(3, 1, b"1", ENVIRONMENT.now())],
    sends=[NewSignal("awake-2", "paid", "more", b"1"), NewSignal("pending-1", "paid", "more", b"1")]), node=A))  # fmt: skip
_add(
    "hop_answers",
    batch(
        lambda: Hop("open", 1, signals=[(1, 1), (2, 2)], replies=[(2, "returned", b"1", ENVIRONMENT.now())]),
        node=A,
    ),
)
_add("hop_continues_after_answers", batch(lambda: Hop(
    "open", 1, signals=[(1, 1), (2, 2)], replies=[(1, "raised", b"{}", ENVIRONMENT.now())], next_input=b"2",
    begun_at=ENVIRONMENT.now(), unread=[2], had_updates=True), node=A))  # fmt: skip
_add("hop_drops", batch(lambda: Hop("open", 1, dropped=[1, 2, 4, 5], cancelled=[5]), node=A))
_add("hop_drops_backwards", batch(lambda: Hop("open", 1, dropped=[7, 2, 1]), node=A))
_add("hop_closes", batch(lambda: Hop("open", 1, dropped=[1, 2, 3, 4, 5, 6, 7], cancelled=[5],
                                   close=closing(RunState.FAILED, error=ERROR)), node=A))  # fmt: skip
_add("hop_parks", batch(lambda: Hop("open", 1, park=True), node=A))
_add("hop_continues", batch(lambda: Hop(
    "open", 1, signals=[(1, 1), (2, 2)], dropped=[1, 2, 3, 4, 5, 6, 7], next_input=b"2", begun_at=ENVIRONMENT.now(),
    unread=[2]), node=A))  # fmt: skip
_add("hop_undoes", batch(lambda: Hop(
    "open", 1, undo=BeginUndo("failed", ERROR), sends=[NewSignal("open", UNDO, "begin", b"{}")]), node=A))  # fmt: skip
_add("hop_sticks", batch(lambda: Hop("undoing-2", 3, close=closing(RunState.STUCK, error="gave up")), node=A))
_add(
    "hop_closes_child",
    batch(lambda: Hop("kid-1", 1, close=closing(output=b"7", parent_id="parent", parent_n=1)), node=A),
)
_add("hop_closes_parent", batch(lambda: Hop(
    "parent", 1, dropped=[1, 2], cancelled=[1], close=closing(RunState.UNDONE, error=ERROR)),
    node=A))  # fmt: skip
_add("hop_undoes_child", batch(lambda: Hop(
    "parent", 1, issued=[undo_of(3, 2), undo_of(4, 1), undo_of(5, 9)], child_undos=[
        ChildUndo(3, 2, codec.revoked_error("parent", 3, ERROR)),
        ChildUndo(4, 1, codec.revoked_error("parent", 4, ERROR)), ChildUndo(5, 9, ERROR, joins=True)]), node=A))  # fmt: skip
_add("hop_ends_childs_undo", batch(lambda: Hop(
    "undone-kid", 3, close=Close(RunState.UNDONE, None, ERROR, ENVIRONMENT.now(), "undone-parent", 2, ends_undo=True)),
    node=A))  # fmt: skip
_add("hops_of_two_runs", batch(lambda: Hop("parent", 1, progress=HALF), lambda: Hop("open", 1, progress=HALF),
                             lambda: Hop("kid-1", 1, progress=HALF), node=A))  # fmt: skip
_add("hop_logs", batch(lambda: Hop("open", 1, outcomes=[succeeded(1, 1, 1)], logs=logged(1)), node=A))
_add("hop_begins", batch(lambda: Hop(
    "new", 1, begin=new_run("new"), begun_at=ENVIRONMENT.now(), issued=[running_call(1), call(2)])))  # fmt: skip
_add("hop_starts_children", batch(lambda: Hop(
    "open", 1, issued=[child(8), child(9), child(10)],
    children=[new_run("child", parent_id="open", parent_n=8),
              new_run("old-1", parent_id="open", parent_n=9, joins=True),
              new_run("pending-1", parent_id="open", parent_n=10)]), node=A))  # fmt: skip
_add("hop_joins_back", batch(lambda: Hop(
    "failed-2~2", 1, issued=[child(8), child(9)],
    children=[new_run("child", parent_id="failed-2~2", parent_n=8),
              new_run("open", parent_id="failed-2~2", parent_n=9, joins=True)]), node=A))  # fmt: skip
_add("hop_retries_child", batch(lambda: Hop(
    "failed-2~2", 1, issued=[child(2)],
    children=[new_run("failed-2~2/2", parent_id="failed-2~2", parent_n=2, retry_of="failed-2/2")]), node=A))  # fmt: skip
_add("hop_takes_over_child", batch(lambda: Hop(
    "open", 1, issued=[child(8)],
    children=[new_run("open/8", parent_id="open", parent_n=8, retry_of="kid-2")]), node=A))  # fmt: skip

# Agents and callers, on the hot path.

_add(
    "reports",
    batch(
        lambda: outcome("open", 1), lambda: outcome("open", 2, StepState.FAILED), lambda: outcome("busy", 1)
    ),
)
_add("report_alone", batch(lambda: outcome("open", 1), node=A))
_add("report_late", batch(lambda: outcome("old-1", 1, fence=0)))
_add("report_of_slow_step", batch(lambda: outcome("slow", 2), node=E))
_add("retries", batch(lambda: RetryStep("open", 2, 1, LONG_S, "failed", ERROR), lambda: RetryStep(
    "busy", 1, 1, LONG_S, "timed out", ERROR, failure=Failure.TIMEOUT), lambda: RetryStep(
    "slow", 1, 1, LONG_S, "failed", ERROR, excused=True)))  # fmt: skip
_add("quarantines", batch(lambda: poisoned("open", 2, 1), lambda: poisoned("busy", 1, 1)))
_add("hands_back", batch(lambda: HandBack("open", 1, 1), lambda: HandBack("busy", 2, 1, hold="unreadable")))
_add("saves", batch(lambda: Save("open", 1, 1, b"1", HALF), lambda: Save("busy", 3, 1, b"1", HALF)))
_add("logs_with_outcome", batch(
    lambda: Outcome("open", 1, StepState.SUCCEEDED, b"7", None, ENVIRONMENT.now(), 1, logs=logged())))  # fmt: skip
_add("logs_with_saves", batch(
    lambda: Save("open", 1, 1, logs=logged()), lambda: Save("busy", 3, 1, logs=logged())))  # fmt: skip
_add("logs_too_late", batch(lambda: Save("old-1", 1, 1, logs=logged())))
_add("agent_writes_everything", batch(
    lambda: outcome("open", 7), lambda: Save("open", 1, 1, b"here", None), lambda: HandBack("open", 2, 1),
    lambda: RetryStep("busy", 1, 1, LONG_S, "failed", ERROR), lambda: poisoned("busy", 2, 1)))  # fmt: skip
_add(
    "starts",
    batch(
        lambda: Start(new_run("new-2")), lambda: Start(new_run("new")), lambda: Start(new_run("pending-1"))
    ),
)
_add("starts_old_ids", batch(lambda: Start(new_run("old-1")), lambda: Start(new_run("child"))))


@operation()
async def start_within(store: Store, node: str) -> None:
    """Start a run in a transaction of the caller, which the caller's own statement begins."""

    async def run(connection: Any) -> None:
        async def of_the_caller() -> Any:
            course.pid = connection.get_server_pid()
            return connection.unwatched

        async with connection.transaction():
            await store.batches.start_within(Transaction("asyncpg", of_the_caller), new_run("new"))

    database = store.database
    assert isinstance(database, WatchedDatabase)
    course = database.course
    await database.on_pool(run)


# Schedulers.


@operation(CLAIMS)
async def claim_runs(store: Store, node: str) -> Any:
    return await store.schedulers.claim_runs(node, SERVED, 100)


@operation(CLAIMS)
async def walk_runs(store: Store, node: str) -> Any:
    return await store.schedulers.claim_runs(node, SERVED, 100, turns=Turns())


@operation(CLAIMS)
async def claim_two_runs(store: Store, node: str) -> Any:
    return await store.schedulers.claim_runs(node, SERVED, 2)


@operation(CLAIMS)
async def claim_certain_runs(store: Store, node: str) -> Any:
    runs = ["awake-1", "awake-2", "pending-1", "kid", "open", "held-1"]
    return await store.schedulers.claim_runs(node, SERVED, 100, runs)


@operation()
async def claim_run(store: Store, node: str) -> Any:
    return await store.schedulers.claim_run(node, "awake-1")


@operation()
async def claim_child(store: Store, node: str) -> Any:
    return await store.schedulers.claim_run(node, "kid")


@operation(CLAIMS)
async def fire_timers(store: Store, node: str) -> Any:
    return await store.schedulers.fire_timers(100)


@operation(CLAIMS)
async def fire_one_timer(store: Store, node: str) -> Any:
    return await store.schedulers.fire_timers(1)


@operation(CLAIMS)
async def admit_runs(store: Store, node: str) -> Any:
    return await store.schedulers.admit_runs(100)


def _gathered(value: str, key: str = "k", run_id: str | None = None, **more: Any) -> NewRun:
    raw = msgspec.json.encode({"pages": [value]})
    gather = Gathering(key, LONG_S, LONG_S, LONG_S, 3, "pages")
    return new_run(
        run_id, input=raw, digest=codec.digest(raw), gather=msgspec.structs.replace(gather, **more)
    )


@operation()
async def take_start(store: Store, node: str) -> Any:
    """The run of the key takes it."""
    return await store.gathers.take(_gathered("two", run_id="start-2"))


@operation()
async def take_last_start(store: Store, node: str) -> Any:
    """With this start the batch has enough items, and begins."""
    return await store.gathers.take(_gathered("three", run_id="start-3", size=2))


@operation()
async def take_first_start(store: Store, node: str) -> Any:
    """A key that nobody has started for."""
    return await store.gathers.take(_gathered("one", "other", run_id="start-4"))


@operation()
async def take_debounced_start(store: Store, node: str) -> Any:
    return await store.gathers.take(_gathered("two", "quiet", run_id="start-5", parameter=""))


@operation()
async def take_start_again(store: Store, node: str) -> Any:
    """Another key, and an id that was taken before, or that another run has."""
    return [
        await store.gathers.take(_gathered("one", "new", run_id="start-1")),
        await store.gathers.take(_gathered("one", "newer", run_id="pending-1")),
    ]


@operation()
async def cancel_gathered(store: Store, node: str) -> Any:
    return await store.operators.cancel_run("start-1", "ann", "")


@operation()
async def cancel_before_it_begins(store: Store, node: str) -> Any:
    return await store.operators.cancel_run("later-1", "ann", "")


@operation(CLAIMS)
async def answer_joins(store: Store, node: str) -> Any:
    return await store.schedulers.answer_joins(100)


@operation()
async def hold_for_drift(store: Store, node: str) -> Any:
    return await store.schedulers.hold_run("open", 1, "drift")


@operation()
async def number_lanes(store: Store, node: str) -> Any:
    await store.schedulers.number_lanes(
        [("shop.new", (), None, "shop.new"), ("shop.charge", (), None, "shop.charge")]
    )


# Agents.


@operation(CLAIMS)
async def claim_steps(store: Store, node: str) -> Any:
    return await store.agents.claim_steps(node, LANES, 100, suspect_losses=2, suspects=1)


@operation(CLAIMS)
async def claim_one_step(store: Store, node: str) -> Any:
    return await store.agents.claim_steps(node, LANES, 1, suspect_losses=2)


@operation(CLAIMS)
async def claim_steps_of_runs(store: Store, node: str) -> Any:
    return await store.agents.claim_steps(node, LANES, 100, runs=["ready-1", "awake-1"])


@operation(CLAIMS)
async def walk_steps(store: Store, node: str) -> Any:
    return await store.agents.claim_steps(node, LANES, 100, suspect_losses=2, suspects=1, turns=Turns())


@operation(CLAIMS)
async def walk_steps_of_runs(store: Store, node: str) -> Any:
    return await store.agents.claim_steps(node, LANES, 100, runs=["ready-1", "queued"], turns=Turns())


@operation(CLAIMS)
async def walk_probes(store: Store, node: str) -> Any:
    return await store.gates.claim_probes(node, "bank", LANES, 100, turns=Turns())


@operation()
async def make_queues(store: Store, node: str) -> Any:
    limits = (
        LimitKey("limit", 4),
        LimitKey("rate", 9, per_s=1.0, burst=9),
        LimitKey("new", 1),
        LimitKey("slow-bank", 40, least=2),
    )
    return await store.queues.number_queues([QueueKey("acme", limits)])


@operation()
async def queue_run(store: Store, node: str) -> Any:
    return await store.schedulers.queue_run("bare", 1, Queue(16, ((1, 1),), ("limit",)))


@operation()
async def start_limited(store: Store, node: str) -> Any:
    (queue,) = await store.queues.number_queues([QueueKey("", (LimitKey("alone", 1),))])
    return await store.limits.start_limited(new_run("limited", full="replace", queue=queue))


@operation()
async def set_fair(store: Store, node: str) -> Any:
    return await store.queues.set_fair("acme", 3, "ann", "")


@operation()
async def set_limit(store: Store, node: str) -> Any:
    return await store.limits.set_limit("limit", 2, "ann", "")


@operation()
async def set_adaptive_limit(store: Store, node: str) -> Any:
    return await store.limits.set_limit("slow-bank", None, "ann", "")


@operation()
async def observe_limits(store: Store, node: str) -> Any:
    return await store.limits.observe_limits([LimitLoad(3, 4, 1, 0.5), LimitLoad(1, 1, 0, 0.1)])


@operation()
async def move_limits(store: Store, node: str) -> Any:
    row = LimitLook(3, "slow-bank", 5, 1, 50, None, 0, 0, 0.0, 0)
    return await store.limits.move_limits(EPOCH, [(row, LimitChange(7, 0.2, "well"))])


@operation(CLAIMS)
async def claim_probes(store: Store, node: str) -> Any:
    return await store.gates.claim_probes(node, "bank", LANES, 2)


@operation()
async def observe(store: Store, node: str) -> Any:
    await store.gates.observe(
        [
            Observation("shop.slow", 1, 2, "no"),
            Observation("bank", 1, 0, None, 3),
            Observation("new", 0, 1, "no"),
        ],
        10 * LONG_S,
    )


@operation(CLAIMS)
async def claim_twins(store: Store, node: str) -> Any:
    return await store.twins.claim_twins(node, LANES, 10)


@operation()
async def win_twin(store: Store, node: str) -> Any:
    return await store.twins.end_twin(B, ("slow", 2, 1), TwinState.WON, b"8", ERROR, logs=logged())


@operation()
async def fail_twin(store: Store, node: str) -> Any:
    return await store.twins.end_twin(B, ("slow", 2, 1), TwinState.FAILED, None, ERROR)


@operation()
async def win_late_twin(store: Store, node: str) -> Any:
    return await store.twins.end_twin(B, ("slow", 4, 1), TwinState.WON, b"8", ERROR)


@operation()
async def bar_twin(store: Store, node: str) -> Any:
    return await store.twins.bar_twin("slow", 1)


@operation()
async def bar_before_any_twin(store: Store, node: str) -> Any:
    return await store.twins.bar_twin("slow", 3)


@operation()
async def stop_twin(store: Store, node: str) -> Any:
    return await store.twins.stop_twin("slow", 2)


@operation()
async def add_durations(store: Store, node: str) -> Any:
    counts = [("step:shop.old", 1, 2.0), ("step:shop.charge", 1, 1.0), ("step:shop.charge", 2, 1.0)]
    return await store.durations.add_durations(counts)


# Nodes.


@operation()
async def register(store: Store, node: str) -> Any:
    """Both parties publish the same name from different applications, so the one that comes second is refused."""
    source = [f"shop of {node}", f"digest of {node}", "shop.py"]
    offers = {"workflows": ["shop.old@1"], "sources": [source], "workflow_sources": [0]}
    declared = Declaration(
        "default", "shop.old", "1", "shop.old@1", "shop", f"digest of {node}", "{}", "{}", "{}"
    )
    return await store.nodes.register(
        node,
        host="here",
        pid=1,
        roles="all",
        offers=json.dumps(offers),
        capacity=9,
        lease_s=LONG_S,
        declared=[declared],
    )


@operation()
async def register_anew(store: Store, node: str) -> Any:
    return await join(store, "node-f")


@operation()
async def renew(store: Store, node: str) -> Any:
    return await store.nodes.renew(node, LONG_S, '{"load": 1}')


@operation()
async def say_gone(store: Store, node: str) -> Any:
    """Do what the heart of a killed process does, on its own connection."""
    call = StoreCall("say_gone", (), (), {})
    return await store.database.write(call, lambda session: session.run(Verb.say_gone, B), is_single=True)


@operation()
async def renew_dead_node(store: Store, node: str) -> Any:
    return await store.nodes.renew(C, LONG_S)


@operation()
async def retire(store: Store, node: str) -> Any:
    return await store.nodes.retire(node)


@operation()
async def retire_dead_node(store: Store, node: str) -> Any:
    return await store.nodes.retire(C)


@operation()
async def reconcile(store: Store, node: str) -> Any:
    return await store.nodes.reconcile(A, [("open", 1)], [("open", 1, 1)])


# Nodes that come through a server.


@operation()
async def register_remote(store: Store, node: str) -> Any:
    """Both parties register the same node: its secret is the one that was first."""
    columns = ("host", 1, "agent", '{"steps": ["shop.charge"]}', 10, LONG_S)
    return await store.remotes.register("node-remote", columns, "token-2", b"secret")


@operation()
async def register_remote_again(store: Store, node: str) -> Any:
    """A node that is there registers once more, and keeps its secret."""
    columns = ("host", 1, "agent", '{"steps": ["shop.charge"]}', 10, LONG_S)
    return await store.remotes.register(E, columns, "token-2", b"another")


@operation()
async def claim_remote(store: Store, node: str) -> Any:
    """Both claim in the same turn of one node: one of them takes something."""
    claims = [StepClaim(E, LANES[1:2], 2, probes_of="bank"), StepClaim(E, LANES, 2)]
    return await store.remotes.claim(E, 1, claims)


@operation()
async def claim_remote_twins(store: Store, node: str) -> Any:
    """Both claim twins in the same turn of one node: one of them takes them."""
    return await store.remotes.claim(E, 1, [], [TwinClaim(LANES, 2)])


@operation()
async def begin_turns(store: Store, node: str) -> Any:
    return await store.remotes.begin_turns([NewTurn(E, 7, LONG_S, []), NewTurn(A, 1, LONG_S, None)])


@operation()
async def shorten(store: Store, node: str) -> Any:
    return await store.remotes.shorten(E, LONG_S / 2)


# Tokens.


@operation()
async def add_token(store: Store, node: str) -> Any:
    """Both parties draw the same id, which chance does not do: the second one adds nothing."""
    token = NewToken("token-1", node, "viewer", '["default"]', "[]", True, b"digest", LONG_S)
    return await store.tokens.add_token(token, node)


@operation()
async def rotate_token(store: Store, node: str) -> Any:
    return await store.tokens.rotate_token(
        "token-2", node.encode(), grace_s=LONG_S, expires_s=LONG_S, actor=node
    )


@operation()
async def revoke_token(store: Store, node: str) -> Any:
    return await store.tokens.revoke_token("token-2", node)


@operation()
async def use_token(store: Store, node: str) -> Any:
    return await store.tokens.use_token("token-2")


@operation()
async def add_session(store: Store, node: str) -> Any:
    """Both parties draw the same secret, which chance does not do; and both remove what has expired."""
    return await store.sessions.add_session(b"session-1", "token-2", node.encode(), LONG_S)


@operation()
async def end_session(store: Store, node: str) -> Any:
    return await store.sessions.end_session(b"session-2")


@operation()
async def save_view(store: Store, node: str) -> Any:
    """In place of one of the same name; and those of tokens that are no longer good go."""
    return await store.views.save_view("token-2", "default", View("bad ones", f"error={node}"), 50)


@operation()
async def save_another_view(store: Store, node: str) -> Any:
    return await store.views.save_view("token-2", "default", View("late", f"error={node}"), 50)


@operation()
async def remove_view(store: Store, node: str) -> Any:
    return await store.views.remove_view("token-2", "default", "bad ones")


# Asks.

_add("hop_asks", batch(lambda: Hop("open", 1, issued=[ask_step(8)], asks=[asked(8, id="ask-8")]), node=A))
_add("hop_withdraws", batch(lambda: Hop("asking", 1, dropped=[1, 2, 3], withdrawn=[1, 2, 3]), node=A))


async def _answered(store: Store, ask: str, node: str) -> str:
    given = GivenAnswer(Answerer(f"person:{node}", frozenset({"team:finance"})), b"true", "", node)
    try:
        return str((await store.asks.answer(ask, given)).seen.row.state)
    except WrongState:
        return "late"


@operation()
async def answer_ask(store: Store, node: str) -> Any:
    return await _answered(store, "ask-1", node)


@operation()
async def answer_ask_of_two(store: Store, node: str) -> Any:
    return await _answered(store, "ask-2", node)


@operation()
async def delegate_ask(store: Store, node: str) -> Any:
    by = Answerer(f"person:{node}", frozenset({"team:finance"}))
    try:
        await store.asks.delegate("ask-2", by, "person:dan", note="", actor=node)
    except WrongState:
        return "late"
    return "handed over"


@operation()
async def add_first_signing_key(store: Store, node: str) -> Any:
    return await store.signing_keys.certain_keys(node.encode()[:1] * 32)


@operation()
async def escalate_ask(store: Store, node: str) -> Any:
    return await store.asks.mind_ask(EPOCH, "ask-2")


@operation()
async def expire_ask(store: Store, node: str) -> Any:
    return await store.asks.mind_ask(EPOCH, "ask-3")


# Callbacks.

_add(
    "hop_calls_back",
    batch(lambda: Hop("open", 1, issued=callback_steps(8, LONG_S)[1:], begun_waits=[9]), node=A),
)
_add("hop_begins_wait", batch(lambda: Hop("calling", 1, begun_waits=[4]), node=A))
_add("hop_drops_callbacks", batch(lambda: Hop("calling", 1, dropped=[2, 4, 6]), node=A))


async def _called_back(store: Store, n: int, node: str) -> str:
    try:
        return str(await store.callbacks.answer("calling", n, GivenResult(b"7", None, node)))
    except WrongState:
        return "late"


@operation()
async def answer_callback(store: Store, node: str) -> Any:
    return await _called_back(store, 2, node)


@operation()
async def answer_early(store: Store, node: str) -> Any:
    return await _called_back(store, 4, node)


@operation()
async def answer_late(store: Store, node: str) -> Any:
    return await _called_back(store, 6, node)


@operation()
async def extend_callback(store: Store, node: str) -> Any:
    try:
        return await store.callbacks.extend("calling", 2) is not None
    except WrongState:
        return "late"


@operation(LEAVES)
async def expire_callbacks(store: Store, node: str) -> Any:
    return await store.callbacks.expire_callbacks(EPOCH, 10)


@operation()
async def set_setting(store: Store, node: str) -> Any:
    return await store.settings.set_setting("public_url", f"https://{node}.example")


# Schedules.


def schedule(name: str, origin: str = "", times: str = "2090-01-01") -> NewSchedule:
    plan = msgspec.json.encode(Plan(times)).decode()
    return NewSchedule(name, "shop.nightly", "1", b"{}", b"d", plan, origin=origin)


def planted_schedule(name: str, **fields: Any) -> ScheduleRow:
    """A schedule as `PLANTED` has it."""
    row = ScheduleRow(
        name, "default", "", "shop.nightly", "1", b"{}", b"d", 0, None, None, schedule(name).plan, ScheduleState.ACTIVE,
        "", "", 1.6e9, 1.7e9, 0, 0, 0, None, None, "2000a", 0.0,
    )  # fmt: skip
    return msgspec.structs.replace(row, **fields)


def planted_backfill() -> BackfillRow:
    span = ("fill-1", "due", 1e9, 1.2e9, False, 3, "all", BackfillState.RUNNING)
    return BackfillRow(*span, None, 0, 0, "ann", "", 0, 0.0, None)


@operation()
async def create_schedule(store: Store, node: str) -> Any:
    return await store.schedules.create_schedule(schedule("new"), node)


@operation()
async def replace_schedule(store: Store, node: str) -> Any:
    return await store.schedules.create_schedule(schedule("due", times="2091-01-01"), node, replace=True)


@operation()
async def remove_schedule(store: Store, node: str) -> Any:
    return await store.schedules.remove_schedule("due", node, "no longer wanted")


@operation()
async def pause_schedule(store: Store, node: str) -> Any:
    paused = await store.schedules.pause_schedule("due", node, "wait")
    return paused.state


@operation()
async def resume_schedule(store: Store, node: str) -> Any:
    resumed = await store.schedules.resume_schedule("paused", node, "go on")
    return resumed.state


@operation()
async def fire(store: Store, node: str) -> Any:
    """A time starts, one that waited starts, a run is cancelled, and an alert is raised."""
    started = NewFire(1.65e9, FireFate.STARTED, "", 1.65e9)
    waited = NewFire(1.55e9, FireFate.STARTED, "", 1.55e9)
    decision = Decision(
        planted_schedule("due", cursor=1.65e9, next_at=3.7e9),
        [started],
        [FireChange(1.55e9, 1, FireFate.STARTED, "it waited", False, False)],
        [started, waited],
        ["open"],
        [("full", "too many wait")],
    )
    return await store.schedules.fire(EPOCH, [decision])


@operation()
async def fill(store: Store, node: str) -> Any:
    starts = [NewFire(1.1e9, FireFate.STARTED, "", 1.1e9, repeat=2, backfill="fill-1")]
    filled = Filled(starts, 1.1e9, 0, BackfillState.RUNNING)
    return await store.schedules.fill(EPOCH, planted_backfill(), planted_schedule("due"), filled)


@operation()
async def end_backfill(store: Store, node: str) -> Any:
    return await store.schedules.end_backfill(EPOCH, planted_backfill())


@operation()
async def end_fires(store: Store, node: str) -> Any:
    return await store.schedules.end_fires(EPOCH, ["due", "removed"])


@operation()
async def stop_backfill(store: Store, node: str) -> Any:
    stopped = await store.schedules.stop_backfill("fill-1", node)
    return None if stopped is None else stopped.state


@operation()
async def add_backfill(store: Store, node: str) -> Any:
    made = await store.schedules.add_backfill(
        NewBackfill("fill-2", "due", 1e9, 1.2e9, True, 1, "none", node, "")
    )
    return made.actor


@operation()
async def reconcile_schedules(store: Store, node: str) -> Any:
    lines = [schedule("lined", times="2092-01-01"), schedule("added")]
    return await store.schedules.reconcile_schedules(
        EPOCH, DeclaredSet("shop", "now", DeclaredSet.write(lines))
    )


@operation()
async def register_with_schedules(store: Store, node: str) -> Any:
    sets = [
        DeclaredSet("shop", "now", DeclaredSet.write([schedule("added")])),
        DeclaredSet("other", "none", "[]"),
    ]
    offers = json.dumps({"schedules": ["now", "none"]})
    return await store.nodes.register(
        "node-g", host="h", pid=7, roles="scheduler", offers=offers, capacity=1, lease_s=LONG_S, sets=sets
    )


def event(name: str, *starts: str, type: str = "paid", subject: str = "o1") -> Arrival:
    """Return an event, and the runs that it starts."""
    return Arrival(
        NewEvent("default", "bank", name, type, b'{"cents":1}', subject), [new_run(one) for one in starts]
    )


@operation()
async def emit(store: Store, node: str) -> Any:
    """An event that starts a run, and wakes one."""
    return await store.events.emit([event("e1", "by-event")], node)


@operation()
async def emit_known(store: Store, node: str) -> Any:
    """An event that came before, beside a new one that nobody takes."""
    return await store.events.emit([event("e0", "not-again"), event("e2", type="unheard")], node)


@operation()
async def emit_gathered(store: Store, node: str) -> Any:
    """Events that start workflows that gather their starts, and wake a run: the runs of the keys take them."""
    starts = [
        _gathered("two", run_id="start-6"),
        _gathered("two", "quiet", run_id="start-7", parameter=""),
        _gathered("one", "other", run_id="start-8"),
    ]
    events = [event(f"e{n}")._replace(starts=[start]) for n, start in enumerate(starts, start=3)]
    return await store.events.emit(events, node)


@operation()
async def catch_up(store: Store, node: str) -> Any:
    """A run that waits looks for what came before."""
    return await store.events.catch_up([EventWait("waits", "$event:paid subject=o1")])


@operation()
async def catch_up_by_a_new_path(store: Store, node: str) -> Any:
    return await store.events.catch_up([EventWait("waits", "$event:paid data.cents=1")])


@operation()
async def reconcile_triggers(store: Store, node: str) -> Any:
    lines = [
        Trigger("default", "paid", "shop.ship", "2", "order"),
        Trigger("default", "sent", "shop.ship", "2", "order"),
    ]
    return await store.events.reconcile_triggers(EPOCH, DeclaredSet("shop", "now", write_triggers(lines)))


@operation()
async def register_with_triggers(store: Store, node: str) -> Any:
    lines = write_triggers([Trigger("default", "made", "shop.make", "1", "order")])
    return await store.nodes.register(
        "node-h",
        host="h",
        pid=8,
        roles="scheduler",
        offers=json.dumps({"triggers": ["on", "off"]}),
        capacity=1,
        lease_s=LONG_S,
        triggers=[DeclaredSet("shop", "on", lines), DeclaredSet("other", "off", "[]")],
    )


def part(name: str, type: str, subject: str = "o1") -> Arrival:
    """Return an event that arrives at an occasion."""
    event = NewEvent("default", "bank", name, type, b"1", subject)
    return Arrival(event, collects=["report"])


@operation()
async def emit_last_part(store: Store, node: str) -> Any:
    """The last part of an occasion: its run starts."""
    return await store.events.emit([part("p1", "file")], node)


@operation()
async def emit_other_part(store: Store, node: str) -> Any:
    """A newer event of a part that is there already, one for a new occasion, and one that is too late."""
    batch = [part("p2", "paid"), part("p3", "file", "o9"), part("p4", "file", "o3")]
    return await store.events.emit(batch, node)


@operation()
async def arrive(store: Store, node: str) -> Any:
    """A time arrives at its occasion."""
    due = DueTime("report", "$time:time", '{"times":"1h"}', 1.6e9, 1.6e9)
    return await store.occasions.arrive(EPOCH, [(due, ArrivedTimes([1.6e9 + 3600], 1.6e9 + 3600, 3.7e9, 1))])


@operation()
async def judge_occasions(store: Store, node: str) -> Any:
    """Occasions whose time is over, of a trigger that has changed, and of one that is gone."""
    return await store.occasions.judge_occasions(
        EPOCH, ["report@when:o1", "report@when:o2", "gone@when:o4", "report@when:o3"]
    )


@operation()
async def start_occasion(store: Store, node: str) -> Any:
    """An operator lets it start without what is missing."""
    return await store.occasions.start_occasion("report@when:o1", node, "now")


@operation()
async def drop_occasion(store: Store, node: str) -> Any:
    return await store.occasions.drop_occasion("report@when:o1", node, "")


def composed(name: str, **more: Any) -> ComposedRow:
    needs = Group("all", (Part("paid", "paid"), Part("time", times=Plan("2h"))))
    body = msgspec.json.encode(Composition(needs, "subject", 60.0, "skip", "arrived", **more)).decode()
    return ComposedRow(name, "default", "shop.report", "2", body, "d2", "shop")


@operation()
async def reconcile_composed(store: Store, node: str) -> Any:
    """One trigger is changed, one removed, and one added."""
    rows = [composed("report"), composed("added", priority=3)]
    return await store.occasions.reconcile_composed(EPOCH, DeclaredSet("shop", "now", write_composed(rows)))


@operation()
async def register_with_composed(store: Store, node: str) -> Any:
    return await store.nodes.register(
        "node-k",
        host="h",
        pid=9,
        roles="scheduler",
        offers=json.dumps({"composed": ["new", "off"]}),
        capacity=1,
        lease_s=LONG_S,
        composed=[
            DeclaredSet("shop", "new", write_composed([composed("report")])),
            DeclaredSet("other", "off", "[]"),
        ],
    )


@operation()
async def forget_occasions(store: Store, node: str) -> Any:
    return await store.retention.forget_occasions(EPOCH, late(), 100)


@operation()
async def forget_events(store: Store, node: str) -> Any:
    return await store.retention.forget_events(EPOCH, late(), 100)


@operation()
async def add_hook(store: Store, node: str) -> Any:
    return await store.hooks.add_hook(NewHook("new", "default", "github", b"secret", "x-signature"), node)


@operation()
async def rotate_hook(store: Store, node: str) -> Any:
    return await store.hooks.rotate_hook("hook", node.encode(), 60.0, node)


@operation()
async def remove_hook(store: Store, node: str) -> Any:
    return await store.hooks.remove_hook("hook", node)


@operation()
async def forget_fires(store: Store, node: str) -> Any:
    return await store.retention.forget_fires(EPOCH, late(), 100)


@operation()
async def forget_backfills(store: Store, node: str) -> Any:
    return await store.retention.forget_backfills(EPOCH, late(), 100)


@operation()
async def forget_sets(store: Store, node: str) -> Any:
    return await store.retention.forget_sets(EPOCH, late(), 100)


# The leader.


@operation()
async def lead(store: Store, node: str) -> Any:
    return await store.leader.lead(node, 2 * LONG_S)


@operation()
async def succeed_leader(store: Store, node: str) -> Any:
    """Let the leader resign, take its lease, and do what the leader may be doing, in one transaction."""

    async def act(session: Session) -> tuple[int, int]:
        await session.run(Verb.resign, A)
        epoch = await session.value(Verb.lead, node, 2 * LONG_S, LEADER)
        found = await session.rows(Verb.unlogged_alerts, 100)
        await session.each(Verb.log_alerts, [(row[0],) for row in found])
        return epoch, len(found)

    return await store.database.write(StoreCall("succeed_leader", (), (), {}), act)


@operation()
async def resign(store: Store, node: str) -> Any:
    return await store.leader.resign(A)


@operation()
async def reclaim_dead_node(store: Store, node: str) -> Any:
    return await reclaim(store, C, EPOCH)


@operation()
async def reclaim_live_node(store: Store, node: str) -> Any:
    return await reclaim(store, B, EPOCH)


@operation()
async def reclaim_owner(store: Store, node: str) -> Any:
    return await reclaim(store, A, EPOCH, "its process is gone", losses_max=0)


@operation(LEAVES)
async def end_overdue_steps(store: Store, node: str) -> Any:
    return await end_overdue(store, EPOCH, 60.0)


@operation()
async def close_signals(store: Store, node: str) -> Any:
    return await store.leader.close_signals(EPOCH, 100)


@operation()
async def make_twins(store: Store, node: str) -> Any:
    return await store.twins.make_twins(
        EPOCH, [("slow", 1, 1), ("slow", 2, 1), ("slow", 3, 1), ("busy", 1, 1)]
    )


@operation(LEAVES)
async def sweep_twins(store: Store, node: str) -> Any:
    return await store.twins.sweep_twins(EPOCH, 100)


@operation()
async def fade_durations(store: Store, node: str) -> Any:
    return await store.durations.fade_durations(EPOCH, attempts_max=2, keep_s=OLD_S / 2, rows_max=1)


@operation()
async def change_breaker(store: Store, node: str) -> Any:
    return await store.gates.change_breaker(
        EPOCH, "bank", 3, BreakerChange(BreakerState.OPEN, 0, LONG_S, "down")
    )


@operation()
async def give_back_probes(store: Store, node: str) -> Any:
    return await store.gates.give_back_probes(EPOCH, "bank", 3, 1)


@operation()
async def stick_quarantined(store: Store, node: str) -> Any:
    return await store.quarantine.stick_quarantined(EPOCH, 100)


@operation()
async def raise_alerts(store: Store, node: str) -> Any:
    alerts = [NewAlert(AlertKind.TEST, Level.WARNING, key, "why") for key in ("one", "four")]
    return await store.alerts.raise_alerts(EPOCH, alerts, looked_at=[1, 2])


@operation()
async def raise_late(store: Store, node: str) -> Any:
    late = [
        NewAlert(AlertKind.RUN_LATE, Level.WARNING, f"late:{run}", "why", run)
        for run in ("pending-1", "done")
    ]
    return await store.alerts.raise_late(EPOCH, [(one, None) for one in late])


@operation()
async def clear_alerts(store: Store, node: str) -> Any:
    return await store.alerts.clear_alerts(EPOCH, [1, 2])


@operation()
async def log_alerts(store: Store, node: str) -> Any:
    return await store.alerts.log_alerts(EPOCH, 100)


@operation()
async def route_alerts(store: Store, node: str) -> Any:
    routes = [
        AlertRoute(1, "raised", 1, [(f"{node}-1", "mail")]),
        AlertRoute(2, "raised", 2, [(f"{node}-2", "mail")]),
    ]
    return await store.alerts.route_alerts(EPOCH, routes)


@operation(CLAIMS)
async def claim_deliveries(store: Store, node: str) -> Any:
    return await store.alerts.claim_deliveries(EPOCH, "mail", 10, LONG_S)


@operation()
async def end_delivery(store: Store, node: str) -> Any:
    return await store.alerts.end_delivery(EPOCH, "delivery-2", 1, None, None)


@operation()
async def expire_deliveries(store: Store, node: str) -> Any:
    return await store.alerts.expire_deliveries(EPOCH, LONG_S)


async def _prune(store: Store, rows_max: int) -> Any:
    return await store.retention.prune(
        EPOCH,
        actor="supervisor",
        state="succeeded",
        before=late(),
        after=(0.0, ""),
        runs_max=100,
        rows_max=rows_max,
    )


@operation(LEAVES)
async def prune(store: Store, node: str) -> Any:
    return await _prune(store, 1000)


@operation(LEAVES)
async def prune_a_part(store: Store, node: str) -> Any:
    return await _prune(store, 1)


@operation()
async def prune_alerts(store: Store, node: str) -> Any:
    return await store.retention.prune_alerts(EPOCH, late(), 100)


@operation()
async def forget_nodes(store: Store, node: str) -> Any:
    return await store.retention.forget_nodes(EPOCH, late(), 100)


@operation()
async def forget_journal(store: Store, node: str) -> Any:
    return await store.retention.forget_journal(EPOCH, late(), 100)


@operation()
async def forget_audit(store: Store, node: str) -> Any:
    return await store.retention.forget_audit(EPOCH, late(), 100)


@operation()
async def journal_refused(store: Store, node: str) -> Any:
    # A name without a way: what belongs to the audit could not be removed again.
    return await store.tokens.journal_refused([RefusedEntry(f"ann at {node}", "acme", "1 request")])


@operation()
async def set_graphs(store: Store, node: str) -> Any:
    return await store.workflows.set_graphs([("default", "shop.old", "1", "d", f'{{"by": "{node}"}}')])


@operation()
async def forget_workflows(store: Store, node: str) -> Any:
    return await store.retention.forget_workflows(EPOCH, late(), 100)


@operation()
async def forget_acts(store: Store, node: str) -> Any:
    return await store.retention.forget_acts(EPOCH, late(), late(), 100)


# Acts on many runs.


@operation()
async def plan_act(store: Store, node: str) -> Any:
    await store.acts.plan_act(NewAct(f"act of {node}", ActVerb.HOLD, node, "", ActOptions()))


@operation()
async def add_act_runs(store: Store, node: str) -> Any:
    return await store.acts.add_act_runs("listing", [("open", "running", 1), ("lone", "running", 1)])


@operation()
async def finish_plan(store: Store, node: str) -> Any:
    return (await store.acts.finish_plan("listing", "{}")) is not None


@operation()
async def begin_act(store: Store, node: str) -> Any:
    return await store.acts.begin_act("planned", node, LONG_S, LONG_S)


@operation()
async def begin_old_act(store: Store, node: str) -> Any:
    return await store.acts.begin_act("old", node, LONG_S, LONG_S)


@operation()
async def take_act(store: Store, node: str) -> Any:
    return await store.acts.take_act("idle", node, LONG_S)


@operation()
async def carry_out_retries(store: Store, node: str) -> Any:
    return await _carry_out(store, "idle")


@operation()
async def carry_out_cancels(store: Store, node: str) -> Any:
    return await _carry_out(store, "cancels")


@operation()
async def refuse_next(store: Store, node: str) -> Any:
    act = await store.acts.refuse_next("cancels", 1, "broken", lease_s=LONG_S)
    return act and act.tried


@operation()
async def stop_act(store: Store, node: str) -> Any:
    return await store.acts.stop_act("cancels", node)


async def _carry_out(store: Store, act_id: str) -> Any:
    act = await store.acts.carry_out(act_id, 1, lease_s=LONG_S, limit=100, share_s=LONG_S)
    return act and (act.state, act.done, act.changed, act.refused)


# Callers and operators.


@operation()
async def send_signal(store: Store, node: str) -> Any:
    return await store.operators.send_signal(NewSignal("open", "paid", "three", b"1"))


@operation()
async def wake(store: Store, node: str) -> Any:
    return await store.operators.send_signal(NewSignal("asleep-1", "paid", "three", b"1"))


@operation()
async def cancel(store: Store, node: str) -> Any:
    return await store.operators.cancel_run("open", "ann", "")


@operation()
async def cancel_pending(store: Store, node: str) -> Any:
    return await store.operators.cancel_run("kid", "ann", "")


@operation()
async def cancel_held(store: Store, node: str) -> Any:
    return await store.operators.cancel_run("held-2", "ann", "")


@operation()
async def hold(store: Store, node: str) -> Any:
    return await store.operators.hold("open", "ann", "")


@operation()
async def hold_awake(store: Store, node: str) -> Any:
    return await store.operators.hold("awake-1", "ann", "")


@operation()
async def release(store: Store, node: str) -> Any:
    return await store.operators.release("held-2", "ann", "")


@operation()
async def steer_undo(store: Store, node: str) -> Any:
    return await store.operators.steer_undo("stuck-1", "retry", 1, "ann", "")


@operation()
async def steer_undoing(store: Store, node: str) -> Any:
    return await store.operators.steer_undo("undoing-2", "skip", 1, "ann", "")


@operation()
async def retry_now(store: Store, node: str) -> Any:
    return await store.operators.retry_now("ready-1", "ann")


@operation()
async def retry_run(store: Store, node: str) -> Any:
    return await store.operators.retry_run("failed-1", "ann")


@operation()
async def retry_old_run(store: Store, node: str) -> Any:
    try:
        return await store.operators.retry_run("old-failed", "ann")
    except WrongState as error:
        return str(error)


@operation()
async def fork_run(store: Store, node: str) -> Any:
    return (
        await store.operators.fork_run("failed-1", ForkRequest(input=b"{}", digest=b"d", id="forked"), "ann")
    ).id


@operation()
async def release_quarantined(store: Store, node: str) -> Any:
    return await _resolve(store, "release", run_id=None)


@operation()
async def skip_quarantined(store: Store, node: str) -> Any:
    return await _resolve(store, "skip", run_id="stuck-2")


@operation()
async def clear_alert(store: Store, node: str) -> Any:
    return await store.alerts.clear_alert(1, "ann")


@operation()
async def add_hold(store: Store, node: str) -> Any:
    return await store.gates.add_hold(HoldScope.WORKFLOW, "shop.else", node, "")


@operation()
async def remove_hold(store: Store, node: str) -> Any:
    return await store.gates.remove_hold(HoldScope.NAMESPACE, "elsewhere", node, "")


@operation()
async def force_breaker(store: Store, node: str) -> Any:
    return await store.gates.force_breaker("bank", BreakerState.OPEN, node, "")


@operation()
async def force_new_breaker(store: Store, node: str) -> Any:
    return await store.gates.force_breaker("new", BreakerState.OPEN, node, "")


@operation()
async def reset_breaker(store: Store, node: str) -> Any:
    return await store.gates.reset_breaker("bank", node, "")


async def _resolve(store: Store, act: str, run_id: str | None) -> int:
    return await store.quarantine.resolve_quarantine(
        act, fingerprint="print", run_id=run_id, before=ENVIRONMENT.now() + LONG_S, result=b"7", actor="ann", note="",
        limit=100,
    )  # fmt: skip


# --- seals ------------------------------------------------------------------------------------------------------------


def _sealed(table: Table, values: Values) -> Values:
    """Give every payload and digest of a row the same value, which shows that it was changed."""
    return tuple(None if one is None else b'{"pages": ["sealed"]}' for one in values)


async def _reseal(store: Store, name: str) -> None:
    (table,) = (table for table in TABLES if table.name == name)
    await reseal(store.seals, table, _sealed, batch=100, seen=lambda read, changed: None)


@operation(RESEALS)
async def reseal_runs(store: Store, node: str) -> Any:
    await _reseal(store, "runs")


@operation(RESEALS)
async def reseal_gathered(store: Store, node: str) -> Any:
    await _reseal(store, "gathered")


@operation()
async def forget_items(store: Store, node: str) -> Any:
    return await store.seals.forget_items()


@operation(RESEALS)
async def reseal_steps(store: Store, node: str) -> Any:
    await _reseal(store, "steps")


@operation(RESEALS)
async def reseal_signals(store: Store, node: str) -> Any:
    await _reseal(store, "signals")


@operation(RESEALS)
async def reseal_asks(store: Store, node: str) -> Any:
    await _reseal(store, "asks")


@operation(RESEALS)
async def reseal_answers(store: Store, node: str) -> Any:
    await _reseal(store, "ask_people")


@operation(RESEALS)
async def reseal_logs(store: Store, node: str) -> Any:
    await _reseal(store, "logs")


@operation(RESEALS)
async def reseal_events(store: Store, node: str) -> Any:
    await _reseal(store, "events")


@operation()
async def add_digest_key(store: Store, node: str) -> Any:
    await store.seals.add_digest_key(b"first")


@operation()
async def reseal_digest_key(store: Store, node: str) -> Any:
    return await store.seals.reseal_digest_key(b"first", b"second")
