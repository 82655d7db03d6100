"""The statements of this dialect, by verb. The loader checks that each is there and used."""

from __future__ import annotations

from holdfast.store.statements import Statements


class Verbs(Statements):
    hop: str
    deliver_signals: str
    end_waits: str
    drop_steps: str
    send_signals: str
    note_runs: str
    tell_parents: str
    park_runs: str
    take_back_runs: str
    alert: str
    unstick: str
    alerts: str
    continue_run: str
    start: str
    started_as: str
    report: str
    reported_before: str
    refuse_report: str
    try_again: str
    hand_back: str
    save: str
    lanes: str
    lane: str
    claim_steps: str
    lost_steps: str
    next_ready: str
    claim_pending: str
    claim_awake: str
    claim_run: str
    history_steps: str
    history_signals: str
    undelivered_steps: str
    undelivered_signals: str
    fire_timers: str
    next_timer: str
    hold_run: str
    lost_runs: str
    register: str
    renew: str
    retire: str
    reconcile_runs: str
    reconcile_steps: str
    lead: str
    resign: str
    leader: str
    live_locks: str
    dead_nodes: str
    strangers: str
    bury: str
    retire_buried: str
    hush_signals: str
    end_overdue: str
    journal_add: str
    store_now: str
    run: str
    runs: str
    ended_runs: str
    runs_by_state: str
    steps: str
    attempts: str
    signals: str
    children: str
    nodes: str
    journal: str
    send_signal: str
    sent_before: str
    cancel_pending: str
    hold: str
    release: str
    retry_now: str
    copy_run: str
    copy_steps: str
    copy_signals: str
    doctor: str
    make_schema: str
    make_migrations: str
    applied_migrations: str
    record_migration: str


VERBS = Verbs(__package__ or "")
