"""The statements of this dialect: those that every dialect has, and those that only this one has."""

from __future__ import annotations

from enum import StrEnum, auto

from holdfast.store.statements import load
from holdfast.store.verbs import Verb


class SqliteVerb(StrEnum):
    """Statements that only this dialect has."""

    # claims.sql
    is_member = auto()
    any_ready = auto()
    passable_lanes = auto()
    next_priority = auto()
    due_steps = auto()
    due_steps_of = auto()
    probe_lanes = auto()
    awake_runs = auto()
    claimable_run = auto()
    history_size = auto()

    # queues.sql
    due_in_queue = auto()
    due_in_queue_of = auto()
    next_run_priority = auto()
    pending_in_queue = auto()
    pending_in_queue_of = auto()

    # clock.sql
    clock = auto()
    clock_in_use = auto()
    set_clock = auto()
    move_leases = auto()
    move_nodes = auto()
    move_steps = auto()


STATEMENTS = load(__package__ or "", [*Verb, *SqliteVerb])
