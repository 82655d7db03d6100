"""No verb of the store is left out of the comparison by mistake."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from holdfast.environment import Environment
from holdfast.store import open_store
from holdfast.store.database import Part
from holdfast.store.operations import Op
from holdfast.store.store import Store

RULES = Path(__file__).parent


EXCEPTIONS = {
    "url": "an address, not a verb",
    "answers": "reads what the hop of an answer wrote, which is compared; tests/roles/test_updates.py, on both stores",
    "sent_update": "reads the row of one update; tests/roles/test_updates.py, on both stores",
    "started_runs": "reads what a hop that starts runs wrote, which is compared; tests/roles/test_started.py, on both stores",
    "declaration": "the same row as `declared`, by another key",
    "fork_run": "copies rows by the statements of retry_run; tests/roles/test_fork.py, on both stores",
    "schema": "a number, not a verb",
    "shared_url": "an address, not a verb",
    "open": "connects; tests/store/test_schema.py",
    "close": "disconnects",
    "migrate": "makes the tables; tests/store/test_schema.py",
    "now": "the clock, which is the model's in one dialect and moved by hand in the other",
    "register": "takes a lock on a file in one dialect; rows are made by hand; tests/store/test_nodes.py",
    "ring": "changes no row; tests/store/test_nodes.py",
    "listen": "changes no row; tests/store/test_nodes.py",
    "remote": "reads the row of one remote node; tests/remote/test_agents.py, on both stores",
    "claim": "claims as claim_steps does, which is compared, if the turn is not overtaken; the same",
    "begin_turns": "reconciles as reconcile does, which is compared, unless the turn is overtaken; the same",
    "shorten": "writes the lease of one remote node; the same",
    "refuse": "the second half of commit, which is compared",
    "token": "reads the row of one token; tests/store/test_tokens.py, on both stores",
    "tokens": "the same, of all",
    "add_token": "writes the row of one token, which nothing else reads or writes; tests/store/test_tokens.py",
    "rotate_token": "the same",
    "revoke_token": "the same",
    "use_token": "the same",
    "schedule": "reads the row of one schedule; tests/store/test_schedules.py, on both stores",
    "schedules": "the same",
    "seen": "the same",
    "fires": "the same",
    "fires_at": "the same",
    "taken_ids": "the same",
    "backfill": "the same",
    "backfills": "the same",
    "schedule_looks": "the same",
    "fire": "writes rows that nothing else writes, and starts runs by the statement of a start, which is compared; tests/store/test_schedules.py",
    "fill": "the same",
    "end_backfill": "the same",
    "declared_sets": "the same",
    "reconcile_schedules": "the same",
    "schedules_of": "the same",
    "gone_schedules": "the same",
    "other_tzdata": "the same",
    "create_schedule": "the same",
    "remove_schedule": "the same",
    "pause_schedule": "the same",
    "resume_schedule": "the same",
    "run_schedule": "the same",
    "add_backfill": "the same",
    "stop_backfill": "the same",
    "forget_fires": "the same",
    "forget_backfills": "the same",
    "forget_sets": "the same",
    "start_within": "takes the caller's own transaction, another driver's; tests/store/test_starts.py and test_sqlite_shared.py",
}
"""Verbs that the state machines do not ask, and why."""


def verbs() -> set[str]:
    """Return all verbs of the store and of its nouns."""
    nouns = [
        noun
        for noun in vars(open_store("sqlite://:memory:", Environment())).values()
        if isinstance(noun, Part)
    ]
    assert len(nouns) > 10
    parts = [part for noun in nouns for part in type(noun).__mro__ if issubclass(part, Part)]
    declared = {name for part in [*parts, Store] for name in vars(part)}
    return {name for name in declared if not name.startswith("_")}


def rules_text() -> str:
    return "\n".join(path.read_text() for path in [*RULES.glob("rules/*.py"), RULES / "questions.py"])


def asked_verbs() -> set[str]:
    helpers = {"reclaim", "end_overdue"} & set(re.findall(r"\b(\w+)\(subject\.store", rules_text()))
    suspects = {"suspects"} if "deaths(subject.store)" in rules_text() else set()
    return set(re.findall(r"\.store\.\w+\.(\w+)\(", rules_text())) | helpers | suspects


def test_every_verb_is_compared_or_excepted() -> None:
    """A new verb fails here until a rule asks it, or the list above has a reason."""
    asked = asked_verbs()
    assert verbs() - asked - EXCEPTIONS.keys() == set(), "neither asked by a rule nor excepted"
    assert EXCEPTIONS.keys() - verbs() == set(), "excepted, and not in the protocol any more"
    assert EXCEPTIONS.keys() & asked <= {"open", "close"}, "excepted, and asked all the same"


def test_every_operation_is_committed() -> None:
    """`commit` takes operations of several kinds, and the rules make each of them."""
    made = set(re.findall(r"\b(\w+)\(", rules_text()))
    assert {op.__name__ for op in get_args(Op)} - made == set()
