"""The statements of this dialect: those that every dialect has, and those that only this one has."""

from __future__ import annotations

from enum import StrEnum, auto

from holdfast.store.statements import load
from holdfast.store.verbs import Verb


class PostgresVerb(StrEnum):
    """Statements that only this dialect has."""

    # claims.sql
    claim_steps_of = auto()
    claim_probes = auto()
    claim_pending = auto()
    claim_awake = auto()
    claim_runs_of = auto()

    # queues.sql
    step_levels = auto()
    probe_levels = auto()
    take_steps = auto()
    take_steps_of = auto()
    run_levels = auto()
    lock_limits = auto()

    # batch.sql
    lock_batch_runs = auto()
    lock_batch_steps = auto()

    # batch.sql, workflows.sql, retention.sql, reads.sql, migrations.sql
    database_identity = auto()
    register_in_turn = auto()
    by_index = auto()
    store_now = auto()
    make_schema = auto()
    lock_schema = auto()
    schema_lock_holder = auto()


STATEMENTS = load(__package__ or "", [*Verb, *PostgresVerb])
