"""The statements of this dialect, by verb. The loader checks that each is there and used."""

from __future__ import annotations

from holdfast.store.statements import Statements


class Verbs(Statements):
    is_live: str
    begin_runs: str
    owned_runs: str
    record_outcomes: str
    deliver_steps: str
    deliver_signals: str
    end_waits: str
    issue_steps: str
    drop_steps: str
    send_signals: str
    note_runs: str
    close_runs: str
    sweep_closed_steps: str
    sweep_closed_signals: str
    tell_parents: str
    take_back_runs: str
    alert: str
    unstick: str
    alerts: str
    park_runs: str
    continue_run: str
    forget_steps: str
    forget_attempts: str
    unread_signals: str
    forget_signals: str
    start: str
    started_as: str
    report: str
    reported_before: str
    refuse_report: str
    keep_attempt: str
    try_again: str
    hand_back: str
    save: str
    lanes: str
    lane: str
    make_lane: str
    next_priority: str
    due_steps: str
    claim_step: str
    holds_step: str
    next_ready: str
    pending_runs: str
    awake_runs: str
    claim_run: str
    undelivered_steps: str
    undelivered_signals: str
    due_timers: str
    fire_timers: str
    next_timer: str
    hold_run: str
    owns_run: str
    register: str
    renew: str
    owned_by: str
    held_by: str
    free_runs: str
    retire: str
    node: str
    lead: str
    resign: str
    leader: str
    leading: str
    live_nodes: str
    holders: str
    reclaim_steps: str
    overdue_steps: str
    time_out_steps: str
    late_signals: str
    hush_signals: str
    journal_add: str
    run: str
    runs: str
    ended_run: str
    runs_by_state: str
    steps: str
    attempts: str
    signals: str
    children: str
    nodes: str
    journal: str
    journal_of_run: str
    sent_before: str
    cancel_pending: str
    hold: str
    release: str
    retry_now: str
    copy_run: str
    copy_steps: str
    copy_signals: str
    make_migrations: str
    applied_migrations: str
    record_migration: str
    doctor: str


VERBS = Verbs(__package__ or "")
